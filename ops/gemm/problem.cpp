#include "ops/gemm/problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/gemm/gemm.h"

namespace lenslet {
namespace {

/// The operand's matrix for product `index` of the batch.
std::int64_t matrix_of(const Shape& batch, const Shape& own, std::int64_t index) {
  std::int64_t matrix = 0, step = 1;
  for (int d = batch.rank() - 1, at = own.rank() - 1; at >= 0; --d, --at) {
    if (own[at] != 1) matrix += index % batch[d] * step;
    index /= batch[d];
    step *= own[at];
  }
  return matrix;
}

}  // namespace

std::vector<ProductRun> product_runs(const MatrixProblem& p) {
  std::vector<ProductRun> runs;
  const std::int64_t total = p.y.elems() == 0 ? 0 : p.batch.elems();
  for (std::int64_t i = 0; i < total; ++i) {
    const ProductRun next{.y = i, .a = matrix_of(p.batch, p.batch_a, i), .b = matrix_of(p.batch, p.batch_b, i)};
    if (i > 0) {
      ProductRun& run = runs.back();
      if (run.count == 1) {  // the second one says how far apart they lie
        run.a_step = next.a - run.a;
        run.b_step = next.b - run.b;
      }
      if (next.a == run.a + run.count * run.a_step && next.b == run.b + run.count * run.b_step) {
        ++run.count;
        continue;
      }
    }
    runs.push_back(next);
  }
  return runs;
}

std::vector<TensorType> MatrixOp::infer(std::span<const InputInfo> inputs) const {
  const Shape y = problem(inputs).y;
  require_equal_dtypes(inputs);
  return {{inputs[a].type.dtype, y}};
}

double MatrixOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const {
  return 2.0 * static_cast<double>(outputs[0].shape.elems()) * static_cast<double>(problem(inputs).gemm_k);
}

Offer MatrixKernel::offer(const Problem& node, const Target& target) const {
  const DType dtype = node.inputs()[MatrixOp::a].type.dtype;
  if (!types().contains(dtype))
    return Offer::refuse(fmt::format("product of {}; only {} is supported", to_string(dtype), types().str()));
  const MatrixProblem p = matrix_problem(node);
  Offer offer = plan(node, p, target);
  for (Candidate& candidate : offer.candidates) {
    const bool prepares = weights(node, p, candidate.config).bytes > 0;
    if (p.channels != 0 && !prepares)
      return Offer::refuse("A's columns stand pixel by pixel, and B is read as it lies");
    candidate.inputs.assign(node.inputs().size(), formats::nchw);
    candidate.outputs = {formats::nchw};
    if (prepares) candidate.reads &= ~input_bit(MatrixOp::b);
    if (candidate.estimated_us > 0) continue;
    // Roofline of the device.
    const double multiply_us =
        node.op().flops(node.inputs(), node.outputs()) / target.device.flops_per_us(target.numerics.multiply);
    candidate.estimated_us = target.device.launch_us + std::max(multiply_us, node.bytes() / target.device.bytes_per_us);
  }
  return offer;
}

std::optional<BlobSpec> MatrixKernel::blob(const Problem& node, const Candidate& candidate) const {
  const MatrixProblem p = matrix_problem(node);
  const Weights lie = weights(node, p, candidate.config);
  const std::int64_t bytes = p.batch_b.elems() * lie.bytes;
  if (bytes == 0) return std::nullopt;
  BlobSpec spec;
  spec.bytes = static_cast<std::size_t>(bytes);
  // The key holds alpha, the scales and A's column order, which are no inputs; k, n and the batch come with the
  // constant. gemm()'s panels also depend on the vector width.
  spec.key = fmt::format("{} transB={} alpha={} channels={} columns={} ", lie.form, p.trans_b, p.alpha, p.channels,
                         device() == DeviceKind::cpu ? gemm_tile_cols() : 0);
  spec.key.append(reinterpret_cast<const char*>(p.scale.data()), p.scale.size() * sizeof(float));
  return spec;
}

void MatrixKernel::prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const {
  const MatrixProblem p = matrix_problem(node);
  const float* const b = node.inputs()[MatrixOp::b].constant->values<float>().data();
  const std::int64_t bytes = weights(node, p, candidate.config).bytes;
  for (std::int64_t i = 0; i < p.batch_b.elems(); ++i)
    write_weights(node, p, candidate.config, b + i * p.b_floats(), blob.data() + i * bytes);
}

}  // namespace lenslet

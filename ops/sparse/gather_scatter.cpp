// SparseConv by the definition, tap by tap: rows of x are gathered, multiplied by the tap's filters and scattered to
// the outputs. The reference for the fast kernel, and used for filters that the network computes.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/sparse/clear.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet {

namespace {

// Outputs per block, and pairs gathered at once.
constexpr std::int64_t block_rows = 256, batch = 64;

class BoundGatherScatter final : public BoundKernel {
 public:
  BoundGatherScatter(SparseConvProblem problem, std::shared_ptr<const Op> op, int threads)
      : p_(std::move(problem)), op_(std::move(op)), threads_(threads) {}

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * own_floats()) * sizeof(float);
  }

  void run(const KernelRun& run) const override {
    const SparseConvRun r(p_, run);
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    r.for_each_block(block_rows, *run.pool, [&](std::int64_t first, std::int64_t last, int worker) {
      float* const sums = workspace + worker * own_floats();
      compute(r, first, last, sums, sums + block_rows * p_.filters);
    });
    clear_rows(r.y<float>(), r.rulebook.outputs(), p_.max_outputs, p_.filters, *run.pool);
  }

 private:
  std::int64_t own_floats() const {
    return (block_rows * p_.filters + batch * p_.channels + p_.channels + 15) / 16 * 16;
  }

  /// Computes outputs [first, last): `sums` [block_rows, K], `scratch` is the rest of a thread's memory.
  void compute(const SparseConvRun& r, std::int64_t first, std::int64_t last, float* sums, float* scratch) const {
    const std::int64_t c = p_.channels, filters = p_.filters;
    const auto& op = static_cast<const SparseConvOp&>(*op_);
    float *const gathered = scratch, *const taps_filter = scratch + batch * c;
    std::fill(sums, sums + (last - first) * filters, 0.0F);
    for (std::int64_t tap = 0; tap < p_.taps; ++tap) {
      const TapPairs pairs = r.rulebook.pairs(tap);
      const std::int64_t begin = first_pair(pairs, first);
      const std::int64_t end = end_of_pairs(pairs, begin, first, last, r.rulebook.inputs());
      for (std::int64_t at = begin; at < end; at += batch) {
        const std::int64_t count = std::min(batch, end - at);
        for (std::int64_t i = 0; i < count; ++i)
          std::copy_n(r.x<float>() + (pairs.identity ? at + i : pairs.in[at + i]) * c, c, gathered + i * c);
        for (std::int64_t k = 0; k < filters; ++k) {
          for (std::int64_t j = 0; j < c; ++j)
            taps_filter[j] = op.scaled(r.filter<float>()[(k * c + j) * p_.taps + tap], k);
          for (std::int64_t i = 0; i < count; ++i) {
            float product = 0;
            for (std::int64_t j = 0; j < c; ++j) product += gathered[i * c + j] * taps_filter[j];
            sums[((pairs.identity ? at + i : pairs.out[at + i]) - first) * filters + k] += product;
          }
        }
      }
    }
    for (std::int64_t i = 0; i < (last - first) * filters; ++i) {
      float sum = sums[i];
      if (r.bias<float>() != nullptr) sum += r.bias<float>()[i % filters];
      if (r.residual<float>() != nullptr) sum += r.residual<float>()[first * filters + i];
      r.y<float>()[first * filters + i] = static_cast<float>(apply(p_.activation, double{sum}));
    }
  }

  SparseConvProblem p_;
  std::shared_ptr<const Op> op_;
  int threads_;
};

class GatherScatter final : public Kernel {
 public:
  std::string_view name() const override { return "gather_scatter"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<Types<float>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    if (auto why = refuse_types(node, DType::f32)) return Offer::refuse(std::move(*why));
    const SparseConvProblem p = node.as<SparseConvOp>().problem(node.inputs());
    Candidate candidate;
    candidate.inputs.resize(node.inputs().size());
    candidate.outputs.resize(1);
    candidate.workspace_bytes = BoundGatherScatter(p, node.shared_op(), target.device.units).workspace_bytes();
    // 1.5 Gflop/s per core at 3 GHz: a row's additions depend on each other.
    candidate.estimated_us = p.flops() / (1500.0 * target.device.units);
    candidate.tolerance = sum_tolerance(p.channels * p.taps);
    candidate.in_place = p.residual ? input_bit(SparseConvOp::residual) : no_inputs;
    return candidate;
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    ConfigReader(binding.candidate.config).finish();
    return std::make_unique<BoundGatherScatter>(binding.op<SparseConvOp>().problem(binding.problem.inputs()),
                                                binding.problem.shared_op(), binding.threads());
  }
};

}  // namespace

const Kernel& sparse_conv_gather_scatter() {
  static const GatherScatter kernel;
  return kernel;
}

}  // namespace lenslet

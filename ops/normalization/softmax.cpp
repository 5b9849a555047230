// Softmax and LogSoftmax, numerically stable: the maximum is subtracted before exponentiation.

#include <algorithm>
#include <cmath>

#include "base/cuda_built.h"
#include "ops/core/transpose_block.h"
#include "ops/normalization/softmax_kernels.h"
#include "ops/normalization/softmax_op.h"

namespace lenslet {

namespace {

bool is_log(const SoftmaxOp& op) { return op.name == "LogSoftmax"; }

/// Rows up to this length are transposed to columns, which fill vectors better: 4420 rows of 2 take 5 us instead of 66;
/// at 49 both are equal.
constexpr std::int64_t short_row = 32;

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const auto& op = binding.op<SoftmaxOp>();
  return bound([log = is_log(op), e = SoftmaxExtents(op, binding.shape(0), binding.format(0))](const KernelRun& run) {
    if (run.outputs[0].elems() == 0) return;
    const float* x = run.inputs[0].values<float>().data();
    float* y = run.outputs[0].values<float>().data();
    const std::int64_t grain = std::max<std::int64_t>(1, (8 << 10) / e.length);
    constexpr std::int64_t strip = softmax_strip;
    if (e.inner == 1 && e.length <= short_row)
      return run.pool->parallel_for(
          (e.outer + strip - 1) / strip, std::max<std::int64_t>(1, grain / strip),
          [&](std::int64_t begin, std::int64_t end, int) {
            float columns[short_row * strip];
            for (std::int64_t i = begin; i < end; ++i) {
              const std::int64_t rows = std::min(strip, e.outer - i * strip), at = i * strip * e.length;
              transpose_block(sizeof(float), x + at, e.length, columns, strip, rows, e.length);
              softmax_columns(columns, columns, e.length, strip, rows, log);
              transpose_block(sizeof(float), columns, strip, y + at, e.length, e.length, rows);
            }
          });
    if (e.inner == 1)
      return run.pool->parallel_for(e.outer, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) softmax_row(x + i * e.length, y + i * e.length, e.length, log);
      });
    // Columns of a plane in strips, so that a strip's lines stay in L1.
    const std::int64_t strips = (e.inner + strip - 1) / strip;
    run.pool->parallel_for(
        e.outer * strips, std::max<std::int64_t>(1, grain / strip), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t first = i % strips * strip;
            const std::int64_t at = i / strips * e.length * e.inner + first;
            softmax_columns(x + at, y + at, e.length, e.inner, std::min(strip, e.inner - first), log);
          }
        });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([log = is_log(binding.op<SoftmaxOp>()), e = SoftmaxExtents(binding.op<SoftmaxOp>(), binding.shape(0),
                                                                          binding.format(0))](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::softmax(*run.cuda, run.inputs[0].dtype(), run.inputs[0].data(), run.outputs[0].data(), e.outer, e.length,
                    e.inner, log);
  });
}

// In nhwc the elements along C are contiguous; flattened, their order does not matter for the sum over an image.
std::span<const Format> formats_for(const Problem& problem) {
  const Shape& x = problem.shape(0);
  if (x.rank() == 4 && problem.as<SoftmaxOp>().first_axis(x) == 1) return nchw_or_nhwc;
  return nchw_only;
}

constexpr auto kernels = on_both({.types = dtypes<Types<float>>,
                                  .more_on_cuda = dtypes<HalfTypes>,
                                  .formats_for = formats_for,
                                  .tolerance = 2e-6,
                                  .in_place = input_bit(0)},
                                 bind_cpu, bind_cuda);

}  // namespace

OpParts softmax() { return {make_softmax, kernels}; }

}  // namespace lenslet

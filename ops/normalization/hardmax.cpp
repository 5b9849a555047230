// Hardmax: 1 at the first maximum, 0 elsewhere. NaN counts as the maximum, as in ArgMax.

#include <algorithm>
#include <array>
#include <bit>

#include "base/cuda_built.h"
#include "ops/core/grain.h"
#include "ops/movement/one_hot.h"
#include "ops/normalization/softmax_op.h"
#include "ops/reduce/beats.h"
#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/row_kernels.h"

namespace lenslet {

namespace {

SoftmaxExtents extents_of(const Binding& binding) { return {binding.op<SoftmaxOp>(), binding.shape(0), formats::nchw}; }

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([e = extents_of(binding)](const KernelRun& run) {
    if (run.outputs[0].elems() == 0) return;
    if (e.inner == 1)
      return run.pool->parallel_for(e.outer, std::max<std::int64_t>(1, elementwise_grain / e.length),
                                    [&](std::int64_t begin, std::int64_t end, int) {
                                      for (std::int64_t i = begin; i < end; ++i) {
                                        float* const y = run.out<float>() + i * e.length;
                                        std::fill_n(y, e.length, 0.0F);
                                        const float* const x = run.in<float>(0) + i * e.length;
                                        y[reduce::row_arg_extreme(x, e.length, true)] = 1;
                                      }
                                    });
    // Adjacent columns together, so that memory is read in order.
    constexpr std::int64_t most_lanes = 64;
    const std::int64_t lanes = std::min(e.inner, most_lanes), strips = (e.inner + lanes - 1) / lanes;
    run.pool->parallel_for(e.outer * strips, std::max<std::int64_t>(1, elementwise_grain / (e.length * lanes)),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t unit = begin; unit < end; ++unit) {
                               const std::int64_t first = unit % strips * lanes,
                                                  at = unit / strips * e.length * e.inner + first;
                               const std::int64_t width = std::min(lanes, e.inner - first);
                               const float* x = run.in<float>(0) + at;
                               float* y = run.out<float>() + at;
                               std::array<float, most_lanes> best{};
                               std::array<std::int64_t, most_lanes> where{};
                               std::copy_n(x, width, best.begin());
                               for (std::int64_t i = 0; i < e.length; ++i)
                                 for (std::int64_t j = 0; j < width; ++j) {
                                   const auto lane = static_cast<std::size_t>(j);
                                   const float value = x[i * e.inner + j];
                                   y[i * e.inner + j] = 0;
                                   if (!beats(value, best[lane])) continue;
                                   best[lane] = value;
                                   where[lane] = i;
                                 }
                               for (std::int64_t j = 0; j < width; ++j)
                                 y[where[static_cast<std::size_t>(j)] * e.inner + j] = 1;
                             }
                           });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const SoftmaxExtents e = extents_of(binding);
    reduce::Loops loops;
    loops.kept.add(e.outer, e.length * e.inner, e.inner);
    loops.kept.add(e.inner, 1, 1);
    loops.reduced.add(e.length, e.inner, 0);
    // The positions of the maxima, then the workspace to find them.
    constexpr std::size_t alignment = 256;
    const std::size_t positions_bytes =
        (static_cast<std::size_t>(e.outer * e.inner) * sizeof(std::int64_t) + alignment - 1) / alignment * alignment;
    const auto run_on = [e, loops, positions_bytes](const KernelRun& run) {
      if (run.outputs[0].elems() == 0) return;
      auto* positions = reinterpret_cast<std::int64_t*>(run.workspace.data());
      cuda::arg_extreme(*run.cuda, true, false, DType::f32, loops, run.inputs[0].data(), positions,
                        run.workspace.data() + positions_bytes);
      cuda::one_hot(*run.cuda, sizeof(float), {e.outer, e.length, e.inner}, DType::i64, positions, nullptr, 0,
                    std::bit_cast<std::uint32_t>(1.0F), run.outputs[0].data());
    };
    return bound(run_on, positions_bytes + cuda::reduce_workspace_bytes(loops));
  }
  return nullptr;
}

constexpr auto kernels = on_both({.types = dtypes<Types<float>>}, bind_cpu, bind_cuda);

}  // namespace

OpParts hardmax() { return {make_softmax, kernels}; }

}  // namespace lenslet

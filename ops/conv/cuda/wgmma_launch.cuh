#pragma once
// Starts kernels of wgmma_gemm's blocks: tensor maps, shared memory, grid.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/aligned_format.h"
#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_maps.cuh"

namespace lenslet::cuda {

/// A call without addresses. `plan`: WgmmaGemmPlan or WgmmaTf32Plan, by groups of `width` channels. `whole_groups`:
/// whether each group is a k-block.
template <typename Plan>
WgmmaGemm call_of(const ConvProblem& p, const Plan& plan, int width, bool whole_groups) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  const ConvProblem set = group_set(p, plan.together);
  WgmmaGemm call;
  call.walk = WindowWalk<std::int16_t>(p);
  call.k_order = KOrder(set);
  call.by_channels = whole_groups && goes_by_channels(set) ? 1 : 0;
  call.tail = KTail(set, width);
  call.activation = DeviceActivation(p.activation);
  call.pointwise = is_pointwise(p) ? 1 : 0;
  call.pixels = narrow(p.n * p.p * p.q);
  call.k = narrow(aligned_channels(p.k, p.storage));
  call.biases = narrow(p.k);
  call.steps = narrow(plan.steps);
  call.tiles = narrow(plan.tiles_m * plan.tiles_n);
  call.tiles_n = narrow(plan.tiles_n);
  if (plan.sets > 1) call.sets = {narrow(plan.tiles_n / plan.sets), narrow(set.c)};
  return call;
}

/// A problem's persistent blocks, without addresses.
class WgmmaLaunch {
 public:
  WgmmaLaunch(const ConvProblem& p, const WgmmaGemmPlan& plan)
      : problem_(p),
        shape_(shape_of(plan.tile)),
        width_(plan.width),
        filters_(in_whole_tiles(p, plan.together, plan.n())),
        lasting_(plan.lasting_stages(shared_of(shape_, p.residual).stages)),
        call_(call_of(p, plan, plan.width, plan.k_groups_per_block == 1)) {}

  int y_channels() const { return call_.k; }

  void start(const Context& context, void (*kernel)(WgmmaGemm), const WgmmaOperands& at) const {
    WgmmaGemm call = call_;
    const auto windows = [&](int width) {
      return window_operand(problem_, at.x, shape_.m, width, MapElement::half, at.x_pixel);
    };
    call.windows = windows(width_);
    call.filters = filter_operand(problem_, filters_, at.filters, shape_.n, width_, MapElement::half);
    call.bias = at.bias;
    call.results = results(at.y, at.y_pixel);
    if (at.residual != nullptr) {
      call.residuals_or_tails = results(at.residual, call.k);
      call.adds_residual = 1;
    }
    if (call.tail.exists())
      call.residuals_or_tails = windows(call.tail.instructions(call.k_order, width_) * width_ / 4);
    const WgmmaShared shared = shared_of(shape_, problem_.residual);
    const auto shared_bytes = static_cast<std::size_t>(shared.total);
    const int multiprocessors = context.multiprocessors;
    const auto even = static_cast<int>(blocks_of_same_filters(multiprocessors, call.tiles_n));
    const bool lasts = lasting_ > 0 && even > 0;
    call.filters_last = lasts ? 1 : 0;
    call.stages = lasts ? lasting_ : shared.stages;
    allow_shared_bytes(kernel, shared_bytes);
    launch(context, kernel, static_cast<unsigned>(std::min(call.tiles, lasts ? even : multiprocessors)),
           wgmma_threads(shape_.consumers), shared_bytes, call);
  }

 private:
  /// `pitch`: elements from pixel to pixel.
  CUtensorMap results(const void* y, std::int64_t pitch) const {
    const ConvProblem& p = problem_;
    const auto size = [](auto value) { return static_cast<std::uint64_t>(value); };
    return tiled_map(y, std::array{size(call_.k), size(p.n * p.p * p.q)},
                     std::array{static_cast<std::uint32_t>(staged_filters(shape_.n)), std::uint32_t{staged_rows}},
                     MapElement::half, size(pitch));
  }

  ConvProblem problem_;
  WgmmaTileShape shape_;
  int width_;
  WgmmaFilters filters_;
  int lasting_;
  WgmmaGemm call_;  // lacks what depends on addresses
};

}  // namespace lenslet::cuda

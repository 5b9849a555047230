#pragma once
// Binding and launch of the split-K plans of wgmma_gemm, wgmma_tf32 and wgmma_layer_norm.

#include <cstddef>
#include <cstdint>

#include "base/aligned_format.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_maps.cuh"
#include "ops/conv/cuda/wgmma_split_k.cuh"

namespace lenslet::cuda {

using SplitKKernel = void (*)(WgmmaSplitK);

/// From the plan.
struct SplitKLaunch {
  SplitKKernel kernel = nullptr;
  SplitKTile tile = SplitKTile::t128x128;
  int split_k = 1;
  std::int64_t tiles_m = 0, tiles_n = 0;
  std::int64_t steps = 0;  ///< k-blocks of a tile, all splits
  int width = 0;           ///< channels of a group
  WgmmaFilters filters;
  MapElement element = MapElement::half;
  int more_threads = 0, more_shared_bytes = 0;  ///< beside producer and consumers, and behind the layout
};

inline SplitKLaunch split_k_launch(const ConvProblem& p, const WgmmaGemmPlan& plan, SplitKKernel kernel) {
  return {.kernel = kernel,
          .tile = plan.split_k_tile,
          .split_k = plan.split_k,
          .tiles_m = plan.tiles_m,
          .tiles_n = plan.tiles_n,
          .steps = plan.steps,
          .width = plan.width,
          .filters = in_whole_tiles(p, 1, plan.n())};
}

/// A plan's launch, without addresses.
class WgmmaSplitKLaunch {
 public:
  WgmmaSplitKLaunch(const ConvProblem& p, const SplitKLaunch& plan) : problem_(p), plan_(plan) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.walk = WindowWalk<>(p);
    call_.k_order = KOrder(p);
    call_.activation = DeviceActivation(p.activation);
    call_.pointwise = is_pointwise(p) ? 1 : 0;
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.k = narrow(aligned_channels(p.k, p.storage));
    call_.padding = static_cast<std::int16_t>(call_.k - p.k);
    call_.steps = narrow(plan.steps);
    call_.split_k_log2 = log2_of(plan.split_k);
    call_.tiles_n = narrow(plan.tiles_n);
  }

  void start(const Context& context, const WgmmaOperands& at) const {
    const SplitKTileShape& shape = shape_of(plan_.tile);
    WgmmaSplitK call = call_;
    call.windows = window_operand(problem_, at.x, shape.m, plan_.width, plan_.element, at.x_pixel);
    call.filters = filter_operand(problem_, plan_.filters, at.filters, shape.n, plan_.width, plan_.element);
    call.bias = at.bias;
    call.residual = at.residual;
    call.y = at.y;
    call.y_pixel = static_cast<int>(at.y_pixel);
    const auto shared_bytes = static_cast<std::size_t>(shared_of(shape).total + plan_.more_shared_bytes);
    allow_shared_bytes(plan_.kernel, shared_bytes);
    launch_clusters(context, plan_.kernel, static_cast<unsigned>(plan_.tiles_m * plan_.tiles_n * plan_.split_k),
                    static_cast<unsigned>(128 * (shape.m / 64) + 32 + plan_.more_threads),
                    static_cast<unsigned>(plan_.split_k), shared_bytes, call);
  }

 private:
  ConvProblem problem_;
  SplitKLaunch plan_;
  WgmmaSplitK call_;  // lacks what depends on addresses
};

class BoundWgmmaSplitK final : public BoundKernel {
 public:
  BoundWgmmaSplitK(const ConvProblem& p, const SplitKLaunch& plan) : k_(p.k), launch_(p, plan) {}

  void run(const KernelRun& run) const override {
    launch_.start(*run.cuda, {.x = run.in<void>(ConvOp::input),
                              .filters = run.blob,
                              .bias = run.in<float>(ConvOp::bias),
                              .residual = run.in<void>(ConvOp::residual),
                              .y = run.out<void>(),
                              .y_pixel = y_pixel(k_, run)});
  }

 private:
  std::int64_t k_;
  WgmmaSplitKLaunch launch_;
};

}  // namespace lenslet::cuda

#pragma once
// Binding of wgmma_gemm's and wgmma_tf32's cluster split-K plans.

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
};

class BoundWgmmaSplitK final : public BoundKernel {
 public:
  BoundWgmmaSplitK(const ConvProblem& p, const SplitKLaunch& launch) : problem_(p), launch_(launch) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.walk = WindowWalk<>(p);
    call_.k_order = KOrder(p);
    call_.activation = DeviceActivation(p.activation);
    call_.pointwise = is_pointwise(p) ? 1 : 0;
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.k = narrow(aligned_channels(p.k, p.storage));
    call_.padding = static_cast<std::int16_t>(call_.k - p.k);
    call_.steps = narrow(launch.steps);
    call_.split_k_log2 = log2_of(launch.split_k);
    call_.tiles_n = narrow(launch.tiles_n);
  }

  void run(const KernelRun& run) const override {
    const SplitKLaunch& l = launch_;
    const SplitKTileShape& shape = shape_of(l.tile);
    WgmmaSplitK call = call_;
    call.windows = window_operand(problem_, run.in<void>(ConvOp::input), shape.m, l.width, l.element);
    call.filters = filter_operand(problem_, l.filters, run.blob, shape.n, l.width, l.element);
    call.bias = run.in<float>(ConvOp::bias);
    call.residual = run.in<void>(ConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(problem_.k, run));
    const auto shared_bytes = static_cast<std::size_t>(shared_of(shape).total);
    allow_shared_bytes(l.kernel, shared_bytes);
    launch_clusters(*run.cuda, l.kernel, static_cast<unsigned>(l.tiles_m * l.tiles_n * l.split_k),
                    static_cast<unsigned>(128 * (shape.m / 64) + 32), static_cast<unsigned>(l.split_k), shared_bytes,
                    call);
  }

 private:
  ConvProblem problem_;
  SplitKLaunch launch_;
  WgmmaSplitK call_;  // lacks what depends on addresses
};

}  // namespace lenslet::cuda

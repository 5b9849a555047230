// few_filters: 1x1 convolutions in NHWC with up to eight filters, such as the last layer of segmentation networks
// (64x256x256 -> 2). Bound by reading x; GEMM tiles of 32 filters and more would compute mostly padding (22.6 us there,
// memory 5.8).
//
// Neighbouring threads read neighbouring vectors of a pixel's channels: all 32 lanes share a pixel from 68 channels on,
// 1 to 16 below. Each lane multiplies what it read by every filter; a butterfly of shuffles then reduces in a fixed
// order and leaves each lane some results (reducing everything to all lanes: two filters 7.4 us for 4.6, eight 26.7 for
// 7.9). A warp has several pixels' loads in flight.

#include "ops/conv/cuda/few_filters.h"

#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {
namespace {

using few_filters_sizes::ahead, few_filters_sizes::block_threads;

/// w is [filters][C]; missing filters are zero.
struct FewFiltersCall : ConvCall<> {
  int pixels;   ///< N * P * Q
  int vectors;  ///< of four channels, in a pixel
  int lanes;    ///< threads of a pixel: a power of two up to 32
};

/// Pairs of lanes exchange halves of their `had` partial sums; each goes on with one half. Below one sum both keep it.
/// A template, so that register indices are constants.
template <int distance, int had, int all>
__device__ void exchange(float (&acc)[all], int lane, int lanes, int& kept) {
  if constexpr (distance < 32) {
    if (distance >= lanes) return;
    if constexpr (had == 1) {
      acc[0] += __shfl_xor_sync(0xFFFFFFFFU, acc[0], distance);
      exchange<2 * distance, 1>(acc, lane, lanes, kept);
    } else {
      constexpr int keeps = had / 2;
      const bool upper = (lane & distance) != 0;
      if (upper) kept += keeps;
#pragma unroll
      for (int i = 0; i < keeps; ++i) {
        const float own = upper ? acc[i + keeps] : acc[i], other = upper ? acc[i] : acc[i + keeps];
        acc[i] = own + __shfl_xor_sync(0xFFFFFFFFU, other, distance);
      }
      exchange<2 * distance, keeps>(acc, lane, lanes, kept);
    }
  }
}

template <int filters>
__global__ void __launch_bounds__(block_threads) few_filters(const __grid_constant__ FewFiltersCall call) {
  const int lane = static_cast<int>(threadIdx.x) % call.lanes;
  // Pixels of one iteration are adjacent, and so are a warp's iterations.
  const int of_warp = 32 / call.lanes;
  const int warp = static_cast<int>((blockIdx.x * block_threads + threadIdx.x) / 32);
  const int first = warp * ahead * of_warp + static_cast<int>(threadIdx.x) % 32 / call.lanes;
  wait_for_previous();
  let_next_start();
  // Iteration t, filter k at t * filters + k.
  constexpr int all = ahead * filters;
  float acc[all] = {};
  for (int vector = lane; vector < call.vectors; vector += call.lanes) {
    float4 x[ahead];
#pragma unroll
    for (int turn = 0; turn < ahead; ++turn) {
      // Past the end the last pixel is computed again, and dropped.
      const int pixel = min(first + turn * of_warp, call.pixels - 1);
      x[turn] = reinterpret_cast<const float4*>(call.x)[static_cast<std::int64_t>(pixel) * call.vectors + vector];
    }
#pragma unroll
    for (int k = 0; k < filters; ++k) {
      const float4 w = __ldg(reinterpret_cast<const float4*>(call.w) + k * call.vectors + vector);
#pragma unroll
      for (int turn = 0; turn < ahead; ++turn) {
        float& sum = acc[turn * filters + k];
        sum = fmaf(x[turn].x, w.x, sum);
        sum = fmaf(x[turn].y, w.y, sum);
        sum = fmaf(x[turn].z, w.z, sum);
        sum = fmaf(x[turn].w, w.w, sum);
      }
    }
  }
  int kept = 0;  // index of the first sum that this lane keeps
  exchange<1, all>(acc, lane, call.lanes, kept);
  // Lanes beyond the number of sums hold duplicates.
  const int has = max(all / call.lanes, 1);
  if (lane >= all) return;
#pragma unroll
  for (int i = 0; i < all; ++i) {
    if (i >= has) break;
    const int k = (kept + i) % filters, pixel = first + (kept + i) / filters * of_warp;
    if (k >= call.k || pixel >= call.pixels) continue;
    const std::int64_t at = static_cast<std::int64_t>(pixel) * call.y_pixel + k;
    float sum = acc[i] + (call.bias == nullptr ? 0 : call.bias[k]);
    if (call.residual != nullptr) sum += call.residual[at];
    call.y[at] = call.activation(sum);
  }
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_few_filters(const ConvProblem& p, int filters, int lanes, std::int64_t blocks) {
  const FewFiltersCall call{ConvCall<>(p), static_cast<int>(p.n * p.p * p.q), static_cast<int>(p.c / 4), lanes};
  const auto kernel = [&] {
    switch (filters) {
      case 1:
        return few_filters<1>;
      case 2:
        return few_filters<2>;
      case 4:
        return few_filters<4>;
      default:
        return few_filters<8>;
    }
  }();
  return std::make_unique<OneLaunch<FewFiltersCall>>(p, call, kernel, static_cast<unsigned>(blocks), block_threads);
}

}  // namespace lenslet::cuda

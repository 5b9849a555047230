#pragma once
// Products of wgmma_preactivated: as wgmma_gemm's, of act(scale[c] x + shift[c]). A consumer warp loads its 16 pixels
// of a k-block into registers, maps and rounds them there, and multiplies from registers: what a BatchNormalization and
// its activation would write is never in memory.

#include "base/cuda/half_mma.cuh"
#include "base/cuda/mma.cuh"
#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_preactivated.h"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// As multiply_tile(), of 64 pixels a warpgroup and rows of 128 bytes.
template <typename T, typename Block, int half_n>
__device__ inline void multiply_preactivated(const WgmmaGemm& g, const Block& block, StageRing& at, int first_row,
                                             unsigned lane, float (&d)[1][half_n]) {
  using Stage = typename Block::Stage;
  constexpr int parts = Stage::row_bytes / wgmma_k_bytes;  // of 16 channels
  static_assert(Stage::row_bytes == 128);
  // The blob's list (wgmma_preactivated.h): limits, then of channels 2i and 2i + 1 both scales and both shifts.
  const float* const list = g.bias + g.tiles_n * Block::shape.n;
  const PairClamp<T> clamp(__ldg(list), __ldg(list + 1));
  // Of the warp's rows first_row + 16 * (warp % 4) ...: the lane's one of ldmatrix.
  const int row = first_row + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + static_cast<int>(lane % 16),
            half = static_cast<int>(lane / 16);
  const float4* factors = reinterpret_cast<const float4*>(list + preactivated_limits) + lane % 4;
#pragma unroll
  for (float& sum : d[0]) sum = 0;
  float4 by[parts][2];  // of the lane's pairs of channels
  const auto load_factors = [&](int step) {
#pragma unroll
    for (int i = 0; i < parts * 2; ++i) by[i / 2][i % 2] = __ldg(factors + step * (Stage::channels / 2) + i * 4);
  };
  load_factors(0);
  StageRing next = at;
  // Of k-block `step`; the loads of the next one's factors take as long as the products of this.
  const auto load = [&](int step, std::uint32_t(&a)[parts][4]) {
    wait_parity(block.full(next.stage), next.phase);
    const unsigned char* const pixels = block.pixels(next.stage) + row * Stage::row_bytes;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      ldmatrix(a[i], pixels + ((i * 2 + half) ^ (row % 8)) * 16);  // TMA's swizzle
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 x = widened_pair<T>(a[i][j]);
        const float4& f = by[i][j / 2];
        a[i][j] = clamp(narrowed_pair<T>(fmaf(x.x, f.x, f.z), fmaf(x.y, f.y, f.w)));
      }
    }
    if (step + 1 < g.steps) load_factors(step + 1);
    next.next(Block::stages(g));
  };
  // Multiplies a k-block, and loads the one behind it meanwhile.
  const auto multiply = [&](int step, const std::uint32_t(&a)[parts][4], std::uint32_t(&behind)[parts][4]) {
    const std::uint64_t b = wgmma_operand<Stage::row_bytes>(block.filters(at.stage));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < parts; ++i) wgmma_of_registers<T, half_n * 2>(d[0], a[i], b + wgmma_behind(i * wgmma_k_bytes));
    wgmma_commit();
    if (step + 1 < g.steps) load(step + 1, behind);
    wgmma_wait<0>();
    wgmma_hold(d[0]);
    if (lane == 0) arrive(block.empty(at.stage));
    at.next(Block::stages(g));
  };
  std::uint32_t even[parts][4], odd[parts][4];
  load(0, even);
  for (int step = 0; step < g.steps; step += 2) {
    multiply(step, even, odd);
    if (step + 1 < g.steps) multiply(step + 1, odd, even);
  }
}

#endif

template <typename T, WgmmaTile tile, bool residual>
__global__ void __launch_bounds__(wgmma_threads(shape_of(tile).consumers), 1)
    wgmma_preactivated_kernel(const __grid_constant__ WgmmaGemm g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = WgmmaBlock<T, tile, wgmma_step, 1, residual>;
  const Block block{shared};
  run_wgmma_block<T, false>(g, block, [&](StageRing& at, int first_row, unsigned lane, auto& d) {
    multiply_preactivated<T>(g, block, at, first_row, lane, d);
  });
#endif
}

}  // namespace lenslet::cuda

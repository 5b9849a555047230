#include "ops/conv/cuda/batched_gemm.h"

#include <algorithm>
#include <cmath>

namespace lenslet::cuda {
namespace {

/// Warps on a multiprocessor that reach half of a tile's efficiency: with few of them nothing hides the latencies.
constexpr double half_speed_warps = 2;
/// From the start of a block to its first multiply-add, and from its last to the end.
constexpr double block_start_end_us = 0.8;

}  // namespace

double batched_gemm_us(const BatchedGemm& gemm, GemmTile tile, const MachineRates& rates) {
  const GemmTileShape& shape = shape_of(tile);
  const double rows = std::ceil(static_cast<double>(gemm.m) / shape.m);
  const double columns = std::ceil(static_cast<double>(gemm.n) / shape.n);
  // The multiprocessor with the most blocks decides.
  const double blocks = std::ceil(rows * columns * gemm.batches / rates.threads);
  const double together = std::min<double>(blocks, shape.blocks);
  const double warps = together * shape.threads / 32;
  const double flops = 2.0 * shape.m * shape.n * gemm.k * blocks;
  const double flops_per_us =
      rates.flops_per_us / rates.threads * shape.efficiency * warps / (warps + half_speed_warps);
  return flops / flops_per_us + block_start_end_us * std::ceil(blocks / together);
}

GemmTile choose_batched_gemm_tile(const BatchedGemm& gemm, const MachineRates& rates) {
  GemmTile best{};
  double best_us = batched_gemm_us(gemm, best, rates);
  for (std::size_t i = 1; i < gemm_tiles.size(); ++i) {
    const auto tile = static_cast<GemmTile>(i);
    const double us = batched_gemm_us(gemm, tile, rates);
    if (us >= best_us) continue;
    best = tile;
    best_us = us;
  }
  return best;
}

}  // namespace lenslet::cuda

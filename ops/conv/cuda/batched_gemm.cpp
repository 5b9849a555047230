#include "ops/conv/cuda/batched_gemm.h"

namespace lenslet::cuda {
namespace {

/// From a block's start to its first product, and its stores; the second for each m + n = 128 of the tile. Fitted to
/// Winograd's times on an H200: 0.4 of what implicit_gemm's blocks take, which work out addresses first.
constexpr double block_us = 0.3, tile_us = 0.5;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

double batched_gemm_us(const BatchedGemm& gemm, GemmTile tile, const MachineRates& rates) {
  const GemmTileShape& shape = shape_of(tile);
  const std::int64_t blocks = ceil_div(gemm.m, shape.m) * ceil_div(gemm.n, shape.n) * gemm.batches;
  return gemm_blocks_us(tile, blocks, ceil_div(gemm.k, gemm_step), 1, block_us + tile_us * (shape.m + shape.n) / 128.0,
                        rates);
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

#include "ops/conv/cuda/batched_gemm.h"

#include <algorithm>

namespace lenslet::cuda {
namespace {

/// From a block's start to its first product, and its stores; the second for each m + n = 128 of the tile. Fitted to
/// Winograd's times on an H200: 0.4 of what implicit_gemm's blocks take, which work out addresses first.
constexpr double block_us = 0.3, tile_us = 0.5;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

double batched_gemm_us(const BatchedGemm& gemm, GemmTile tile, const DeviceProfile& device) {
  const GemmTileShape& shape = shape_of(tile);
  const std::int64_t blocks = ceil_div(gemm.m, shape.m) * ceil_div(gemm.n, shape.n) * gemm.batches;
  return gemm_blocks_us(tile, blocks, ceil_div(gemm.k, gemm_step), 1, block_us + tile_us * (shape.m + shape.n) / 128.0,
                        device);
}

GemmTile choose_batched_gemm_tile(const BatchedGemm& gemm, const DeviceProfile& device) {
  return *std::min_element(AllGemmTiles::all.begin(), AllGemmTiles::all.end(), [&](GemmTile a, GemmTile b) {
    return batched_gemm_us(gemm, a, device) < batched_gemm_us(gemm, b, device);
  });
}

}  // namespace lenslet::cuda

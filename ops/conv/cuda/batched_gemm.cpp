#include "ops/conv/cuda/batched_gemm.h"

#include <algorithm>

#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

/// Time from a block's start to its first product, plus its stores; tile_us is for m + n = 128. Fitted to Winograd on
/// an H200: 0.4 of implicit_gemm's block, which also decodes addresses.
constexpr double block_us = 0.3, tile_us = 0.5;

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

// Batched fp32 products: a block computes a tile of one matrix (batched_gemm.cuh).

#include "ops/conv/cuda/batched_gemm.cuh"

namespace lenslet::cuda {
namespace {

/// Grid: row tiles, column tiles, matrices. Rows run fastest, so that blocks that need the same part of B, the filters,
/// which may come from memory, run together.
template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::shape.blocks) batched_gemm_kernel(const BatchedGemm g) {
  wait_for_previous();
  extern __shared__ float4 shared[];
  batched_gemm_block<Tile>(g, reinterpret_cast<float*>(shared), static_cast<int>(blockIdx.x),
                           static_cast<int>(blockIdx.y), blockIdx.z);
}

template <GemmTile tile>
void launch_tile(const Context& context, const BatchedGemm& gemm) {
  using Tile = TileTraits<tile>;
  constexpr auto kernel = batched_gemm_kernel<Tile>;
  allow_shared_bytes(kernel, Tile::shared_bytes);
  const dim3 grid(blocks_for(gemm.m, Tile::m), blocks_for(gemm.n, Tile::n), static_cast<unsigned>(gemm.batches));
  launch(context, kernel, grid, Tile::threads, Tile::shared_bytes, gemm);
}

}  // namespace

void batched_gemm(const Context& context, const BatchedGemm& gemm, GemmTile tile) {
  AllGemmTiles::with(tile, [&]<GemmTile known>() { launch_tile<known>(context, gemm); });
}

}  // namespace lenslet::cuda

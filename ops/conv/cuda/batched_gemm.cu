// Batched fp32 GEMM: a block computes a tile of one matrix; cp.async fills a ring of shared-memory stages ahead of the
// k-loop.

#include "ops/conv/cuda/batched_gemm.h"
#include "ops/conv/cuda/gemm_tile.cuh"

namespace lenslet::cuda {
namespace {

/// Source and destination of a thread's copies of one k-block. Rows of A and columns of B past the end repeat the last
/// one, so that copies need no predicate; their products are not stored.
template <typename Tile>
class StepLoader {
  static constexpr int a_row_vectors = gemm_step / 4, b_row_vectors = Tile::n / 4;
  static constexpr int a_rows = Tile::threads / a_row_vectors;  ///< rows that one pass of the block copies
  static constexpr int b_rows = Tile::threads / b_row_vectors;
  static constexpr int a_copies = Tile::m / a_rows, b_copies = gemm_step / b_rows;
  static_assert(a_rows * a_row_vectors == Tile::threads && a_copies * a_rows == Tile::m);
  static_assert(b_rows * b_row_vectors == Tile::threads && b_copies * b_rows == gemm_step);

 public:
  __device__ StepLoader(const BatchedGemm& g, int first_row, int first_column) : n_(g.n) {
    const int thread = static_cast<int>(threadIdx.x);
    const auto matrix = static_cast<long long>(blockIdx.z);
    const int a_row = thread / a_row_vectors, a_column = thread % a_row_vectors * 4;
    a_ = g.a + matrix * g.m * g.k + a_column;
#pragma unroll
    for (int i = 0; i < a_copies; ++i) a_from_[i] = min(first_row + a_row + i * a_rows, g.m - 1) * g.k;
    a_to_ = a_row * Tile::a_pitch + a_column;
    const int b_row = thread / b_row_vectors, b_column = thread % b_row_vectors * 4;
    b_ = g.b + matrix * g.k * g.n + b_row * g.n + min(first_column + b_column, g.n - 4);
    b_to_ = Tile::a_floats + b_row * Tile::n + b_column;
  }

  /// Starts the copies of the next k-block.
  __device__ void load(float* stage) {
#pragma unroll
    for (int i = 0; i < a_copies; ++i) copy_async<4>(stage + a_to_ + i * a_rows * Tile::a_pitch, a_ + a_from_[i], true);
#pragma unroll
    for (int i = 0; i < b_copies; ++i) copy_async<4>(stage + b_to_ + i * b_rows * Tile::n, b_ + i * b_rows * n_, true);
    a_ += gemm_step;
    b_ += gemm_step * n_;
  }

 private:
  const float* a_;
  const float* b_;
  int n_;
  int a_from_[a_copies];  ///< from a_ to the thread's rows
  int a_to_, b_to_;       ///< offsets in a stage
};

/// Grid: row tiles, column tiles, matrices. Rows run fastest, so that blocks that share a part of B (the filters,
/// perhaps still in memory) run together.
template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::shape.blocks) batched_gemm_kernel(const BatchedGemm g) {
  wait_for_previous();
  extern __shared__ float4 shared[];
  float* const stages = reinterpret_cast<float*>(shared);
  const int first_row = static_cast<int>(blockIdx.x) * Tile::m, first_column = static_cast<int>(blockIdx.y) * Tile::n;
  StepLoader<Tile> loader(g, first_row, first_column);
  const ThreadPlace<Tile> place;
  const int steps = g.k / gemm_step;
#pragma unroll
  for (int ahead = 0; ahead < Tile::stages - 1; ++ahead) {
    if (ahead < steps) loader.load(stages + ahead * Tile::stage_floats);
    commit_copies();
  }
  float sum[Tile::rows][Tile::cols] = {};
  multiply_steps<Tile>(
      stages, steps, place, [&](float* stage) { loader.load(stage); }, sum);

  float* const product = g.product + static_cast<long long>(blockIdx.z) * g.m * g.n;
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i) {
    const int row = first_row + place.row + 8 * i;
    if (row >= g.m) break;
#pragma unroll
    for (int j = 0; j < Tile::cols; j += 4) {
      const int column = first_column + place.col + 4 * j;
      if (column < g.n)
        *reinterpret_cast<float4*>(product + row * g.n + column) =
            make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
    }
  }
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

#pragma once
// Which tile a block makes, and what is done with a sum: shared by the kernels of gemm_cute and their host code.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/context.h"
#include "ops/core/activation.cuh"
#include "ops/gemm/cute/gemm_cute.h"

namespace lenslet::cuda {

/// Tiles of all products and slices, numbered so that those which run at once share what they read: within a product
/// `span` rows of tiles are gone through column by column. 132 tiles of 128x256 at once are then 8 x 16.5 of them,
/// which read (8 * 128 + 16.5 * 256) rows of A and B; row by row they would be (132 * 256 + 128) of a wide product.
struct CuteTiles {
  static constexpr int span = 8;
  int tiles_m = 1, tiles_n = 1, slices = 1;
  int steps = 1, steps_a_slice = 1;  ///< of tile_k elements of k
  unsigned count = 1;                ///< of all products

  struct Tile {
    int m, n;                    ///< in tiles
    int product, slice;          ///< of the batch; of the product
    int first_step, step_count;  ///< the slice's part of k
  };
  __device__ Tile operator[](unsigned index) const {
    const unsigned per_slice = static_cast<unsigned>(tiles_m) * static_cast<unsigned>(tiles_n);
    const int outer = static_cast<int>(index / per_slice);
    int rest = static_cast<int>(index % per_slice);
    const int first_m = rest / (span * tiles_n) * span, height = min(span, tiles_m - first_m);
    rest -= first_m * tiles_n;
    Tile tile{.m = first_m + rest % height,
              .n = rest / height,
              .product = outer / slices,
              .slice = outer % slices,
              .first_step = 0,
              .step_count = 0};
    tile.first_step = tile.slice * steps_a_slice;
    tile.step_count = min(steps_a_slice, steps - tile.first_step);
    return tile;
  }
};

/// What happens to finished sums; also how sums of a slice are kept: as a plain f32 y with a matrix a slice.
struct CuteEpilogue {
  enum class Type : std::uint8_t { f32, f16, bf16 };
  Type type = Type::f32;
  float alpha = 1, beta = 1;
  const float* c = nullptr;
  std::int64_t c_row = 0, c_col = 0;
  const void* residual = nullptr;
  DeviceActivation activation;
  void* y = nullptr;
  int m = 0, n = 0;
  bool vectors = false;  ///< n is a multiple of 4, and y and the residual lie on 4 elements

  /// Four sums, of y[matrix][i][j] and the three behind it in the row, as far as they are y's.
  __device__ void store(float4 sums, std::int64_t matrix, int i, int j) const;
};

CuteTiles cute_tiles(const CuteProblem& problem, const CutePlan& plan);
CuteEpilogue cute_epilogue(const CuteCall& call);
/// What a kernel of several slices writes instead: sums to call.workspace.
CuteEpilogue cute_slice_sums(const CuteCall& call);

// One a source file. Each queues the products; with one slice they are done then.
void gemm_cute_wgmma(const Context& context, const CuteCall& call, const CutePlan& plan);
void gemm_cute_mma(const Context& context, const CuteCall& call, const CutePlan& plan);
/// The sums of `slices` slices in their order, then the epilogue.
void gemm_cute_add_slices(const Context& context, const CuteCall& call, std::int64_t slices);

}  // namespace lenslet::cuda

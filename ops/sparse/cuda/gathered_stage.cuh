#pragma once
// The shared memory layout of a gathered_tiles block.

#include <cuda_runtime.h>

#include "ops/sparse/cuda/device_rulebook.cuh"
#include "ops/sparse/cuda/gathered_plan.h"

namespace lenslet::cuda {

/// Offset of 16-byte chunk `chunk` in row `row` of a unit: eight rows read at once lie in different banks.
__device__ inline int stage_offset(int row, int chunk) { return row * unit_bytes + ((chunk ^ (row >> 1 & 3)) << 4); }

/// Offset in floats of four accumulators, from column 4 * `four` on, of row `row`. Rows are a batch's, usually
/// adjacent: two of them by 64 bytes, or four by 32, lie in different banks.
template <int columns>
__device__ inline int acc_offset(int row, int four) {
  const int moved = columns == 16 ? four ^ (row & 2) : four ^ ((row & 1) << 2 | (row & 2));
  return row * columns + moved * 4;
}

/// A warp's position in a block's tile.
template <int columns>
struct WarpPlace {
  static constexpr int along_m = warps_m(columns), width = columns == 16 ? 16 : 32;  ///< filters of a warp
  int lane, m, first_column;

  __device__ WarpPlace() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    lane = static_cast<int>(threadIdx.x) % 32;
    m = warp % along_m;
    first_column = warp / along_m * width;
  }
  /// The number of this warp's pieces when a batch's rows are dealt to warps in pieces of `piece`.
  __device__ int pieces(int rows, int piece) const {
    const int left = rows - m * piece;
    return left <= 0 ? 0 : (left + piece * along_m - 1) / (piece * along_m);
  }
};

/// The outputs of a block.
struct BlockRows {
  int first, count;
  int* fault;

  /// The row of an output in the block, or -1, which is reported as a fault.
  __device__ int row_of(int output) const {
    const unsigned row = static_cast<unsigned>(output) - static_cast<unsigned>(first);
    if (row < static_cast<unsigned>(count)) return static_cast<int>(row);
    report(fault);
    return -1;
  }
};

/// Calls f.operator()<n>() with n = count, in [1, most].
template <int most, typename F>
__device__ inline void with_count(int count, const F& f) {
  if constexpr (most > 1) {
    if (count < most) return with_count<most - 1>(count, f);
  }
  f.template operator()<most>();
}

}  // namespace lenslet::cuda

#pragma once
// Sizes of grouped_mma, and its launch. Plain C++.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

namespace grouped_mma_sizes {

inline constexpr int tile_p = 8, tile_q = 16, warps = 8, block_threads = 32 * warps;

/// Blocks of channels of a thread block; half as many where a stride makes the halo tile four times as large.
constexpr int channel_blocks_of(std::int64_t eights, std::int64_t stride) {
  return (eights == 1 ? 8 : 4) / (stride == 1 ? 1 : 2);
}

/// Eights of channels that hold whole groups.
inline std::int64_t eights_of(const ConvProblem& p) { return std::lcm(p.group_c(), std::int64_t{8}) / 8; }
inline std::int64_t step_count(const ConvProblem& p) {
  const std::int64_t eights = eights_of(p);
  return eights == 1 ? (p.s + 1) / 2 : p.s * ((eights + 1) / 2);
}
/// Filter rows that a kernel may multiply at once.
inline int rows_together(const ConvProblem& p) { return p.r == 3 && p.dilation_h == 1 && p.stride_h <= 2 ? 3 : 1; }
inline std::int64_t chunk_of(const ConvProblem& p, int rows) {
  return 8 * eights_of(p) * channel_blocks_of(eights_of(p), rows == 1 ? 2 : p.stride_h);
}
inline std::int64_t blocks_over(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }
inline double block_count(const ConvProblem& p, int rows) {
  return static_cast<double>(p.n) * static_cast<double>(blocks_over(p.p, tile_p) * blocks_over(p.q, tile_q)) *
         static_cast<double>(blocks_over(p.c, chunk_of(p, rows)));
}

/// The halo tile; images narrower than a tile need fewer columns (9 of 18 for 7x7).
struct HaloTile {
  std::int64_t rows, columns, pixel_vectors;
  /// Pixels past the last one that output columns outside of the image read; their values do not matter.
  std::int64_t beyond;
  HaloTile(const ConvProblem& p, int rows_at_once)
      : rows((tile_p - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1),
        columns((std::min<std::int64_t>(tile_q, p.q) - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1),
        pixel_vectors(chunk_of(p, rows_at_once) / 8 + 1),
        beyond((tile_q - std::min<std::int64_t>(tile_q, p.q)) * p.stride_w) {}
  /// The output tile reuses this memory.
  std::int64_t bytes() const {
    return 16 * pixel_vectors * std::max<std::int64_t>(rows * columns + beyond, tile_p * tile_q);
  }
};

}  // namespace grouped_mma_sizes

/// `rows` of taps multiplied at once.
std::unique_ptr<const BoundKernel> bind_grouped_mma(const ConvProblem& problem, int rows);

}  // namespace lenslet::cuda

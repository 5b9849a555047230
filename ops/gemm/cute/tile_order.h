#pragma once
// Which tile comes when, and what a block of gemm_cute_sm90.cuh holds in shared memory. Plain C++, so that tests reach
// it without a device.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "ops/gemm/cute/gemm_cute.h"

namespace lenslet::cuda {

/// Tiles of all products and slices, numbered so that those which run at once share what they read: within a product
/// `span` rows of tiles are gone through column by column. 132 tiles of 128x256 at once are, with a span of 16, 16 x
/// 8.25 of them, which read (16 * 128 + 8.25 * 256) rows of A and B; row by row they would be (132 * 256 + 128) of a
/// wide product. Where the blocks of a cluster share an operand a "tile" is what the cluster makes.
struct CuteTiles {
  int tiles_m = 1, tiles_n = 1, slices = 1;
  int steps = 1, steps_a_slice = 1;  ///< of tile_k elements of k
  int span = 8;
  unsigned count = 1;  ///< of all products

  struct Tile {
    int m, n;                    ///< in tiles
    int product, slice;          ///< of the batch; of the product
    int first_step, step_count;  ///< the slice's part of k
  };
  LENSLET_HOST_DEVICE Tile operator[](unsigned index) const {
    const unsigned per_slice = static_cast<unsigned>(tiles_m) * static_cast<unsigned>(tiles_n);
    const int outer = static_cast<int>(index / per_slice);
    int rest = static_cast<int>(index % per_slice);
    const int first_m = rest / (span * tiles_n) * span, left = tiles_m - first_m, height = left < span ? left : span;
    rest -= first_m * tiles_n;
    Tile tile{};
    tile.m = first_m + rest % height;
    tile.n = rest / height;
    tile.product = outer / slices;
    tile.slice = outer % slices;
    tile.first_step = tile.slice * steps_a_slice;
    const int behind = steps - tile.first_step;
    tile.step_count = behind < steps_a_slice ? behind : steps_a_slice;
    return tile;
  }
  /// The same for one of `blocks` that share a tile's steps among them, as evenly as can be.
  LENSLET_HOST_DEVICE Tile part(unsigned index, int block, int blocks) const {
    Tile tile = (*this)[index];
    tile.slice = block;
    tile.first_step = steps * block / blocks;
    tile.step_count = steps * (block + 1) / blocks - tile.first_step;
    return tile;
  }
};

/// Of a plan whose slices are the blocks of a cluster the slices do not count here: all of a cluster's blocks have the
/// same tile.
CuteTiles cute_tiles(const CuteProblem& problem, const CutePlan& plan);

/// Of which operand does each block of a cluster bring a part to all of them? Of the one with more rows in a tile: the
/// blocks then have the same rows of A and tiles side by side, or the same of B and tiles below each other.
constexpr bool cute_shares_a(int tile_m, int tile_n) { return tile_m > tile_n; }

/// Are there kernels for such a tile of wgmma in which two blocks share an operand? Boxes of B as [k,n] are 64 columns
/// wide; and where there are only 64 rows there is little to share.
constexpr bool cute_shares(int tile_m, int tile_n, bool b_transposed) {
  return tile_m > 64 && (b_transposed || tile_n > 64);
}
/// And such in which the blocks of a cluster join slices? Small tiles, for what has few.
constexpr bool cute_joins(int tile_m, int tile_n) { return tile_m * tile_n <= 128 * 128; }

/// Sums leave in parts of 16 rows x 128 bytes, or 64 where a warp has no more columns, through so many `buffers` of
/// each of 8 warps that multiply.
inline constexpr int cute_part_rows = 16, cute_part_bytes = cute_part_rows * 128;
inline constexpr int cute_consumers = 2, cute_consumer_warps = cute_consumers * 4;
/// Of a part, where a warp has `columns`.
constexpr int cute_part_columns(int columns, std::size_t element_bytes) {
  return std::min(columns, 128 / static_cast<int>(element_bytes));
}
/// What joins slices is laid out in rows of floats, so many more than a tile has: pairs that a half-warp stores, 8
/// bytes a thread in 4 rows, and fours in a row then lie in different banks.
inline constexpr int cute_join_gap = 8;

/// The shared memory of a block, 227 KiB at most: stages of both operands, 128 bytes a row; buffers; mbarriers.
struct CuteShared {
  int stage = 0;  ///< bytes of both operands
  int stages = 0, buffers = 0;
  int total = 0;
  int blocks = 1;  ///< that a multiprocessor holds
};
/// Small tiles of a cluster that joins slices are for what reads much and multiplies little: while one of two blocks
/// begins or ends, the other reads. And twice as many clusters find room.
constexpr CuteShared cute_shared(int tile_m, int tile_n, bool joins) {
  constexpr int least_stages = 4, most_stages = 8;
  CuteShared shared;
  shared.blocks = joins && tile_m * tile_n <= 64 * 128 ? 2 : 1;
  const int all = (shared.blocks == 1 ? 224 : 112) << 10;
  shared.stage = (tile_m + tile_n) * 128;
  // More buffers keep more bytes on their way out where sums are short. Large tiles are for long ones.
  const auto buffers_bytes = [](int buffers) { return cute_consumer_warps * buffers * cute_part_bytes; };
  shared.buffers = joins ? 0 : least_stages * shared.stage + buffers_bytes(4) <= all ? 4 : 2;
  shared.stages = std::min((all - buffers_bytes(shared.buffers)) / shared.stage, most_stages);
  shared.total = shared.stages * shared.stage + buffers_bytes(shared.buffers) + 2 * shared.stages * 8;
  return shared;
}

}  // namespace lenslet::cuda

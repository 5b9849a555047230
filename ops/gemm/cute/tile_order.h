#pragma once
// The order of tiles and the shared memory layout of gemm_cute_sm90.cuh. Plain C++, testable without a device.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "ops/gemm/cute/gemm_cute.h"

namespace lenslet::cuda {

/// Tiles of all products and splits, in an order in which concurrent tiles share operands: within a product, `span`
/// rows of tiles are traversed column by column. With a span of 16, 132 concurrent tiles of 128x256 cover 16 x 8.25 and
/// read (16 * 128 + 8.25 * 256) rows of A and B; row by row it would be (132 * 256 + 128). If a cluster shares an
/// operand, a "tile" here is the cluster's.
struct CuteTiles {
  int tiles_m = 1, tiles_n = 1, split_k = 1;
  int steps = 1, steps_per_split = 1;  ///< of tile_k elements of k
  int span = 8;
  unsigned count = 1;  ///< of all products

  struct Tile {
    int m, n;                    ///< in tiles
    int product, split;          ///< of the batch; of the product
    int first_step, step_count;  ///< the slice's part of k
  };
  LENSLET_HOST_DEVICE Tile operator[](unsigned index) const {
    const unsigned per_split = static_cast<unsigned>(tiles_m) * static_cast<unsigned>(tiles_n);
    const int outer = static_cast<int>(index / per_split);
    int rest = static_cast<int>(index % per_split);
    const int first_m = rest / (span * tiles_n) * span, left = tiles_m - first_m, height = left < span ? left : span;
    rest -= first_m * tiles_n;
    Tile tile{};
    tile.m = first_m + rest % height;
    tile.n = rest / height;
    tile.product = outer / split_k;
    tile.split = outer % split_k;
    tile.first_step = tile.split * steps_per_split;
    const int behind = steps - tile.first_step;
    tile.step_count = behind < steps_per_split ? behind : steps_per_split;
    return tile;
  }
  /// The part of a tile's k-blocks for one of `blocks` splits, as even as possible.
  LENSLET_HOST_DEVICE Tile part(unsigned index, int block, int blocks) const {
    Tile tile = (*this)[index];
    tile.split = block;
    tile.first_step = steps * block / blocks;
    tile.step_count = steps * (block + 1) / blocks - tile.first_step;
    return tile;
  }
};

/// For split-K over a cluster, splits do not count: all blocks of a cluster have the same tile.
CuteTiles cute_tiles(const CuteProblem& problem, const CutePlan& plan);

/// Which operand a cluster multicasts: the one with more rows in a tile. The blocks then share rows of A with tiles
/// side by side, or rows of B with tiles stacked.
constexpr bool cute_shares_a(int tile_m, int tile_n) { return tile_m > tile_n; }

/// True if such wgmma tiles have kernels with operand sharing. Boxes of B as [k,n] are 64 columns wide, and 64 rows are
/// too few to share.
constexpr bool cute_shares(int tile_m, int tile_n, bool b_transposed) {
  return tile_m > 64 && (b_transposed || tile_n > 64);
}
/// True if such tiles have kernels with split-K over a cluster: small ones.
constexpr bool cute_joins(int tile_m, int tile_n) { return tile_m * tile_n <= 128 * 128; }

/// The epilogue stores parts of 16 rows x 128 bytes, or 64 for warps with fewer columns, through `buffers` per warp of
/// 8 consumer warps.
inline constexpr int cute_part_rows = 16, cute_part_bytes = cute_part_rows * 128;
inline constexpr int cute_consumers = 2, cute_consumer_warps = cute_consumers * 4;
/// Columns of a part for a warp with `columns`.
constexpr int cute_part_columns(int columns, std::size_t element_bytes) {
  return std::min(columns, 128 / static_cast<int>(element_bytes));
}
/// Padding of the rows of floats that are added across a cluster: makes pairs that a half-warp stores (8 bytes per
/// thread, 4 rows) and fours of a row free of bank conflicts.
inline constexpr int cute_join_gap = 8;

/// A block's shared memory, at most 227 KiB: stages of both operands, 128 bytes per row; staging buffers; mbarriers.
struct CuteShared {
  int stage = 0;  ///< bytes of both operands
  int stages = 0, buffers = 0;
  int total = 0;
  int blocks = 1;  ///< that a multiprocessor holds
};
/// Small split-K tiles read much and multiply little: with two blocks per SM one reads while the other begins or ends,
/// and twice as many clusters fit.
constexpr CuteShared cute_shared(int tile_m, int tile_n, bool joins) {
  constexpr int least_stages = 4, most_stages = 8;
  CuteShared shared;
  shared.blocks = joins && tile_m * tile_n <= 64 * 128 ? 2 : 1;
  const int all = (shared.blocks == 1 ? 224 : 112) << 10;
  shared.stage = (tile_m + tile_n) * 128;
  // More buffers keep more stores in flight for short k. Large tiles are for long k.
  const auto buffers_bytes = [](int buffers) { return cute_consumer_warps * buffers * cute_part_bytes; };
  shared.buffers = joins ? 0 : least_stages * shared.stage + buffers_bytes(4) <= all ? 4 : 2;
  shared.stages = std::min((all - buffers_bytes(shared.buffers)) / shared.stage, most_stages);
  shared.total = shared.stages * shared.stage + buffers_bytes(shared.buffers) + 2 * shared.stages * 8;
  return shared;
}

}  // namespace lenslet::cuda

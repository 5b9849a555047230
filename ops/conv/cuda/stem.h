#pragma once
// Sizes of stem, and its launch. Plain C++.

#include <cstdint>
#include <memory>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

namespace stem_sizes {

inline constexpr int tile_p = 8, tile_q = 16, warps = 4, block_threads = 32 * warps;
inline constexpr int warp_rows = tile_p / warps;  ///< output rows of a warp: 16 pixels each
inline constexpr int step_words = 8;              ///< words of k of one instruction

/// Elements of a 32-bit word.
template <typename T>
constexpr int word_elems = 4 / static_cast<int>(sizeof(T));

/// Filters of a pixel that a thread stores: 16 bytes.
template <typename T>
constexpr int thread_filters = 16 / static_cast<int>(sizeof(T));
/// The filter at column `place` of operand B. Accumulator columns 8*j + 2*t and the next belong to thread t of four; in
/// this order they are thread_filters adjacent filters.
template <typename T>
constexpr std::int64_t filter_at(std::int64_t place) {
  constexpr std::int64_t each = thread_filters<T>, group = 4 * each;
  const std::int64_t in_group = place % group;
  return place - in_group + in_group % 8 / 2 * each + in_group / 8 * 2 + in_group % 2;
}

/// Columns and rows of y of a tile.
inline constexpr int pooled_columns = tile_q / 2 - 1, pooled_rows = tile_p / 2;

inline std::int64_t word_elems_of(const ConvProblem& p) { return p.storage == DType::f32 ? 1 : 2; }
inline std::int64_t row_words(const ConvProblem& p) { return ceil_div(p.s * p.c, word_elems_of(p)); }
/// K-blocks, rounded up to pairs.
inline std::int64_t step_count(const ConvProblem& p) {
  return (p.r * row_words(p) + 2 * step_words - 1) / (2 * step_words) * 2;
}

/// The halo tile's size.
struct HaloTile {
  std::int64_t rows, columns, word, pitch, copies;  ///< word: elements of one
  explicit HaloTile(const ConvProblem& p)
      : rows((tile_p - 1) * p.stride_h + p.r),
        columns((tile_q - 1) * p.stride_w + p.s),
        word(word_elems_of(p)),
        pitch(word == 1 ? columns * p.c : (columns * p.c + 2) / 2 * 2),
        copies(word == 1 ? 1 : p.stride_w * p.c % 2 + 1) {
    if (!p.max_pool) return;
    rows += p.stride_h;                                        // the row of outputs above the tile
    pitch = (pitch + 4 * word - 1) / (4 * word) * (4 * word);  // rows are whole 16 bytes
  }
  std::int64_t words() const { return rows * pitch / word; }
};

inline std::int64_t shared_bytes(const ConvProblem& p, std::int64_t filters) {
  const HaloTile halo_tile(p);
  std::int64_t bytes = step_count(p) * (filters * 32 + 4 * step_words) + 4 * step_words + 4 * filters +
                       4 * halo_tile.copies * halo_tile.words();
  if (!p.max_pool) return bytes;
  bytes += 16 * p.c * halo_tile.rows;  // the table of lines
  // Rows that warps pass to the next: words of a lane's filters of a pixel.
  return (bytes + 15) / 16 * 16 + (warps + 1) * 128 * filters / 4 / halo_tile.word;
}

inline std::int64_t tile_count(const ConvProblem& p) { return p.n * ceil_div(p.p, tile_p) * ceil_div(p.q, tile_q); }

/// Strips of columns of y, and (by fours) rows that the walks down a strip split.
inline std::int64_t strip_count(const ConvProblem& p) { return ceil_div(p.stored_q(), pooled_columns); }
inline std::int64_t walk_tiles(const ConvProblem& p) { return ceil_div(p.stored_p(), pooled_rows); }

/// Configuration: filters of a block, resident blocks, the instruction; with max pooling, tiles of a walk.
struct StemPlan {
  std::int64_t filters, resident;
  bool wgmma;
  std::int64_t tiles = 0;
};

}  // namespace stem_sizes

std::unique_ptr<const BoundKernel> bind_stem(const ConvProblem& problem, const stem_sizes::StemPlan& plan,
                                             int multiprocessors);

}  // namespace lenslet::cuda

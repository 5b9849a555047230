#include "ops/movement/transpose_cuda.h"

#include <cassert>
#include <cstdint>
#include <type_traits>

#include "base/cuda/launch.h"
#include "base/cuda/vector_bits.cuh"
#include "base/dtypes.h"

namespace lenslet::cuda {
namespace {

constexpr int max_outer = StridedLoops::max_rank - 2;

/// A Transposition as kernel arguments.
struct Tiles {
  int rows, columns;
  std::int64_t from_stride, to_stride;
  std::uint32_t row_tiles, column_tiles;
  int rank;  ///< of the outer loops
  std::uint32_t dims[max_outer];
  std::int64_t from_strides[max_outer], to_strides[max_outer];
};

/// The block's tile: first row and column, and the matrix's offset in both tensors.
struct Place {
  int row, column;
  std::int64_t from, to;
};

__device__ Place place_of_block(const Tiles& tiles, int tile_rows, int tile_columns) {
  std::uint32_t rest = blockIdx.x;
  Place place{};
  place.row = static_cast<int>(rest % tiles.row_tiles) * tile_rows;
  rest /= tiles.row_tiles;
  place.column = static_cast<int>(rest % tiles.column_tiles) * tile_columns;
  rest /= tiles.column_tiles;
  for (int i = tiles.rank - 1; i >= 0; --i) {
    const std::uint32_t index = rest % tiles.dims[i];
    rest /= tiles.dims[i];
    place.from += index * tiles.from_strides[i];
    place.to += index * tiles.to_strides[i];
  }
  return place;
}

/// Shared memory holds words of 32 bits (64 for 8-byte elements): small elements of adjacent rows are packed into a
/// word, so that the rest is the same for every size.
template <typename T>
using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Dimensions of a tile with 16-byte loads and stores, four of each per thread. 8 lanes side by side and 4 below each
// other make a warp's accesses whole 128-byte lines on both sides. The tile is `row_lines` such lines of rows by
// `column_lines` lines of columns.
template <typename T, int row_lines, int column_lines>
struct VectorTile {
  static constexpr int elem_bytes = sizeof(T);
  static constexpr int per_vector = 16 / elem_bytes;
  static constexpr int rows = row_lines * 8 * per_vector, columns = column_lines * 8 * per_vector;
  static constexpr int rows_per_word = elem_bytes < 4 ? 4 / elem_bytes : 1;
  static constexpr int words_per_vector = 16 / static_cast<int>(sizeof(Word<T>));
  static constexpr int threads = rows * columns * elem_bytes / 64;
  static constexpr int warps = threads / 32;
  // No bank conflicts. On loads, lane (x, y) stores to bank per_vector*x + pitch*y: with an odd pitch, and every 32
  // columns shifted by another 4, these differ for 4, 8 and 16 elements per vector. On stores they read bank
  // words_per_vector*pitch*x + y: the same. (64-bit words: by half-warps, in units of two banks.) Any odd pitch works,
  // so does any number of lines.
  static constexpr int pitch = columns + 4 * (columns / 32 - 1) + 1;
  static __device__ constexpr int at(int word_row, int column) { return word_row * pitch + column + column / 32 * 4; }
};

/// For rows, columns, strides and addresses in whole 16-byte vectors.
template <typename T, int row_lines, int column_lines>
__global__ void __launch_bounds__(VectorTile<T, row_lines, column_lines>::threads)
    transpose_vectors(const T* from, T* to, const __grid_constant__ Tiles tiles) {
  wait_for_previous();
  using Tile = VectorTile<T, row_lines, column_lines>;
  __shared__ Word<T> tile[Tile::rows / Tile::rows_per_word * Tile::pitch];
  const Place place = place_of_block(tiles, Tile::rows, Tile::columns);
  const int x = static_cast<int>(threadIdx.x) % 8, y = static_cast<int>(threadIdx.x) / 8 % 4;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  constexpr int groups = 4 / Tile::rows_per_word;
  uint4 loaded[groups][Tile::rows_per_word];
#pragma unroll
  for (int i = 0; i < groups; ++i) {
    const int unit = warp + i * Tile::warps;
    const int word_row = unit / column_lines * 4 + y;
    const int column = place.column + (unit % column_lines * 8 + x) * Tile::per_vector;
#pragma unroll
    for (int r = 0; r < Tile::rows_per_word; ++r) {
      const int row = place.row + word_row * Tile::rows_per_word + r;
      loaded[i][r] = make_uint4(0, 0, 0, 0);
      if (row < tiles.rows && column < tiles.columns)
        loaded[i][r] = *reinterpret_cast<const uint4*>(from + place.from + row * tiles.from_stride + column);
    }
  }
#pragma unroll
  for (int i = 0; i < groups; ++i) {
    const int unit = warp + i * Tile::warps;
    const int word_row = unit / column_lines * 4 + y;
    const int column = (unit % column_lines * 8 + x) * Tile::per_vector;
#pragma unroll
    for (int k = 0; k < Tile::per_vector; ++k) {
      Word<T> word = 0;
#pragma unroll
      for (int r = 0; r < Tile::rows_per_word; ++r)
        word |= static_cast<Word<T>>(element<T>(loaded[i][r], k)) << 8 * Tile::elem_bytes * r;
      tile[Tile::at(word_row, column + k)] = word;
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int unit = warp + i * Tile::warps;
    const int vector = unit % row_lines * 8 + x;
    const int column = unit / row_lines * 4 + y;
    const int row = place.row + vector * Tile::per_vector;
    if (row < tiles.rows && place.column + column < tiles.columns)
      *reinterpret_cast<uint4*>(to + place.to + (place.column + column) * tiles.to_stride + row) =
          vector_of<Word<T>>([&](int w) { return tile[Tile::at(vector * Tile::words_per_vector + w, column)]; });
  }
}

constexpr int element_side = 64;
constexpr int element_threads = 256;

/// For any rows, columns, strides and addresses: single-element accesses. One element per word, so that with an odd
/// pitch both rows and columns of the tile lie in 32 different banks.
template <typename T>
__global__ void __launch_bounds__(element_threads)
    transpose_elements(const T* from, T* to, const __grid_constant__ Tiles tiles) {
  wait_for_previous();
  constexpr int pitch = element_side + 1, warps = element_threads / 32, steps = element_side / warps;
  __shared__ Word<T> tile[element_side * pitch];
  const Place place = place_of_block(tiles, element_side, element_side);
  const int x = static_cast<int>(threadIdx.x) % 32, y = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int half = 0; half < element_side; half += 32) {
    const int column = place.column + half + x;
    T loaded[steps];
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int row = place.row + y + i * warps;
      loaded[i] = 0;
      if (row < tiles.rows && column < tiles.columns) loaded[i] = from[place.from + row * tiles.from_stride + column];
    }
#pragma unroll
    for (int i = 0; i < steps; ++i) tile[(y + i * warps) * pitch + half + x] = loaded[i];
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < element_side; half += 32) {
    const int row = place.row + half + x;
#pragma unroll
    for (int i = 0; i < steps; ++i) {
      const int column = y + i * warps;
      if (row < tiles.rows && place.column + column < tiles.columns)
        to[place.to + (place.column + column) * tiles.to_stride + row] =
            static_cast<T>(tile[(half + x) * pitch + column]);
    }
  }
}

bool whole_vectors(const Transposition& t, std::size_t element_bytes, const void* from, const void* to) {
  std::int64_t all = t.rows | t.columns | t.from_stride | t.to_stride;
  for (int i = 0; i < t.outer.rank(); ++i) all |= t.outer[i].from | t.outer[i].to;
  const auto addresses = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  return (static_cast<std::uint64_t>(all) * element_bytes | addresses) % 16 == 0;
}

/// The kernel with tiles of tile_rows x tile_columns, and the number of tiles for `t`.
template <typename T>
struct Tiling {
  void (*kernel)(const T*, T*, Tiles);
  int threads, tile_rows, tile_columns;
  std::int64_t blocks;
};

template <typename T>
Tiling<T> tiling_by_elements(const Transposition& t) {
  return {transpose_elements<T>, element_threads, element_side, element_side,
          std::int64_t{blocks_for(t.rows, element_side)} * blocks_for(t.columns, element_side) * t.outer.count()};
}

template <typename T, int row_lines, int column_lines>
Tiling<T> tiling_by_lines(const Transposition& t) {
  using Tile = VectorTile<T, row_lines, column_lines>;
  return {transpose_vectors<T, row_lines, column_lines>, Tile::threads, Tile::rows, Tile::columns,
          std::int64_t{blocks_for(t.rows, Tile::rows)} * blocks_for(t.columns, Tile::columns) * t.outer.count()};
}

template <typename T>
Tiling<T> tiling_by_vectors(const Context& context, const Transposition& t) {
  if constexpr (sizeof(T) == 8) {
    return tiling_by_lines<T, 2, 2>(t);
  } else if constexpr (sizeof(T) == 4) {
    // All have equal area: the fewest tiles waste least. 24 channels leave 5/8 of a 64 x 64 tile empty.
    Tiling<T> best = tiling_by_lines<T, 2, 2>(t);
    for (const Tiling<T>& other : {tiling_by_lines<T, 1, 4>(t), tiling_by_lines<T, 4, 1>(t)})
      if (other.blocks < best.blocks) best = other;
    return best.blocks < context.multiprocessors ? tiling_by_lines<T, 1, 1>(t) : best;
  } else {
    return tiling_by_lines<T, 1, 1>(t);
  }
}

template <typename T>
void launch_tiles(const Context& context, const Transposition& t, const T* from, T* to) {
  const Tiling<T> tiling =
      whole_vectors(t, sizeof(T), from, to) ? tiling_by_vectors<T>(context, t) : tiling_by_elements<T>(t);
  Tiles tiles{};
  tiles.rows = static_cast<int>(t.rows);
  tiles.columns = static_cast<int>(t.columns);
  tiles.from_stride = t.from_stride;
  tiles.to_stride = t.to_stride;
  tiles.row_tiles = blocks_for(t.rows, tiling.tile_rows);
  tiles.column_tiles = blocks_for(t.columns, tiling.tile_columns);
  tiles.rank = t.outer.rank();
  for (int i = 0; i < tiles.rank; ++i) {
    tiles.dims[i] = static_cast<std::uint32_t>(t.outer[i].dim);
    tiles.from_strides[i] = t.outer[i].from;
    tiles.to_strides[i] = t.outer[i].to;
  }
  assert(tiling.blocks < std::int64_t{1} << 31);
  launch(context, tiling.kernel, dim3(static_cast<unsigned>(tiling.blocks)), tiling.threads, 0, from, to, tiles);
}

}  // namespace

void transpose(const Context& context, std::size_t element_bytes, const Transposition& transposition, const void* from,
               void* to) {
  if (transposition.rows == 0 || transposition.columns == 0 || transposition.outer.count() == 0) return;
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    launch_tiles(context, transposition, static_cast<const T*>(from), static_cast<T*>(to));
  });
}

}  // namespace lenslet::cuda

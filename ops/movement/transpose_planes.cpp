#include "ops/movement/transpose_planes.h"

#include <algorithm>

#include "base/dtypes.h"
#include "base/simd/targets.h"
#include "ops/core/transpose_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/movement/transpose_planes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// One matrix of a batch: element (i, j) at from[i * columns + j] and to[j * rows + i].
template <typename T>
struct Planes {
  const T* from;
  T* to;
  std::int64_t rows, columns;
};

// Three rows (an image's channels) to triples.
template <typename T>
void interleave3(const Planes<T>& m, std::int64_t j0, std::int64_t j1) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = j0;
  for (; j + lanes <= j1; j += lanes)
    hn::StoreInterleaved3(hn::LoadU(d, m.from + j), hn::LoadU(d, m.from + m.columns + j),
                          hn::LoadU(d, m.from + 2 * m.columns + j), d, m.to + 3 * j);
  transpose_block(sizeof(T), m.from + j, m.columns, m.to + 3 * j, 3, 3, j1 - j);
}

// The reverse, of rows [i0, i1).
template <typename T>
void deinterleave3(const Planes<T>& m, std::int64_t i0, std::int64_t i1) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = i0;
  for (; i + lanes <= i1; i += lanes) {
    hn::Vec<decltype(d)> a, b, c;
    hn::LoadInterleaved3(d, m.from + 3 * i, a, b, c);
    hn::StoreU(a, d, m.to + i);
    hn::StoreU(b, d, m.to + m.rows + i);
    hn::StoreU(c, d, m.to + 2 * m.rows + i);
  }
  transpose_block(sizeof(T), m.from + 3 * i, 3, m.to + i, m.rows, i1 - i, 3);
}

template <typename T>
void transpose_of(const T* from, T* to, std::int64_t batch, std::int64_t rows, std::int64_t columns, ThreadPool& pool) {
  // A block's lines stay in L1 between read and write. With few rows blocks are long, so that writes are long, too.
  constexpr std::int64_t block_size = std::max<std::int64_t>(32, 64 / sizeof(T));
  const std::int64_t block_rows = std::min(rows, block_size);
  const std::int64_t block_columns = rows <= 8 ? 2048 : block_size;
  const std::int64_t down = (rows + block_rows - 1) / block_rows;
  const std::int64_t across = (columns + block_columns - 1) / block_columns;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (block_rows * block_columns));
  pool.parallel_for(batch * across * down, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t b = block / (across * down);
      const Planes<T> m{from + b * rows * columns, to + b * rows * columns, rows, columns};
      const std::int64_t j = block / down % across * block_columns, i = block % down * block_rows;
      const std::int64_t j_end = std::min(columns, j + block_columns);
      if constexpr (sizeof(T) == sizeof(float) || sizeof(T) == 1) {
        if (rows == 3) {
          interleave3(m, j, j_end);
          continue;
        }
        if (columns == 3) {
          deinterleave3(m, i, std::min(rows, i + block_rows));
          continue;
        }
      }
      transpose_block(sizeof(T), m.from + i * columns + j, columns, m.to + j * rows + i, rows,
                      std::min(rows - i, block_rows), j_end - j);
    }
  });
}

void transpose(const void* from, void* to, std::size_t elem_bytes, std::int64_t batch, std::int64_t rows,
               std::int64_t columns, ThreadPool& pool) {
  dispatch_bytes(elem_bytes, [&]<typename Bits>(std::type_identity<Bits>) {
    using T = std::conditional_t<sizeof(Bits) == sizeof(float), float, Bits>;
    transpose_of(static_cast<const T*>(from), static_cast<T*>(to), batch, rows, columns, pool);
  });
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(transpose);

void transpose_planes(const void* from, void* to, std::size_t elem_bytes, std::int64_t batch, std::int64_t rows,
                      std::int64_t columns, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(transpose)(from, to, elem_bytes, batch, rows, columns, pool);
}

}  // namespace lenslet
#endif

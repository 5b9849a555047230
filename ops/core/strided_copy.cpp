#include "ops/core/strided_copy.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "base/dtypes.h"
#include "ops/core/grain.h"
#include "ops/core/transpose_block.h"

namespace lenslet {

namespace {

using Loop = StridedLoops::Loop;

template <typename T>
void copy_row(const T* from, T* to, std::int64_t count, std::int64_t from_stride, std::int64_t to_stride) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  } else if (from_stride == 0 && to_stride == 1) {
    std::fill_n(to, count, *from);
  } else if (to_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * from_stride];
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

/// Copies `count` runs of at most 64 bytes, few of which are worth a call of memcpy: by two copies that overlap.
void copy_short_runs(const std::byte* from, std::byte* to, std::size_t bytes, std::int64_t count,
                     std::int64_t from_step, std::int64_t to_step) {
  const auto both_ends = [&]<std::size_t size>(std::integral_constant<std::size_t, size>) {
    for (std::int64_t i = 0; i < count; ++i, from += from_step, to += to_step) {
      std::byte first[size], last[size];
      std::memcpy(first, from, size);
      std::memcpy(last, from + bytes - size, size);
      std::memcpy(to, first, size);
      std::memcpy(to + bytes - size, last, size);
    }
  };
  if (bytes > 32) return both_ends(std::integral_constant<std::size_t, 32>());
  if (bytes > 16) return both_ends(std::integral_constant<std::size_t, 16>());
  both_ends(std::integral_constant<std::size_t, 8>());
}

/// Copies rows along the innermost loop; long ones are split.
template <typename T>
void copy_rows(StridedLoops loops, const T* from, T* to, ThreadPool& pool) {
  const Loop row = loops.take(loops.rank() - 1);
  const std::int64_t cut = std::min(row.dim, elementwise_grain);
  const std::int64_t cuts = (row.dim + cut - 1) / cut;
  const std::size_t bytes = static_cast<std::size_t>(row.dim) * sizeof(T);
  const bool short_runs = loops.rank() == 1 && row.from == 1 && row.to == 1 && bytes >= 8 && bytes <= 64;
  pool.parallel_for(loops.count() * cuts, std::max<std::int64_t>(1, elementwise_grain / cut),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      LoopCursor at(loops, begin / cuts);
                      if (short_runs) {
                        constexpr auto size = static_cast<std::int64_t>(sizeof(T));
                        return copy_short_runs(reinterpret_cast<const std::byte*>(from + at.from),
                                               reinterpret_cast<std::byte*>(to + at.to), bytes, end - begin,
                                               loops[0].from * size, loops[0].to * size);
                      }
                      std::int64_t piece = begin % cuts;
                      for (std::int64_t unit = begin; unit < end; ++unit) {
                        const std::int64_t first = piece * cut;
                        copy_row(from + at.from + first * row.from, to + at.to + first * row.to,
                                 std::min(cut, row.dim - first), row.from, row.to);
                        if (++piece == cuts) {
                          piece = 0;
                          at.next();
                        }
                      }
                    });
}

/// Loop `across` is contiguous in `from`, the innermost one in `to`: transposes block by block, so that each cache line
/// is fetched once on either side. Blocks stay in L1. They are four lines wide, because consecutive lines of `from` may
/// lie in a page each; long where the other side is short and writes are in order; one line wide where several blocks
/// fill a line of `to`.
template <typename T>
void transpose_blocks(StridedLoops loops, int across_index, const T* from, T* to, ThreadPool& pool) {
  const Loop along = loops.take(loops.rank() - 1);
  const Loop across = loops.take(across_index);
  constexpr std::int64_t line = std::max<std::int64_t>(16, 64 / sizeof(T)), elems = 4 * line * line;
  const std::int64_t most_width = across.to == along.dim ? std::max(4 * line, elems / along.dim)
                                  : along.dim < line     ? line
                                                         : 4 * line;
  const std::int64_t width = std::min(across.dim, most_width);
  const std::int64_t height = std::min(along.dim, std::max(line, elems / width));
  const std::int64_t strips = (across.dim + width - 1) / width;
  pool.parallel_for(loops.count() * strips, std::max<std::int64_t>(1, elementwise_grain / (width * along.dim)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      LoopCursor at(loops, begin / strips);
                      std::int64_t strip = begin % strips;
                      for (std::int64_t unit = begin; unit < end; ++unit) {
                        const std::int64_t first = strip * width;
                        for (std::int64_t j = 0; j < along.dim; j += height)
                          transpose_block(sizeof(T), from + at.from + first + j * along.from, along.from,
                                          to + at.to + first * across.to + j, across.to,
                                          std::min(height, along.dim - j), std::min(width, across.dim - first));
                        if (++strip == strips) {
                          strip = 0;
                          at.next();
                        }
                      }
                    });
}

template <typename T>
void copy_typed(const StridedLoops& loops, const T* from, T* to, ThreadPool& pool) {
  const Loop inner = loops[loops.rank() - 1];
  if (inner.to == 1 && inner.from != 1 && inner.from != 0)
    for (int i = 0; i + 1 < loops.rank(); ++i)
      if (loops[i].from == 1) return transpose_blocks(loops, i, from, to, pool);
  copy_rows(loops, from, to, pool);
}

/// Treats contiguous runs of 2, 4 or 8 bytes as single elements: 4420 pairs of floats take 4 us instead of 14.
void widen_runs(std::size_t& element_bytes, StridedLoops& loops, const void* from, const void* to) {
  const Loop run = loops[loops.rank() - 1];
  const std::size_t bytes = element_bytes * static_cast<std::size_t>(run.dim);
  if (loops.rank() < 2 || run.from != 1 || run.to != 1 || (bytes != 2 && bytes != 4 && bytes != 8)) return;
  if (reinterpret_cast<std::uintptr_t>(from) % bytes != 0 || reinterpret_cast<std::uintptr_t>(to) % bytes != 0) return;
  StridedLoops wide;
  for (int i = 0; i + 1 < loops.rank(); ++i) {
    if (loops[i].from % run.dim != 0 || loops[i].to % run.dim != 0) return;
    wide.add(loops[i].dim, loops[i].from / run.dim, loops[i].to / run.dim);
  }
  element_bytes = bytes;
  loops = wide;
}

}  // namespace

StridedLoops::StridedLoops(const Shape& shape, const Format& format, const AxisSteps& from, const AxisSteps& to) {
  const auto order = memory_order(shape.rank(), format);
  for (int i = 0; i < shape.rank(); ++i) {
    const int axis = order[static_cast<std::size_t>(i)];
    add(shape[axis], from[static_cast<std::size_t>(axis)], to[static_cast<std::size_t>(axis)]);
  }
}

void StridedLoops::add(std::int64_t dim, std::int64_t from_stride, std::int64_t to_stride) {
  if (dim == 1) return;
  if (rank_ > 0) {
    Loop& outer = loops_[static_cast<std::size_t>(rank_ - 1)];
    if (outer.from == from_stride * dim && outer.to == to_stride * dim) {
      outer = {outer.dim * dim, from_stride, to_stride};
      return;
    }
  }
  assert(rank_ < max_rank);
  loops_[static_cast<std::size_t>(rank_++)] = {dim, from_stride, to_stride};
}

Loop StridedLoops::take(int i) {
  assert(i >= 0 && i < rank_);
  const Loop taken = (*this)[i];
  std::move(loops_.begin() + i + 1, loops_.begin() + rank_, loops_.begin() + i);
  --rank_;
  return taken;
}

std::int64_t StridedLoops::count() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= (*this)[i].dim;
  return product;
}

LoopCursor::LoopCursor(const StridedLoops& loops, std::int64_t position) : loops_(loops) {
  // Ends at position 0, even for empty loops.
  for (int i = loops.rank() - 1; i >= 0 && position > 0; --i) {
    const auto axis = static_cast<std::size_t>(i);
    index_[axis] = position % loops[i].dim;
    position /= loops[i].dim;
    from += index_[axis] * loops[i].from;
    to += index_[axis] * loops[i].to;
  }
}

void strided_copy(std::size_t element_bytes, const StridedLoops& given, const void* from, void* to, ThreadPool& pool) {
  if (given.count() == 0) return;
  if (given.rank() == 0) {
    std::memcpy(to, from, element_bytes);
    return;
  }
  StridedLoops loops = given;
  widen_runs(element_bytes, loops, from, to);
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    copy_typed(loops, static_cast<const T*>(from), static_cast<T*>(to), pool);
  });
}

}  // namespace lenslet

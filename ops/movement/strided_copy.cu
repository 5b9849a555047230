#include "ops/movement/strided_copy_cuda.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "ops/movement/access.cuh"
#include "ops/movement/transpose_cuda.h"

namespace lenslet::cuda {
namespace {

using Loop = StridedLoops::Loop;

constexpr int threads = 256;
/// Items that a thread loads before its first store.
constexpr int unroll = 4;
/// Loops per copy when several share a launch, whose parameters must stay small. Concat and Split need two.
constexpr int max_joint_rank = 4;
/// Item indices and strides must fit 32 bits, even past the end, where threads of the last block compute them.
constexpr std::int64_t max_items = std::numeric_limits<std::int32_t>::max() - threads * unroll;

template <int max_rank>
struct CopyLoops {
  const void* from;
  void* to;
  std::uint32_t first_block, items;
  int rank;  ///< at least 1
  FastDivider dims[max_rank];
  std::int32_t from_strides[max_rank], to_strides[max_rank];
};

/// One launch: item i of copy c moves by the copy's loops. per_block is threads * unroll, or `threads` for small
/// copies, where more blocks help more than more loads in flight.
template <int max_copies, int max_rank>
struct Copies {
  int count;
  std::uint32_t per_block;
  CopyLoops<max_rank> copies[max_copies];
};

template <typename T, int max_copies, int max_rank>
__global__ void __launch_bounds__(threads) copy_items(const __grid_constant__ Copies<max_copies, max_rank> all) {
  wait_for_previous();
  let_next_start();
  int c = 0;
  while (c + 1 < all.count && blockIdx.x >= all.copies[c + 1].first_block) ++c;
  const CopyLoops<max_rank>& copy = all.copies[c];
  const std::uint32_t begin = (blockIdx.x - copy.first_block) * all.per_block;
  const std::uint32_t end = min(copy.items, begin + all.per_block);
  std::uint32_t rest[unroll];
  std::int64_t from[unroll], to[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    rest[u] = begin + threadIdx.x + u * threads;
    from[u] = to[u] = 0;
  }
  for (int i = copy.rank - 1; i > 0; --i) {
    const FastDivider dim = copy.dims[i];
    const std::int64_t from_stride = copy.from_strides[i], to_stride = copy.to_strides[i];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::uint32_t outer = dim.divide(rest[u]), index = rest[u] - outer * dim.divisor();
      from[u] += index * from_stride;
      to[u] += index * to_stride;
      rest[u] = outer;
    }
  }
  T values[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u)
    if (begin + threadIdx.x + u * threads < end)
      values[u] = static_cast<const T*>(copy.from)[from[u] + rest[u] * std::int64_t{copy.from_strides[0]}];
#pragma unroll
  for (int u = 0; u < unroll; ++u)
    if (begin + threadIdx.x + u * threads < end)
      static_cast<T*>(copy.to)[to[u] + rest[u] * std::int64_t{copy.to_strides[0]}] = values[u];
}

/// The largest access size, at most 16 bytes, that divides every step of `loops`; larger than an element only if the
/// innermost loop is contiguous on both sides.
std::size_t bytes_per_access(const StridedLoops& loops, const void* from, const void* to, std::size_t element_bytes) {
  if (loops.rank() == 0) return element_bytes;
  const Loop& inner = loops[loops.rank() - 1];
  if (inner.from != 1 || inner.to != 1) return element_bytes;
  std::int64_t strides = inner.dim;
  for (int i = 0; i + 1 < loops.rank(); ++i) strides |= loops[i].from | loops[i].to;
  return access_bytes(strides, element_bytes, from, to);
}

/// The same copy in items of `factor` elements.
StridedLoops widened(const StridedLoops& loops, std::int64_t factor) {
  if (factor == 1) return loops;
  StridedLoops wide;
  for (int i = 0; i + 1 < loops.rank(); ++i) wide.add(loops[i].dim, loops[i].from / factor, loops[i].to / factor);
  wide.add(loops[loops.rank() - 1].dim / factor, 1, 1);
  return wide;
}

template <int max_rank>
void fill_in(CopyLoops<max_rank>& copy, const StridedLoops& loops, const void* from, void* to) {
  copy.from = from;
  copy.to = to;
  copy.items = static_cast<std::uint32_t>(loops.count());
  copy.rank = std::max(loops.rank(), 1);
  for (int i = 0; i < loops.rank(); ++i) {
    copy.dims[i] = FastDivider(static_cast<std::uint32_t>(loops[i].dim));
    copy.from_strides[i] = static_cast<std::int32_t>(loops[i].from);
    copy.to_strides[i] = static_cast<std::int32_t>(loops[i].to);
  }
}

/// `copies`: at most max_copies, each with `from`, `to` and loops over items of `bytes` bytes.
template <int max_copies, int max_rank, typename Copy>
void launch_copies(const Context& context, std::size_t bytes, const Copy* copies, std::size_t count) {
  Copies<max_copies, max_rank> all{};
  all.count = static_cast<int>(count);
  std::int64_t items = 0;
  for (std::size_t c = 0; c < count; ++c) items += copies[c].loops.count();
  const bool much = items >= std::int64_t{threads} * unroll * 2 * context.multiprocessors;
  all.per_block = much ? threads * unroll : threads;
  std::uint32_t blocks = 0;
  for (std::size_t c = 0; c < count; ++c) {
    fill_in(all.copies[c], copies[c].loops, copies[c].from, copies[c].to);
    all.copies[c].first_block = blocks;
    blocks += blocks_for(all.copies[c].items, all.per_block);
  }
  dispatch_access(bytes, [&]<typename T>(std::type_identity<T>) {
    launch(context, copy_items<T, max_copies, max_rank>, blocks, threads, 0, all);
  });
}

bool fits_32_bits(const StridedLoops& loops) {
  if (loops.count() > max_items) return false;
  for (int i = 0; i < loops.rank(); ++i)
    if (std::max(std::abs(loops[i].from), std::abs(loops[i].to)) > std::numeric_limits<std::int32_t>::max())
      return false;
  return true;
}

/// The loop that is contiguous in `from` if it is not the one in `to`; -1: none, or the innermost loop reads one
/// element.
int crossing_loop(const StridedLoops& loops) {
  if (loops.rank() < 2) return -1;
  const Loop& inner = loops[loops.rank() - 1];
  if (inner.to != 1 || inner.from == 1 || inner.from == 0) return -1;
  for (int i = 0; i + 1 < loops.rank(); ++i)
    if (loops[i].from == 1) return i;
  return -1;
}

}  // namespace

void CopyBatch::add(const StridedLoops& loops, const void* from, void* to) {
  if (loops.count() == 0) return;
  if (fits_32_bits(loops)) return add_part(loops, from, to);
  // Halves the outermost loop until each part fits; long loops are split where both parts stay aligned.
  const Loop outer = loops[0];
  const std::int64_t half = outer.dim > 128 ? outer.dim / 2 / 64 * 64 : outer.dim / 2;
  StridedLoops first, second;
  first.add(half, outer.from, outer.to);
  second.add(outer.dim - half, outer.from, outer.to);
  for (int i = 1; i < loops.rank(); ++i) {
    first.add(loops[i].dim, loops[i].from, loops[i].to);
    second.add(loops[i].dim, loops[i].from, loops[i].to);
  }
  const auto bytes = static_cast<std::int64_t>(element_bytes_);
  add(first, from, to);
  add(second, static_cast<const std::byte*>(from) + half * outer.from * bytes,
      static_cast<std::byte*>(to) + half * outer.to * bytes);
}

void CopyBatch::add_part(const StridedLoops& loops, const void* from, void* to) {
  StridedLoops rest = loops;
  if (const int crossing = crossing_loop(loops); crossing >= 0) {
    const Loop rows = rest.take(rest.rank() - 1), columns = rest.take(crossing);
    const Transposition matrix{rows.dim, columns.dim, rows.from, columns.to, rest};
    if (std::min(rows.dim, columns.dim) >= least_transposed_dim)
      return transpose(context_, element_bytes_, matrix, from, to);
    if (interleaves(element_bytes_, matrix, from, to)) return interleave(context_, element_bytes_, matrix, from, to);
    // Few columns: with them innermost, every sector is read once and L2 merges the few runs of writes. Few rows: the
    // order of `to` does the reverse.
    if (columns.dim < rows.dim) {
      rest.add(rows.dim, rows.from, rows.to);
      rest.add(columns.dim, columns.from, columns.to);
    } else {
      rest = loops;
    }
  }
  Copy& copy = copies_[count_];
  copy = {rest, from, to};
  if (++count_ == capacity) flush();
}

void CopyBatch::flush() {
  if (count_ == 0) return;
  std::size_t bytes = 16;
  int rank = 0;
  for (std::size_t c = 0; c < count_; ++c)
    bytes = std::min(bytes, bytes_per_access(copies_[c].loops, copies_[c].from, copies_[c].to, element_bytes_));
  for (std::size_t c = 0; c < count_; ++c) {
    copies_[c].loops = widened(copies_[c].loops, static_cast<std::int64_t>(bytes / element_bytes_));
    rank = std::max(rank, copies_[c].loops.rank());
  }
  if (count_ > 1 && rank <= max_joint_rank) {
    launch_copies<capacity, max_joint_rank>(context_, bytes, copies_.data(), count_);
  } else {
    for (std::size_t c = 0; c < count_; ++c) launch_copies<1, StridedLoops::max_rank>(context_, bytes, &copies_[c], 1);
  }
  count_ = 0;
}

void strided_copy(const Context& context, std::size_t element_bytes, const StridedLoops& loops, const void* from,
                  void* to) {
  CopyBatch batch(context, element_bytes);
  batch.add(loops, from, to);
  batch.flush();
}

}  // namespace lenslet::cuda

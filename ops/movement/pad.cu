#include "ops/movement/pad_cuda.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "base/cuda/index_divider.h"
#include "base/cuda/launch.h"
#include "base/cuda/vector_bits.cuh"
#include "lenslet/tensor.h"
#include "ops/movement/access.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// Items are units of access: elements, or 16 bytes where whole vectors are padded.
template <typename Index>
struct PadLoops {
  using Signed = std::make_signed_t<Index>;
  struct Axis {
    DividerOf<Index> out;
    Signed first, kept, before;
    std::int64_t from_stride;
  };
  PadMode mode;
  int rank;  ///< at least 1
  Axis axes[Shape::max_rank];
  Index items;      ///< of the output
  Index per_block;  ///< a multiple of what a thread stores at once times `threads`
  bool vectors;     ///< the output is aligned to 16 bytes
  uint4 value;      ///< the constant, over and over
};

/// Input index for output index `o`; -1: the constant.
template <typename Index>
__device__ std::int64_t source(const typename PadLoops<Index>::Axis& axis, PadMode mode, Index o) {
  using Signed = typename PadLoops<Index>::Signed;
  return pad_source(axis, mode, static_cast<Signed>(o));
}

/// Input offset of output line `row` (along the innermost axis); -1: all constant.
template <typename Index>
__device__ std::int64_t line_start(const PadLoops<Index>& loops, Index row) {
  std::int64_t from = 0;
  for (int i = loops.rank - 2; i >= 0; --i) {
    const Index outer = loops.axes[i].out.divide(row);
    const std::int64_t at = source<Index>(loops.axes[i], loops.mode, row - outer * loops.axes[i].out.divisor());
    from = at < 0 || from < 0 ? -1 : from + at * loops.axes[i].from_stride;
    row = outer;
  }
  return from;
}

/// The line that an output item belongs to.
template <typename Index>
struct Line {
  std::int64_t from;  ///< offset of that line in the input; -1: it is all constant
  Index o;            ///< the item's index along the line
};

template <typename Index>
__device__ Line<Index> line_of(const PadLoops<Index>& loops, Index item) {
  const auto& inner = loops.axes[loops.rank - 1].out;
  const Index row = inner.divide(item);
  return {line_start(loops, row), item - row * inner.divisor()};
}

/// The work distribution of pad_lines: a block writes `chunk` words of each of lines_per_step * steps lines.
struct LineBlocks {
  std::uint32_t lines, words;  ///< of the output, and words a line
  std::uint32_t chunk, chunks;
  std::uint32_t lines_per_step, steps;
};

constexpr std::uint32_t least_words = 8;  ///< a line
constexpr std::uint32_t max_steps = 8;

/// Lines of small items. A word is `per_word` items, stored together. A thread keeps its position along the line, so it
/// computes its sources there once, and walks down the lines, whose sources the block computes once: per word only a
/// load and a store remain. Lines are contiguous in the output, so a step's stores have no gaps.
template <typename T, int per_word>
__global__ void __launch_bounds__(threads)
    pad_lines(const T* from, T* to, const __grid_constant__ PadLoops<std::uint32_t> loops, LineBlocks blocks) {
  wait_for_previous();
  __shared__ std::int64_t starts[threads / least_words * max_steps];
  const std::uint32_t block_lines = blocks.lines_per_step * blocks.steps;
  const std::uint32_t first_line = blockIdx.x / blocks.chunks * block_lines;
  for (std::uint32_t i = threadIdx.x; i < block_lines; i += blockDim.x)
    starts[i] = first_line + i < blocks.lines ? line_start(loops, first_line + i) : -1;
  const std::uint32_t line = threadIdx.x / blocks.chunk;
  const std::uint32_t word = blockIdx.x % blocks.chunks * blocks.chunk + threadIdx.x % blocks.chunk;
  const bool idle = line >= blocks.lines_per_step || word >= blocks.words;
  std::int64_t at[per_word];
#pragma unroll
  for (int k = 0; k < per_word; ++k)
    at[k] = idle ? -1 : source<std::uint32_t>(loops.axes[loops.rank - 1], loops.mode, word * per_word + k);
  __syncthreads();
  if (idle) return;

  const T fallback = element<T>(loops.value, 0);
  T values[max_steps][per_word];
#pragma unroll
  for (std::uint32_t step = 0; step < max_steps; ++step) {
    const std::int64_t start = step < blocks.steps ? starts[step * blocks.lines_per_step + line] : -1;
#pragma unroll
    for (int k = 0; k < per_word; ++k) {
      values[step][k] = fallback;
      if (start >= 0 && at[k] >= 0) values[step][k] = from[start + at[k]];
    }
  }
#pragma unroll
  for (std::uint32_t step = 0; step < max_steps; ++step) {
    const std::uint32_t o = first_line + step * blocks.lines_per_step + line;
    if (step >= blocks.steps || o >= blocks.lines) break;
    T* const out = to + (o * blocks.words + word) * per_word;
    if constexpr (per_word == 1) {
      *out = values[step][0];
    } else {
      static_assert(per_word * sizeof(T) == 4);
      std::uint32_t bits = 0;
#pragma unroll
      for (int k = 0; k < per_word; ++k) bits |= static_cast<std::uint32_t>(values[step][k]) << 8 * sizeof(T) * k;
      *reinterpret_cast<std::uint32_t*>(out) = bits;
    }
  }
}

/// A thread writes `batches` times 16 bytes of output. Locating an item takes some 30 instructions, its right neighbour
/// three: so for items below 16 bytes a thread goes along the line.
template <typename T, typename Index>
__global__ void __launch_bounds__(threads)
    pad_items(const T* from, T* to, const __grid_constant__ PadLoops<Index> loops) {
  wait_for_previous();
  constexpr int run = 16 / static_cast<int>(sizeof(T));
  constexpr int batches = run == 1 ? 4 : run == 16 ? 1 : 2;
  const Index begin = blockIdx.x * loops.per_block + threadIdx.x * run;
  const Index end = min(loops.items, (blockIdx.x + Index{1}) * loops.per_block);
  const typename PadLoops<Index>::Axis& inner = loops.axes[loops.rank - 1];
  T fallback;
  if constexpr (run == 1)
    fallback = loops.value;
  else
    fallback = element<T>(loops.value, 0);
  T values[batches][run];
#pragma unroll
  for (int b = 0; b < batches; ++b) {
    const Index first = begin + static_cast<Index>(b * threads * run);
    if (first >= end) continue;
    Line<Index> line = line_of(loops, first);
#pragma unroll
    for (int k = 0; k < run; ++k) {
      // Past the tensor's end the outermost index overflows, which an unpadded axis would turn into an address.
      if (k > 0 && first + static_cast<Index>(k) >= end)
        line.from = -1;
      else if (k > 0 && ++line.o == inner.out.divisor())
        line = line_of(loops, first + static_cast<Index>(k));
      const std::int64_t at = line.from < 0 ? -1 : source<Index>(inner, loops.mode, line.o);
      values[b][k] = fallback;
      if (at >= 0) values[b][k] = from[line.from + at];
    }
  }
#pragma unroll
  for (int b = 0; b < batches; ++b) {
    const Index first = begin + static_cast<Index>(b * threads * run);
    if constexpr (run == 1) {
      if (first < end) to[first] = values[b][0];
    } else if (first < end && loops.vectors && end - first >= run) {
      *reinterpret_cast<uint4*>(to + first) = vector_of<T>([&](int k) { return values[b][k]; });
    } else {
#pragma unroll
      for (int k = 0; k < run; ++k)
        if (first + static_cast<Index>(k) < end) to[first + static_cast<Index>(k)] = values[b][k];
    }
  }
}

/// The axes, with inner axes merged where that changes nothing.
struct MergedAxes {
  std::array<PadAxis, Shape::max_rank> axes{PadAxis{}};
  std::size_t rank = 0;

  MergedAxes(std::span<const PadAxis> list, PadMode mode) {
    for (const PadAxis& axis : list) {
      PadAxis* outer = rank == 0 ? nullptr : &axes[rank - 1];
      // Other modes repeat single elements along an axis, so its step must stay.
      if (outer != nullptr && axis.unchanged() && (outer->unchanged() || mode == PadMode::constant)) {
        for (std::int64_t* part : {&outer->dim, &outer->out, &outer->first, &outer->kept, &outer->before})
          *part *= axis.dim;
      } else {
        axes[rank++] = axis;
      }
    }
    if (rank == 0) rank = 1;  // a scalar: one line of one element
  }
  std::int64_t out_elems() const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < rank; ++i) product *= axes[i].out;
    return product;
  }
  /// The largest access size, at most 16 bytes, that divides everything along the innermost axis.
  std::size_t unit_bytes(PadMode mode, std::size_t element_bytes, const void* from, const void* to) const {
    const PadAxis& inner = axes[rank - 1];
    if (mode != PadMode::constant && !inner.unchanged()) return element_bytes;
    return access_bytes(inner.dim | inner.out | inner.first | inner.kept | inner.before, element_bytes, from, to);
  }
};

template <typename Index>
PadLoops<Index> loops_of(PadMode mode, const MergedAxes& merged, const uint4& value, const void* to) {
  using Signed = typename PadLoops<Index>::Signed;
  PadLoops<Index> loops{};
  loops.mode = mode;
  loops.rank = static_cast<int>(merged.rank);
  std::int64_t from_stride = 1;
  for (std::size_t i = merged.rank; i-- > 0;) {
    const PadAxis& axis = merged.axes[i];
    loops.axes[i] = {DividerOf<Index>(static_cast<Index>(axis.out)), static_cast<Signed>(axis.first),
                     static_cast<Signed>(axis.kept), static_cast<Signed>(axis.before), from_stride};
    from_stride *= axis.dim;
  }
  loops.items = static_cast<Index>(merged.out_elems());
  loops.vectors = reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
  loops.value = value;
  return loops;
}

template <typename T, typename Index>
void launch_items(const Context& context, PadLoops<Index> loops, const void* from, void* to) {
  constexpr std::int64_t run = 16 / sizeof(T), batches = run == 1 ? 4 : run == 16 ? 1 : 2;
  const auto items = static_cast<std::int64_t>(loops.items);
  const bool much = items >= threads * run * batches * 2 * context.multiprocessors;
  loops.per_block = static_cast<Index>(threads * run * (much ? batches : 1));
  launch(context, pad_items<T, Index>, blocks_for(items, static_cast<long long>(loops.per_block)), threads, 0,
         static_cast<const T*>(from), static_cast<T*>(to), loops);
}

template <typename T, int per_word>
void launch_lines(const Context& context, const PadLoops<std::uint32_t>& loops, const void* from, void* to) {
  const std::uint32_t out = loops.axes[loops.rank - 1].out.divisor();
  LineBlocks blocks{};
  blocks.lines = loops.items / out;
  blocks.words = out / per_word;
  blocks.chunks = blocks_for(blocks.words, threads);
  blocks.chunk = blocks_for(blocks.words, blocks.chunks);
  blocks.lines_per_step = threads / blocks.chunk;
  const bool much = loops.items / per_word >= threads * max_steps * 2u * static_cast<unsigned>(context.multiprocessors);
  blocks.steps = much ? max_steps : 2;
  const unsigned grid = blocks_for(blocks.lines, blocks.lines_per_step * blocks.steps) * blocks.chunks;
  const unsigned used = (blocks.chunk * blocks.lines_per_step + 31) / 32 * 32;
  launch(context, pad_lines<T, per_word>, grid, used, 0, static_cast<const T*>(from), static_cast<T*>(to), loops,
         blocks);
}

template <typename T>
void pad_as(const Context& context, PadMode mode, const MergedAxes& merged, const uint4& value, const void* from,
            void* to) {
  // The input may be larger than the output, and pads nearly as large as both together.
  std::int64_t most = merged.out_elems();
  for (std::size_t i = 0; i < merged.rank; ++i) most = std::max({most, 2 * merged.axes[i].dim, merged.axes[i].before});
  if (most >= std::numeric_limits<std::int32_t>::max() - 16 * threads)
    return launch_items<T>(context, loops_of<std::uint64_t>(mode, merged, value, to), from, to);
  const auto loops = loops_of<std::uint32_t>(mode, merged, value, to);
  if constexpr (sizeof(T) < 16) {
    constexpr int per_word = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    const std::uint32_t out = loops.axes[loops.rank - 1].out.divisor();
    const bool words = out % per_word == 0 && reinterpret_cast<std::uintptr_t>(to) % (per_word * sizeof(T)) == 0;
    if (words && out / per_word >= least_words) return launch_lines<T, per_word>(context, loops, from, to);
    if (!words && out >= least_words) return launch_lines<T, 1>(context, loops, from, to);
  }
  launch_items<T>(context, loops, from, to);
}

}  // namespace

void pad(const Context& context, std::size_t element_bytes, PadMode mode, std::span<const PadAxis> axes,
         std::uint64_t value, const void* from, void* to) {
  MergedAxes merged(axes, mode);
  if (merged.out_elems() == 0) return;
  const std::size_t unit = merged.unit_bytes(mode, element_bytes, from, to);
  const auto factor = static_cast<std::int64_t>(unit / element_bytes);
  PadAxis& inner = merged.axes[merged.rank - 1];
  for (std::int64_t* part : {&inner.dim, &inner.out, &inner.first, &inner.kept, &inner.before}) *part /= factor;
  dispatch_access(unit, [&]<typename T>(std::type_identity<T>) {
    pad_as<T>(context, mode, merged, repeated(value, element_bytes), from, to);
  });
}

}  // namespace lenslet::cuda

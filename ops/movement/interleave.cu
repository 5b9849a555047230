// Transposes matrices of 2 or 4 rows or columns: DepthToSpace and SpaceToDepth in NCHW, channel shuffles of few groups
// in NHWC.

#include <cstdint>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "base/cuda/vector_bits.cuh"
#include "base/dtypes.h"
#include "ops/movement/transpose_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
/// Vectors that a thread loads before its first store.
constexpr int unroll = 4;

/// Item i is one 16-byte vector of pixels (all planes' elements interleaved) and one word of 16 bytes / planes in each
/// plane. The innermost loop covers adjacent items of one matrix. Strides in words and vectors.
struct Items {
  std::uint32_t count, per_block;  ///< per_block: threads * unroll, or `threads` when there are few
  std::int64_t plane_stride;
  int rank;  ///< at least 1
  FastDivider dims[StridedLoops::max_rank];
  std::int32_t in_planes[StridedLoops::max_rank], in_pixels[StridedLoops::max_rank];
};

/// T: an unsigned integer of the element's size.
template <typename T, int planes, bool to_pixels>
__global__ void __launch_bounds__(threads)
    interleave_planes(const void* from, void* to, const __grid_constant__ Items items) {
  wait_for_previous();
  using Word = Bits<16 / planes>;
  constexpr int per_word = sizeof(Word) / sizeof(T), elem_bits = 8 * sizeof(T);
  const std::uint32_t begin = blockIdx.x * items.per_block;
  const std::uint32_t end = min(items.count, begin + items.per_block);
  std::uint32_t rest[unroll];
  std::int64_t in_planes[unroll], in_pixels[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    rest[u] = begin + threadIdx.x + u * threads;
    in_planes[u] = in_pixels[u] = 0;
  }
  for (int i = items.rank - 1; i >= 0; --i) {
    const FastDivider dim = items.dims[i];
    const std::int64_t planes_stride = items.in_planes[i], pixels_stride = items.in_pixels[i];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::uint32_t outer = dim.divide(rest[u]), index = rest[u] - outer * dim.divisor();
      in_planes[u] += index * planes_stride;
      in_pixels[u] += index * pixels_stride;
      rest[u] = outer;
    }
  }
  const auto mine = [&](int u) { return begin + threadIdx.x + u * threads < end; };
  if constexpr (to_pixels) {
    Word words[unroll][planes];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
#pragma unroll
      for (int p = 0; p < planes; ++p)
        if (mine(u)) words[u][p] = static_cast<const Word*>(from)[in_planes[u] + p * items.plane_stride];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (mine(u))
        static_cast<uint4*>(to)[in_pixels[u]] =
            vector_of<T>([&](int k) { return static_cast<T>(words[u][k % planes] >> k / planes * elem_bits); });
  } else {
    uint4 vectors[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (mine(u)) vectors[u] = static_cast<const uint4*>(from)[in_pixels[u]];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
#pragma unroll
      for (int p = 0; p < planes; ++p) {
        Word word = 0;
#pragma unroll
        for (int e = 0; e < per_word; ++e)
          word |= static_cast<Word>(element<T>(vectors[u], e * planes + p)) << e * elem_bits;
        if (mine(u)) static_cast<Word*>(to)[in_planes[u] + p * items.plane_stride] = word;
      }
  }
}

/// A Transposition from the planes' point of view, on either side.
struct Planes {
  bool to_pixels = false;
  std::int64_t count = 0, length = 0, plane_stride = 0;  ///< count 0: neither rows nor columns are planes
};

Planes planes_of(const Transposition& t) {
  const auto few = [](std::int64_t n) { return n == 2 || n == 4; };
  if (few(t.rows) && t.to_stride == t.rows) return {true, t.rows, t.columns, t.from_stride};
  if (few(t.columns) && t.from_stride == t.columns) return {false, t.columns, t.rows, t.to_stride};
  return {};
}

template <typename T, int planes>
void launch_items(const Context& context, bool to_pixels, const Items& items, const void* from, void* to) {
  // 8-byte elements: four exceed a vector, so interleaves() refuses them.
  if constexpr (sizeof(T) * planes <= 16)
    launch(context, to_pixels ? interleave_planes<T, planes, true> : interleave_planes<T, planes, false>,
           blocks_for(items.count, items.per_block), threads, 0, from, to, items);
}

}  // namespace

bool interleaves(std::size_t element_bytes, const Transposition& t, const void* from, const void* to) {
  const Planes planes = planes_of(t);
  const auto bytes = static_cast<std::int64_t>(element_bytes);
  if (planes.count == 0 || planes.count * bytes > 16) return false;
  std::int64_t in_planes = planes.length | planes.plane_stride, in_pixels = 0;
  for (int i = 0; i < t.outer.rank(); ++i) {
    in_planes |= planes.to_pixels ? t.outer[i].from : t.outer[i].to;
    in_pixels |= planes.to_pixels ? t.outer[i].to : t.outer[i].from;
  }
  const auto planes_address = reinterpret_cast<std::uintptr_t>(planes.to_pixels ? from : to);
  const auto pixels_address = reinterpret_cast<std::uintptr_t>(planes.to_pixels ? to : from);
  return (static_cast<std::uint64_t>(in_planes * bytes) | planes_address) % (16 / planes.count) == 0 &&
         (static_cast<std::uint64_t>(in_pixels * bytes) | pixels_address) % 16 == 0;
}

void interleave(const Context& context, std::size_t element_bytes, const Transposition& t, const void* from, void* to) {
  const Planes planes = planes_of(t);
  const std::int64_t per_vector = 16 / static_cast<std::int64_t>(element_bytes), per_word = per_vector / planes.count;
  Items items{};
  std::int64_t count = 1;
  const auto add = [&](std::int64_t dim, std::int64_t in_planes, std::int64_t in_pixels) {
    items.dims[items.rank] = FastDivider(static_cast<std::uint32_t>(dim));
    items.in_planes[items.rank] = static_cast<std::int32_t>(in_planes);
    items.in_pixels[items.rank] = static_cast<std::int32_t>(in_pixels);
    ++items.rank;
    count *= dim;
  };
  for (int i = 0; i < t.outer.rank(); ++i) {
    const StridedLoops::Loop& loop = t.outer[i];
    add(loop.dim, (planes.to_pixels ? loop.from : loop.to) / per_word,
        (planes.to_pixels ? loop.to : loop.from) / per_vector);
  }
  add(planes.length / per_word, 1, 1);
  if (count == 0) return;
  items.count = static_cast<std::uint32_t>(count);
  items.plane_stride = planes.plane_stride / per_word;
  const bool much = count >= std::int64_t{threads} * unroll * 2 * context.multiprocessors;
  items.per_block = much ? threads * unroll : threads;
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    const auto launch_them = planes.count == 2 ? launch_items<T, 2> : launch_items<T, 4>;
    launch_them(context, planes.to_pixels, items, from, to);
  });
}

}  // namespace lenslet::cuda

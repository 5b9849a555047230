#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/vector_bits.cuh"
#include "ops/core/radix.cuh"
#include "ops/movement/access.cuh"
#include "ops/resample/resize_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int rows_each = 4;  ///< of a thread, which reads its column's taps once

/// Items are what one access moves. Rows are those of all `outer` together.
struct ResizeItems {
  std::int64_t rows, columns, rows_in, line;  ///< a line of x; a row of y has `columns` items, inner ones included
  Radix rows_out, inner;
  std::uint32_t column_blocks;
  int taps;
  bool narrow_rows, narrow_columns;
};

__device__ float times(float weight, float x) { return weight * x; }
__device__ float4 times(float weight, float4 x) {
  return make_float4(weight * x.x, weight * x.y, weight * x.z, weight * x.w);
}

/// What a thread stores at once.
template <typename T, int each>
struct alignas(sizeof(T) * each) Pack {
  T items[each];
};

/// `each` neighbouring columns a thread, which have one line of x in common. `taps`: 1 copies items of any kind, 0 is
/// any number.
template <typename T, int taps, int each>
__global__ void __launch_bounds__(threads)
    resize_rows(const T* x, T* y, const ResizeTap* table, const __grid_constant__ ResizeItems p, T beyond) {
  wait_for_previous();
  const std::uint32_t row_block = blockIdx.x / p.column_blocks;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x - row_block * p.column_blocks) * blockDim.x + threadIdx.x) * each;
  if (column >= p.columns) return;
  std::int64_t rest = column;
  const std::int64_t inside = each > 1 ? 0 : take_digit(rest, p.inner, p.narrow_columns);
  const std::int64_t stride = each > 1 ? 1 : p.inner.value;
  const int count = taps == 0 ? p.taps : taps;
  const ResizeTap* const of_column = table + (p.rows_out.value + rest) * count;
  constexpr int held = taps == 0 ? 1 : taps;
  ResizeTap known[each][held];
#pragma unroll
  for (int e = 0; e < each; ++e)
#pragma unroll
    for (int t = 0; t < taps; ++t) known[e][t] = of_column[e * count + t];

  [[maybe_unused]] const auto blend_line = [&](const auto* line, Pack<T, each>& blended) {
#pragma unroll
    for (int e = 0; e < each; ++e) {
      T part{};
#pragma unroll
      for (int c = 0; c < count; ++c) {
        const ResizeTap along = taps == 0 ? of_column[c] : known[e][taps == 0 ? 0 : c];
        if (along.weight != 0) part = part + times(along.weight, line[along.index * stride]);
      }
      blended.items[e] = part;
    }
  };
  // Of two taps: rows that grow read the lines of the row before.
  Pack<T, each> low, high;
  std::int32_t low_at = -1, high_at = -1;
  std::int64_t image_at = -1;

  const std::int64_t first = (static_cast<std::int64_t>(row_block) * blockDim.y + threadIdx.y) * rows_each;
#pragma unroll
  for (int k = 0; k < rows_each; ++k) {
    const std::int64_t row = first + k;
    if (row >= p.rows) return;
    std::int64_t outer = row;
    const std::int64_t at = take_digit(outer, p.rows_out, p.narrow_rows);
    const ResizeTap* const of_row = table + at * count;
    const T* const image = x + outer * p.rows_in * p.line + inside;
    const bool row_beyond = of_row[0].index < 0;
    Pack<T, each> sum{};
    if constexpr (taps == 1) {
      const T* const line = image + of_row[0].index * p.line;
#pragma unroll
      for (int e = 0; e < each; ++e)
        if (!row_beyond && known[e][0].index >= 0) sum.items[e] = line[known[e][0].index * stride];
    } else if constexpr (taps == 2) {
      const ResizeTap upper = of_row[0], lower = of_row[1];
      if (outer != image_at) low_at = high_at = -1;
      image_at = outer;
      if (!row_beyond && upper.weight != 0) {
        if (upper.index == high_at)
          low = high;
        else if (upper.index != low_at)
          blend_line(image + upper.index * p.line, low);
        low_at = upper.index;
      }
      if (!row_beyond && lower.weight != 0) {
        if (lower.index == low_at)
          high = low;
        else if (lower.index != high_at)
          blend_line(image + lower.index * p.line, high);
        high_at = lower.index;
      }
#pragma unroll
      for (int e = 0; e < each; ++e) {
        if (upper.weight != 0) sum.items[e] = sum.items[e] + times(upper.weight, low.items[e]);
        if (lower.weight != 0) sum.items[e] = sum.items[e] + times(lower.weight, high.items[e]);
      }
    } else if (!row_beyond) {
#pragma unroll
      for (int r = 0; r < count; ++r) {
        const ResizeTap down = of_row[r];
        if (down.weight == 0) continue;
        Pack<T, each> part;
        blend_line(image + down.index * p.line, part);
#pragma unroll
        for (int e = 0; e < each; ++e) sum.items[e] = sum.items[e] + times(down.weight, part.items[e]);
      }
    }
#pragma unroll
    for (int e = 0; e < each; ++e)
      if (row_beyond || (taps == 0 ? of_column[0].index : known[e][0].index) < 0) sum.items[e] = beyond;
    *reinterpret_cast<Pack<T, each>*>(y + row * p.columns + column) = sum;
  }
}

/// Outputs from which fewer threads that do more keep the device busy.
constexpr std::int64_t many = std::int64_t{1} << 19;

template <typename T, int taps, int each>
void launch_packs(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table, T beyond,
                  const void* x, void* y) {
  ResizeItems p;
  p.rows = l.outer * l.rows_out;
  p.columns = l.columns_out * inner;
  p.rows_in = l.rows_in;
  p.line = l.columns_in * inner;
  p.rows_out = Radix(l.rows_out);
  p.inner = Radix(inner);
  p.taps = l.taps;
  p.narrow_rows = p.rows < Radix::narrow_end;
  p.narrow_columns = p.columns < Radix::narrow_end;
  const std::int64_t packs = p.columns / each;
  const auto wide =
      static_cast<unsigned>(std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(packs, threads))));
  p.column_blocks = blocks_for(packs, wide);
  const dim3 block(wide, threads / wide);
  const unsigned grid = blocks_for(p.rows, static_cast<long long>(block.y) * rows_each) * p.column_blocks;
  launch(context, resize_rows<T, taps, each>, dim3(grid), block, 0, static_cast<const T*>(x), static_cast<T*>(y), table,
         p, beyond);
}

template <typename T, int taps>
void launch_rows(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table, T beyond,
                 const void* x, void* y) {
  if constexpr ((taps == 1 || taps == 2) && sizeof(T) <= 4) {
    constexpr int each = 4;
    if (inner == 1 && l.columns_out % each == 0 && l.outer * l.rows_out * l.columns_out >= many && quad_aligned(y))
      return launch_packs<T, taps, each>(context, l, inner, table, beyond, x, y);
  }
  launch_packs<T, taps, 1>(context, l, inner, table, beyond, x, y);
}

template <typename T>
void launch_blend(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table, T beyond,
                  const void* x, void* y) {
  if (l.taps == 2) return launch_rows<T, 2>(context, l, inner, table, beyond, x, y);
  if (l.taps == 4) return launch_rows<T, 4>(context, l, inner, table, beyond, x, y);
  launch_rows<T, 0>(context, l, inner, table, beyond, x, y);
}

}  // namespace

void resize(const Context& context, const ResizeLaunch& l, std::size_t element_bytes, const ResizeTap* table,
            float extrapolation, const void* x, void* y) {
  if (l.outer * l.rows_out * l.columns_out * l.inner == 0) return;
  if (l.taps > 1) {
    if (l.inner % 4 != 0 || !quad_aligned(x, y)) return launch_blend(context, l, l.inner, table, extrapolation, x, y);
    const float4 beyond = make_float4(extrapolation, extrapolation, extrapolation, extrapolation);
    return launch_blend(context, l, l.inner / 4, table, beyond, x, y);
  }
  const std::size_t bytes = access_bytes(l.inner, element_bytes, x, y);
  const auto inner = l.inner / static_cast<std::int64_t>(bytes / element_bytes);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(extrapolation);
  dispatch_access(bytes, [&]<typename T>(std::type_identity<T>) {
    T beyond{};  // of other elements than float32 there is none
    if constexpr (std::is_same_v<T, uint4>)
      beyond = make_uint4(bits, bits, bits, bits);
    else if constexpr (sizeof(T) >= 4)
      beyond = static_cast<T>(bits * (sizeof(T) == 8 ? 0x1'0000'0001 : 1));
    launch_rows<T, 1>(context, l, inner, table, beyond, x, y);
  });
}

}  // namespace lenslet::cuda

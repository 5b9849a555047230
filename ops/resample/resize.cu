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

/// `taps`: 1 copies items of any kind, 0 is any number.
template <typename T, int taps>
__global__ void __launch_bounds__(threads)
    resize_rows(const T* x, T* y, const ResizeTap* table, const __grid_constant__ ResizeItems p, T beyond) {
  wait_for_previous();
  const std::uint32_t row_block = blockIdx.x / p.column_blocks;
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.x - row_block * p.column_blocks) * blockDim.x + threadIdx.x;
  if (column >= p.columns) return;
  std::int64_t rest = column;
  const std::int64_t inside = take_digit(rest, p.inner, p.narrow_columns);
  const int count = taps == 0 ? p.taps : taps;
  const ResizeTap* const of_column = table + (p.rows_out.value + rest) * count;
  ResizeTap known[taps == 0 ? 1 : taps];
#pragma unroll
  for (int t = 0; t < taps; ++t) known[t] = of_column[t];
  const bool column_beyond = of_column[0].index < 0;

  const std::int64_t first = (static_cast<std::int64_t>(row_block) * blockDim.y + threadIdx.y) * rows_each;
#pragma unroll
  for (int k = 0; k < rows_each; ++k) {
    const std::int64_t row = first + k;
    if (row >= p.rows) return;
    std::int64_t outer = row;
    const std::int64_t at = take_digit(outer, p.rows_out, p.narrow_rows);
    const ResizeTap* const of_row = table + at * count;
    const T* const image = x + outer * p.rows_in * p.line + inside;
    T sum = beyond;
    if (!column_beyond && of_row[0].index >= 0) {
      if constexpr (taps == 1) {
        sum = image[of_row[0].index * p.line + known[0].index * p.inner.value];
      } else {
        sum = T{};
#pragma unroll
        for (int r = 0; r < count; ++r) {
          const ResizeTap down = of_row[r];
          if (down.weight == 0) continue;
          const T* const line = image + down.index * p.line;
          T part{};
#pragma unroll
          for (int c = 0; c < count; ++c) {
            const ResizeTap along = taps == 0 ? of_column[c] : known[taps == 0 ? 0 : c];
            if (along.weight != 0) part = part + times(along.weight, line[along.index * p.inner.value]);
          }
          sum = sum + times(down.weight, part);
        }
      }
    }
    y[row * p.columns + column] = sum;
  }
}

template <typename T, int taps>
void launch_rows(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table, T beyond,
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
  const auto wide =
      static_cast<unsigned>(std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(p.columns, threads))));
  p.column_blocks = blocks_for(p.columns, wide);
  const dim3 block(wide, threads / wide);
  const unsigned grid = blocks_for(p.rows, static_cast<long long>(block.y) * rows_each) * p.column_blocks;
  launch(context, resize_rows<T, taps>, dim3(grid), block, 0, static_cast<const T*>(x), static_cast<T*>(y), table, p,
         beyond);
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

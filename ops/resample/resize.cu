#include <algorithm>
#include <bit>
#include <climits>
#include <type_traits>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/vector_bits.cuh"
#include "base/dtypes.h"
#include "ops/core/radix.cuh"
#include "ops/movement/access.cuh"
#include "ops/resample/resize_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// Items are units of access. A row of y has `columns` items, inner ones included.
struct ResizeItems {
  std::int64_t columns, rows_in, line;  ///< a line of x
  std::int64_t groups;                  ///< of neighbouring rows of y, of all `outer` together
  Radix groups_each, inner;             ///< groups of one of `outer`
  int rows_out;
  std::uint32_t column_blocks;
  int taps;
  bool narrow_groups, narrow_columns, reaches_beyond;
};

__device__ float times(float weight, float x) { return weight * x; }
__device__ float4 times(float weight, float4 x) {
  return make_float4(weight * x.x, weight * x.y, weight * x.z, weight * x.w);
}
__device__ Eight times(float weight, const Eight& x) { return {times(weight, x.low), times(weight, x.high)}; }

/// The type of the arithmetic; copied elements keep their type.
template <typename T, int taps>
using Blended = std::conditional_t<taps == 1, T, Loaded<T>>;

/// A thread's unit of stores.
template <typename T, int each>
struct alignas(sizeof(T) * each) Pack {
  T items[each];
};

/// A thread computes `each` adjacent columns of the rows of a group. `taps`: 1 copies items of any type, 0 is any
/// number. `lines` > 0: that many consecutive lines of x contain all inputs of a group's rows; each is read once, all
/// before the first use.
template <typename T, int taps, int each, int lines>
__global__ void __launch_bounds__(threads) resize_rows(const T* x, T* y, const ResizeTap* __restrict__ table,
                                                       const __grid_constant__ ResizeItems p, Blended<T, taps> beyond) {
  using Value = Blended<T, taps>;
  wait_for_previous();
  const std::uint32_t group_block = blockIdx.x / p.column_blocks;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x - group_block * p.column_blocks) * blockDim.x + threadIdx.x) * each;
  const std::int64_t group = static_cast<std::int64_t>(group_block) * blockDim.y + threadIdx.y;
  if (column >= p.columns || group >= p.groups) return;
  std::int64_t rest = column;
  const std::int64_t inside = each > 1 ? 0 : take_digit(rest, p.inner, p.narrow_columns);
  const std::int64_t stride = each > 1 ? 1 : p.inner.value;
  const int count = taps == 0 ? p.taps : taps;
  const ResizeTap* const of_column = table + (p.rows_out + rest) * count;
  constexpr int held = taps == 0 ? 1 : taps;
  ResizeTap known[each][held];
#pragma unroll
  for (int e = 0; e < each; ++e)
#pragma unroll
    for (int t = 0; t < taps; ++t) known[e][t] = of_column[e * count + t];

  std::int64_t outer = group;
  const int first = static_cast<int>(take_digit(outer, p.groups_each, p.narrow_groups)) * resize_group;
  const int rows = min(resize_group, p.rows_out - first);
  const T* const image = x + outer * p.rows_in * p.line + inside;
  T* const to = y + (outer * p.rows_out + first) * p.columns + column;
  const ResizeTap* const of_rows = table + first * count;

  const auto blend_line = [&](const T* line, Pack<Value, each>& blended) {
    if constexpr (taps == 1) {
#pragma unroll
      for (int e = 0; e < each; ++e) blended.items[e] = line[max(known[e][0].index, 0) * stride];
    } else {
      T read[each][held];
#pragma unroll
      for (int e = 0; e < each; ++e)
#pragma unroll
        for (int t = 0; t < taps; ++t) read[e][t] = line[max(known[e][t].index, 0) * stride];
#pragma unroll
      for (int e = 0; e < each; ++e) {
        Value part{};
#pragma unroll
        for (int t = 0; t < count; ++t) {
          const ResizeTap tap = taps == 0 ? of_column[t] : known[e][taps == 0 ? 0 : t];
          if (tap.weight == 0) continue;
          part = part + times(tap.weight, loaded(taps == 0 ? line[tap.index * stride] : read[e][taps == 0 ? 0 : t]));
        }
        blended.items[e] = part;
      }
    }
  };
  [[maybe_unused]] ResizeTap down[resize_group][held];
#pragma unroll
  for (int k = 0; k < resize_group; ++k)
#pragma unroll
    for (int t = 0; t < taps; ++t) down[k][t] = of_rows[min(k, rows - 1) * count + t];
  [[maybe_unused]] Pack<Value, each> blended[lines == 0 ? 1 : lines];
  [[maybe_unused]] int lowest = INT_MAX, highest = 0;
  if constexpr (lines > 0) {
#pragma unroll
    for (int k = 0; k < resize_group; ++k)
#pragma unroll
      for (int t = 0; t < taps; ++t)
        if (down[k][t].weight != 0) {
          lowest = min(lowest, down[k][t].index);
          highest = max(highest, down[k][t].index);
        }
    lowest = min(lowest, highest);  // of rows beyond the input alone
#pragma unroll
    for (int l = 0; l < lines; ++l) blend_line(image + min(lowest + l, highest) * p.line, blended[l]);
  }

#pragma unroll
  for (int k = 0; k < resize_group; ++k) {
    if (k >= rows) return;
    const bool row_beyond = (taps == 0 ? of_rows[k * count].index : down[k][0].index) < 0;
    Pack<Value, each> sum{};
#pragma unroll
    for (int r = 0; r < count; ++r) {
      const ResizeTap tap = taps == 0 ? of_rows[k * count + r] : down[k][taps == 0 ? 0 : r];
      if (tap.weight == 0) continue;
      Pack<Value, each> part;
      if constexpr (lines > 0) {
#pragma unroll
        for (int l = 0; l < lines; ++l)
          if (l == 0 || tap.index == lowest + l) part = blended[l];
      } else {
        blend_line(image + tap.index * p.line, part);
      }
      if constexpr (taps == 1)
        sum = part;
      else
#pragma unroll
        for (int e = 0; e < each; ++e) sum.items[e] = sum.items[e] + times(tap.weight, part.items[e]);
    }
#pragma unroll
    for (int e = 0; e < each; ++e)
      if (row_beyond || (taps == 0 ? of_column[0].index : known[e][0].index) < 0) sum.items[e] = beyond;
    Pack<T, each> stored;
#pragma unroll
    for (int e = 0; e < each; ++e) stored.items[e] = as_stored<T>(sum.items[e]);
    *reinterpret_cast<Pack<T, each>*>(to + k * p.columns) = stored;
  }
}

/// Pitch of a column of lines in shared memory, in fours: free of bank conflicts.
__host__ __device__ constexpr int plane_pitch(int rows) { return rows / 4 + 1; }

/// Rows of y per block of resize_planes, as many as its lines allow; 0: fewer than 8.
int plane_rows(std::int64_t columns_in) {
  constexpr std::int64_t room = 48 << 10;
  for (int rows = 32; rows >= 8; rows /= 2)
    if (columns_in * plane_pitch(rows) * static_cast<std::int64_t>(sizeof(float4)) <= room) return rows;
  return 0;
}

/// A block computes `rows_each` rows of y: first their lines at x's width, in shared memory, column by column, then
/// their columns; four rows per thread each time. Direct 2-D blending takes 65 instructions per element, mostly for
/// addresses: 181 us for 2x upsampling of 4096 planes of 56x56 on an H200, this 128, a copy 62.
template <typename T, int taps>
__global__ void __launch_bounds__(threads)
    resize_planes(const T* x, T* y, const ResizeTap* __restrict__ table, const __grid_constant__ ResizeItems p,
                  int rows_each, int line_threads, float beyond) {
  wait_for_previous();
  extern __shared__ float4 lines[];
  const int pitch = plane_pitch(rows_each);
  std::int64_t outer = blockIdx.x;
  const int first = static_cast<int>(take_digit(outer, p.groups_each, true)) * rows_each;
  const int rows = min(rows_each, p.rows_out - first), wide = static_cast<int>(p.line);
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const ResizeTap* const of_rows = table + first * taps;
  for (int c = thread % line_threads; c < wide; c += line_threads) {
    const T* const from = x + outer * p.rows_in * p.line + c;
    for (int k = thread / line_threads * 4; k < rows; k += threads / line_threads * 4) {
      ResizeTap down[4][taps];
      float read[4][taps], sums[4] = {};
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int t = 0; t < taps; ++t) down[r][t] = of_rows[min(k + r, rows - 1) * taps + t];
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int t = 0; t < taps; ++t) read[r][t] = loaded(from[max(down[r][t].index, 0) * p.line]);
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int t = 0; t < taps; ++t)
          if (down[r][t].weight != 0) sums[r] += down[r][t].weight * read[r][t];
      lines[c * pitch + k / 4] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    }
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += static_cast<int>(blockDim.x)) {
    ResizeTap along[taps];
#pragma unroll
    for (int t = 0; t < taps; ++t) along[t] = table[(p.rows_out + std::int64_t{c}) * taps + t];
    T* to = y + (outer * p.rows_out + first) * p.columns + c;
    for (int k = static_cast<int>(threadIdx.y) * 4; k < rows; k += static_cast<int>(blockDim.y) * 4) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int t = 0; t < taps; ++t)
        if (along[t].weight != 0) sum = sum + times(along[t].weight, lines[along[t].index * pitch + k / 4]);
      const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (k + r < rows)
          to[(k + r) * p.columns] = as_stored<T>(
              p.reaches_beyond && (along[0].index < 0 || of_rows[(k + r) * taps].index < 0) ? beyond : sums[r]);
    }
  }
}

/// From this many outputs on, fewer threads with more work each keep the device busy.
constexpr std::int64_t many = std::int64_t{1} << 19;

ResizeItems items_of(const ResizeLaunch& l, std::int64_t inner, std::int64_t group) {
  const std::int64_t groups_each = (l.rows_out + group - 1) / group;
  ResizeItems p;
  p.columns = l.columns_out * inner;
  p.rows_in = l.rows_in;
  p.line = l.columns_in * inner;
  p.groups = l.outer * groups_each;
  p.groups_each = Radix(groups_each);
  p.inner = Radix(inner);
  p.rows_out = static_cast<int>(l.rows_out);
  p.taps = l.taps;
  p.reaches_beyond = l.reaches_beyond;
  p.narrow_groups = p.groups < Radix::narrow_end;
  p.narrow_columns = p.columns < Radix::narrow_end;
  return p;
}

/// As many threads along `across` as needed, the rest of a block along rows.
dim3 block_of(std::int64_t across) {
  const auto wide = std::bit_ceil(static_cast<unsigned>(std::min<std::int64_t>(across, threads)));
  return {wide, threads / wide};
}

template <typename T, int taps, int each, int lines>
void launch_columns(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table,
                    Blended<T, taps> beyond, const void* x, void* y) {
  ResizeItems p = items_of(l, inner, resize_group);
  const dim3 block = block_of(p.columns / each);
  p.column_blocks = blocks_for(p.columns / each, block.x);
  const unsigned grid = blocks_for(p.groups, block.y) * p.column_blocks;
  launch(context, resize_rows<T, taps, each, lines>, dim3(grid), block, 0, static_cast<const T*>(x), static_cast<T*>(y),
         table, p, beyond);
}

template <typename T, int taps, int each>
void launch_lines(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table,
                  Blended<T, taps> beyond, const void* x, void* y) {
  if constexpr (taps == 1 || taps == 2) {
    if (l.group_lines <= 2) return launch_columns<T, taps, each, 2>(context, l, inner, table, beyond, x, y);
    if (l.group_lines <= 4) return launch_columns<T, taps, each, 4>(context, l, inner, table, beyond, x, y);
  }
  launch_columns<T, taps, each, 0>(context, l, inner, table, beyond, x, y);
}

template <typename T, int taps>
void launch_rows(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table,
                 Blended<T, taps> beyond, const void* x, void* y) {
  const bool is_large = inner == 1 && l.outer * l.rows_out * l.columns_out >= many;
  if constexpr (taps == 1 && sizeof(T) <= 4) {
    constexpr int each = 4;
    if (is_large && l.columns_out % each == 0 && quad_aligned(y))
      return launch_lines<T, taps, each>(context, l, inner, table, beyond, x, y);
  }
  if constexpr (taps > 1 && std::is_same_v<Loaded<T>, float>) {
    const int rows = plane_rows(l.columns_in);
    const ResizeItems p = items_of(l, 1, std::max(1, rows));
    if (is_large && rows > 0 && l.rows_out >= rows / 2 && p.narrow_groups && p.columns < Radix::narrow_end)
      return launch(context, resize_planes<T, taps>, dim3(static_cast<unsigned>(p.groups)), block_of(p.columns),
                    static_cast<std::size_t>(plane_pitch(rows) * p.line) * sizeof(float4), static_cast<const T*>(x),
                    static_cast<T*>(y), table, p, rows, static_cast<int>(block_of(p.line).x), beyond);
  }
  launch_lines<T, taps, 1>(context, l, inner, table, beyond, x, y);
}

template <typename T>
void launch_blend(const Context& context, const ResizeLaunch& l, std::int64_t inner, const ResizeTap* table,
                  Loaded<T> beyond, const void* x, void* y) {
  if (l.taps == 2) return launch_rows<T, 2>(context, l, inner, table, beyond, x, y);
  if (l.taps == 4) return launch_rows<T, 4>(context, l, inner, table, beyond, x, y);
  launch_rows<T, 0>(context, l, inner, table, beyond, x, y);
}

}  // namespace

void resize(const Context& context, const ResizeLaunch& l, DType dtype, const ResizeTap* table, float extrapolation,
            const void* x, void* y) {
  if (l.outer * l.rows_out * l.columns_out * l.inner == 0) return;
  if (l.taps > 1)
    return dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
      using Several = std::conditional_t<is_half<T>, EightHalves<T>, float4>;
      constexpr std::int64_t pack = sizeof(Several) / sizeof(T);
      if (l.inner % pack != 0 || !quad_aligned(x, y))
        return launch_blend<T>(context, l, l.inner, table, extrapolation, x, y);
      const float4 beyond = make_float4(extrapolation, extrapolation, extrapolation, extrapolation);
      if constexpr (is_half<T>)
        launch_blend<Several>(context, l, l.inner / pack, table, Eight{beyond, beyond}, x, y);
      else
        launch_blend<Several>(context, l, l.inner / pack, table, beyond, x, y);
    });
  const std::size_t element_bytes = dtype_bytes(dtype);
  const std::size_t bytes = access_bytes(l.inner, element_bytes, x, y);
  const auto inner = l.inner / static_cast<std::int64_t>(bytes / element_bytes);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(extrapolation);
  if (dtype == DType::f16) bits = f16_from_f32(extrapolation) * 0x10001U;
  if (dtype == DType::bf16) bits = bf16_from_f32(extrapolation) * 0x10001U;
  dispatch_access(bytes, [&]<typename T>(std::type_identity<T>) {
    T beyond{};  // of other elements than floats up to 32 bits there is none
    if constexpr (std::is_same_v<T, uint4>)
      beyond = make_uint4(bits, bits, bits, bits);
    else if constexpr (sizeof(T) >= 2)
      beyond = static_cast<T>(bits * (sizeof(T) == 8 ? 0x1'0000'0001 : 1));
    launch_rows<T, 1>(context, l, inner, table, beyond, x, y);
  });
}

}  // namespace lenslet::cuda

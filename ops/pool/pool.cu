#include "ops/pool/pool_cuda.h"

#include <algorithm>
#include <limits>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "ops/core/radix.cuh"

// A tensor is seen as [images, in0, in1, in2, depth]: depth is C in nhwc (in float4 where C and the addresses allow)
// and 1 in nchw, where a plane counts as an image. A thread makes one output, or four neighbouring channels of it;
// neighbouring threads walk along the depth, then along the line, so that a warp reads neighbours in both layouts.

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;

template <typename T>
struct Lowest {
  static constexpr T value = std::numeric_limits<T>::lowest();
};
template <>
struct Lowest<float> {
  static constexpr float value = -std::numeric_limits<float>::infinity();
};

template <typename T>
struct MaxFold {
  using Value = T;
  __device__ static T start() { return Lowest<T>::value; }
  __device__ static T join(T a, T b) { return b > a ? b : a; }
};
template <>
struct MaxFold<float> {
  using Value = float;
  __device__ static float start() { return Lowest<float>::value; }
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};
template <>
struct MaxFold<float4> {
  using Value = float4;
  __device__ static float4 start() {
    constexpr float least = Lowest<float>::value;
    return make_float4(least, least, least, least);
  }
  __device__ static float4 join(float4 a, float4 b) {
    return make_float4(fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w));
  }
};
template <typename T>
struct SumFold {
  using Value = T;
  __device__ static T start() { return T{}; }
  __device__ static T join(T a, T b) { return a + b; }
};

/// Which output a thread makes.
struct Outputs {
  Radix depth, line, lines, slices;  ///< slices: out[0]
  std::int64_t count = 0;
  bool narrow = true;

  struct Place {
    std::int64_t image, slice, line, column, channel;
  };
  __device__ Place place(std::int64_t output) const {
    Place at{};
    at.channel = take_digit(output, depth, narrow);
    at.column = take_digit(output, line, narrow);
    at.line = take_digit(output, lines, narrow);
    at.slice = take_digit(output, slices, narrow);
    at.image = output;
    return at;
  }
};

__device__ std::int64_t thread_index() { return static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; }

/// 2-D windows of side x side without dilation, which nearly all networks have: unrolled, all loads in flight at once.
struct SquareProblem {
  Outputs outputs;
  int height, width, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right;
};

template <typename Fold, int side>
__global__ void __launch_bounds__(threads) pool_square(const typename Fold::Value* x, typename Fold::Value* y,
                                                       const __grid_constant__ SquareProblem p, PoolKind kind) {
  using Value = typename Fold::Value;
  wait_for_previous();
  const std::int64_t output = thread_index();
  if (output >= p.outputs.count) return;
  const Outputs::Place at = p.outputs.place(output);
  const int top = static_cast<int>(at.line) * p.stride_h - p.pad_top;
  const int left = static_cast<int>(at.column) * p.stride_w - p.pad_left;
  const auto depth = static_cast<int>(p.outputs.depth.value);
  const Value* image = x + at.image * p.height * p.width * depth + at.channel;
  Value values[side][side];
  int lines = 0, columns = 0;
#pragma unroll
  for (int r = 0; r < side; ++r) {
    const bool on_line = top + r >= 0 && top + r < p.height;
    lines += on_line ? 1 : 0;
    const Value* line = image + static_cast<std::int64_t>(top + r) * p.width * depth;
#pragma unroll
    for (int s = 0; s < side; ++s) {
      const bool inside = on_line && left + s >= 0 && left + s < p.width;
      values[r][s] = inside ? line[static_cast<std::int64_t>(left + s) * depth] : Fold::start();
    }
  }
  Value total = Fold::start();
#pragma unroll
  for (int r = 0; r < side; ++r) {
    Value partial = values[r][0];
#pragma unroll
    for (int s = 1; s < side; ++s) partial = Fold::join(partial, values[r][s]);
    total = Fold::join(total, partial);
  }
  if constexpr (std::is_same_v<Fold, SumFold<Value>>) {
#pragma unroll
    for (int s = 0; s < side; ++s) columns += left + s >= 0 && left + s < p.width ? 1 : 0;
    if (kind == PoolKind::average_with_pads) {
      lines = min(side, p.height + p.pad_bottom - top);
      columns = min(side, p.width + p.pad_right - left);
    }
    total = total / static_cast<float>(max(1, lines * columns));
  }
  y[output] = total;
}

/// Any window in up to three dimensions.
struct Axis {
  std::int64_t in, kernel, stride, dilation, pad_begin, pad_end;
};
struct WindowProblem {
  Outputs outputs;
  Axis axes[3];
};

/// pool_taps on the device.
__device__ PoolTaps taps_of(const Axis& axis, std::int64_t out) {
  const auto steps = [&axis](std::int64_t length) {
    return axis.dilation == 1 ? length : (length + axis.dilation - 1) / axis.dilation;
  };
  const std::int64_t begin = out * axis.stride - axis.pad_begin;
  const std::int64_t skipped = begin < 0 ? steps(-begin) : 0;
  const auto reach = [&](std::int64_t end) {
    return end <= begin ? 0 : min(static_cast<long long>(axis.kernel), static_cast<long long>(steps(end - begin)));
  };
  PoolTaps taps;
  taps.first = begin + skipped * axis.dilation;
  taps.count = max(0LL, reach(axis.in) - static_cast<long long>(skipped));
  taps.padded = reach(axis.in + axis.pad_end);
  return taps;
}

struct Taps {
  PoolTaps d, h, w;
};

/// Calls tap(offset of the tap's element from the image's channel, in elements) for all taps; after each line
/// end_of_line().
template <typename Tap, typename EndOfLine>
__device__ void walk(const WindowProblem& p, const Taps& taps, const Tap& tap, const EndOfLine& end_of_line) {
  const std::int64_t depth = p.outputs.depth.value, step = p.axes[2].dilation * depth;
  if (taps.w.count == 0) return;
  for (std::int64_t i = 0; i < taps.d.count; ++i)
    for (std::int64_t j = 0; j < taps.h.count; ++j) {
      const std::int64_t slice = taps.d.first + i * p.axes[0].dilation, line = taps.h.first + j * p.axes[1].dilation;
      const std::int64_t at = ((slice * p.axes[1].in + line) * p.axes[2].in + taps.w.first) * depth;
      const auto count = static_cast<int>(taps.w.count);  // at most the width
#pragma unroll 4
      for (int k = 0; k < count; ++k) tap(at + k * step);
      end_of_line();
    }
}

__device__ Taps taps_at(const WindowProblem& p, const Outputs::Place& at) {
  return {taps_of(p.axes[0], at.slice), taps_of(p.axes[1], at.line), taps_of(p.axes[2], at.column)};
}

__device__ std::int64_t image_offset(const WindowProblem& p, const Outputs::Place& at) {
  return at.image * p.axes[0].in * p.axes[1].in * p.axes[2].in * p.outputs.depth.value + at.channel;
}

template <typename Fold>
__global__ void __launch_bounds__(threads)
    pool_max(const typename Fold::Value* x, typename Fold::Value* y, const __grid_constant__ WindowProblem p) {
  using Value = typename Fold::Value;
  wait_for_previous();
  const std::int64_t output = thread_index();
  if (output >= p.outputs.count) return;
  const Outputs::Place at = p.outputs.place(output);
  const Value* image = x + image_offset(p, at);
  Value top = Fold::start();
  walk(
      p, taps_at(p, at), [&](std::int64_t offset) { top = Fold::join(top, image[offset]); }, [] {});
  y[output] = top;
}

/// The first of equal maxima; nchw.
template <typename T>
__global__ void __launch_bounds__(threads)
    pool_max_indices(const T* x, T* y, std::int64_t* indices, const __grid_constant__ WindowProblem p) {
  wait_for_previous();
  const std::int64_t output = thread_index();
  if (output >= p.outputs.count) return;
  const Outputs::Place at = p.outputs.place(output);
  const std::int64_t start = image_offset(p, at);
  T top = Lowest<T>::value;
  std::int64_t index = -1;
  walk(
      p, taps_at(p, at),
      [&](std::int64_t offset) {
        const T value = x[start + offset];
        if (index >= 0 && !(value > top)) return;
        top = value;
        index = offset;
      },
      [] {});
  y[output] = top;
  indices[output] = start + max(static_cast<long long>(index), 0LL);
}

struct Total {
  double x = 0, y = 0, z = 0, w = 0;
  __device__ void add(float a) { x += static_cast<double>(a); }
  __device__ void add(float4 a) {
    x += static_cast<double>(a.x), y += static_cast<double>(a.y);
    z += static_cast<double>(a.z), w += static_cast<double>(a.w);
  }
  __device__ void mean(double count, float& a) const { a = static_cast<float>(x / count); }
  __device__ void mean(double count, float4& a) const {
    a = make_float4(static_cast<float>(x / count), static_cast<float>(y / count), static_cast<float>(z / count),
                    static_cast<float>(w / count));
  }
};

/// A line of the window is summed in float, the lines in double: large windows stay exact at one addition an element.
template <typename Value>
__global__ void __launch_bounds__(threads)
    pool_average(const Value* x, Value* y, const __grid_constant__ WindowProblem p, PoolKind kind) {
  wait_for_previous();
  const std::int64_t output = thread_index();
  if (output >= p.outputs.count) return;
  const Outputs::Place at = p.outputs.place(output);
  const Taps taps = taps_at(p, at);
  const Value* image = x + image_offset(p, at);
  Total total;
  Value partial{};
  walk(
      p, taps, [&](std::int64_t offset) { partial = partial + image[offset]; },
      [&] {
        total.add(partial);
        partial = Value{};
      });
  const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c) {
    return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
  };
  const double count = kind == PoolKind::average ? product(taps.d.count, taps.h.count, taps.w.count)
                                                 : product(taps.d.padded, taps.h.padded, taps.w.padded);
  total.mean(fmax(1.0, count), y[output]);
}

/// Tall 2-D windows that overlap: the lines of a tile are pooled once, into shared memory, and windows from those: R +
/// S loads an output and not R * S. A block makes a tile of depth * columns = 64 values times tile_lines lines.
constexpr int tile_values = 64, tile_lines = 16, tile_bytes_most = 40 << 10;

struct TileProblem {
  WindowProblem window;
  int depth_bits = 0;        ///< log2 of the depth of a tile
  int lines_in = 0;          ///< of a tile
  FastDivider across, down;  ///< tiles along the line with those along the depth, and along the lines
  FastDivider deep;          ///< tiles along the depth
};

template <typename Fold>
__global__ void __launch_bounds__(threads) pool_tile(const typename Fold::Value* x, typename Fold::Value* y,
                                                     const __grid_constant__ TileProblem p, PoolKind kind) {
  using Value = typename Fold::Value;
  wait_for_previous();
  extern __shared__ float4 pool_tile_shared[];
  auto* pooled = reinterpret_cast<Value*>(pool_tile_shared);
  const Axis &high = p.window.axes[1], &wide = p.window.axes[2];
  const std::int64_t depth = p.window.outputs.depth.value;
  const std::int64_t out_lines = p.window.outputs.lines.value, out_columns = p.window.outputs.line.value;
  const std::uint32_t flat = p.across.divide(blockIdx.x), image = p.down.divide(flat);
  const std::uint32_t along = blockIdx.x - flat * p.across.divisor(), column_tile = p.deep.divide(along);
  const int value = static_cast<int>(threadIdx.x) % tile_values, row = static_cast<int>(threadIdx.x) / tile_values;
  const std::int64_t channel =
      (std::int64_t{along - column_tile * p.deep.divisor()} << p.depth_bits) + (value & ((1 << p.depth_bits) - 1));
  const std::int64_t column = std::int64_t{column_tile} * (tile_values >> p.depth_bits) + (value >> p.depth_bits);
  const std::int64_t first_line = std::int64_t{flat - image * p.down.divisor()} * tile_lines;
  const std::int64_t top = first_line * high.stride - high.pad_begin;
  const bool inside = channel < depth && column < out_columns;
  PoolTaps columns;
  if (inside) {
    columns = taps_of(wide, column);
    const Value* from = x + (image * high.in * wide.in + columns.first) * depth + channel;
    for (int line = row; line < p.lines_in; line += threads / tile_values) {
      Value partial = Fold::start();
      if (top + line >= 0 && top + line < high.in) {
        const Value* at = from + (top + line) * wide.in * depth;
        const auto count = static_cast<int>(columns.count);
#pragma unroll 4
        for (int s = 0; s < count; ++s) partial = Fold::join(partial, at[s * wide.dilation * depth]);
      }
      pooled[line * tile_values + value] = partial;
    }
  }
  __syncthreads();
  if (!inside) return;
  for (int line = row; line < tile_lines && first_line + line < out_lines; line += threads / tile_values) {
    const PoolTaps lines = taps_of(high, first_line + line);
    const auto skipped = static_cast<int>(lines.first - top), step = static_cast<int>(high.dilation);
    const Value* at = pooled + skipped * tile_values + value;
    Value* to = y + ((image * out_lines + first_line + line) * out_columns + column) * depth + channel;
    const auto count = static_cast<int>(lines.count);
    if constexpr (std::is_same_v<Fold, SumFold<Value>>) {
      Total total;
      for (int r = 0; r < count; ++r) total.add(at[r * step * tile_values]);
      const double taps = kind == PoolKind::average
                              ? static_cast<double>(lines.count) * static_cast<double>(columns.count)
                              : static_cast<double>(lines.padded) * static_cast<double>(columns.padded);
      total.mean(fmax(1.0, taps), *to);
    } else {
      Value best = Fold::start();
#pragma unroll 4
      for (int r = 0; r < count; ++r) best = Fold::join(best, at[r * step * tile_values]);
      *to = best;
    }
  }
}

/// Queues pool_tile; false: not for this problem.
template <typename Fold>
bool launch_tile(const Context& context, PoolKind kind, const PoolProblem& p, std::int64_t images,
                 const WindowProblem& window, const void* x, void* y) {
  using Value = typename Fold::Value;
  const std::int64_t lines_in = (tile_lines - 1) * p.stride[1] + (p.kernel[1] - 1) * p.dilation[1] + 1;
  const std::int64_t bytes = lines_in * tile_values * static_cast<std::int64_t>(sizeof(Value));
  if (p.in[0] != 1 || p.kernel[0] != 1 || p.out[0] != 1 || p.kernel[1] < 2 * p.stride[1] || bytes > tile_bytes_most)
    return false;
  TileProblem tile{window, 0, static_cast<int>(lines_in), {}, {}, {}};
  const std::int64_t depth = window.outputs.depth.value;
  while (tile.depth_bits < 3 && 1 << tile.depth_bits < depth) ++tile.depth_bits;  // 128 bytes of float4
  const std::int64_t deep = (depth + (1 << tile.depth_bits) - 1) >> tile.depth_bits;
  const std::int64_t columns = tile_values >> tile.depth_bits, across = deep * ((p.out[2] + columns - 1) / columns);
  const std::int64_t down = (p.out[1] + tile_lines - 1) / tile_lines, blocks = images * across * down;
  if (blocks >= Radix::narrow_end) return false;
  tile.across = FastDivider(static_cast<std::uint32_t>(across));
  tile.down = FastDivider(static_cast<std::uint32_t>(down));
  tile.deep = FastDivider(static_cast<std::uint32_t>(deep));
  launch(context, pool_tile<Fold>, dim3(static_cast<unsigned>(blocks)), dim3(threads), static_cast<std::size_t>(bytes),
         static_cast<const Value*>(x), static_cast<Value*>(y), tile, kind);
  return true;
}

Outputs outputs_of(const PoolProblem& p, std::int64_t images, std::int64_t depth) {
  Outputs outputs;
  outputs.depth = Radix(depth);
  outputs.line = Radix(p.out[2]);
  outputs.lines = Radix(p.out[1]);
  outputs.slices = Radix(p.out[0]);
  outputs.count = images * p.out[0] * p.out[1] * p.out[2] * depth;
  outputs.narrow = outputs.count < Radix::narrow_end;
  return outputs;
}

/// Do the numbers of pool_square fit 32 bits with room for a stride?
bool is_square(const PoolProblem& p, int side, std::int64_t depth) {
  constexpr std::int64_t most = 1 << 28;
  bool fits = depth < most && p.in[0] == 1 && p.kernel[0] == 1 && p.out[0] == 1;
  for (std::size_t d = 1; d < 3; ++d)
    fits = fits && p.kernel[d] == side && p.dilation[d] == 1 && p.in[d] < most && p.stride[d] < most &&
           p.out[d] * p.stride[d] < most;
  return fits;
}

template <typename Fold, int side>
void launch_square(const Context& context, PoolKind kind, const PoolProblem& p, const Outputs& outputs, const void* x,
                   void* y) {
  using Value = typename Fold::Value;
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  const SquareProblem square{outputs,
                             narrow(p.in[1]),
                             narrow(p.in[2]),
                             narrow(p.stride[1]),
                             narrow(p.stride[2]),
                             narrow(p.pad_begin[1]),
                             narrow(p.pad_begin[2]),
                             narrow(p.pad_end[1]),
                             narrow(p.pad_end[2])};
  launch(context, pool_square<Fold, side>, dim3(blocks_for(outputs.count, threads)), dim3(threads), 0,
         static_cast<const Value*>(x), static_cast<Value*>(y), square, kind);
}

template <typename Value>
void pool_values(const Context& context, PoolKind kind, const PoolProblem& p, std::int64_t images, std::int64_t depth,
                 const void* x, void* y, std::int64_t* indices) {
  if (images * p.out[0] * p.out[1] * p.out[2] * depth == 0) return;
  const Outputs outputs = outputs_of(p, images, depth);
  WindowProblem window{outputs, {}};
  for (std::size_t d = 0; d < 3; ++d)
    window.axes[d] = {p.in[d], p.kernel[d], p.stride[d], p.dilation[d], p.pad_begin[d], p.pad_end[d]};
  const dim3 grid(blocks_for(outputs.count, threads)), block(threads);
  const auto* from = static_cast<const Value*>(x);
  auto* to = static_cast<Value*>(y);
  if constexpr (!std::is_same_v<Value, float4>)
    if (indices != nullptr) return launch(context, pool_max_indices<Value>, grid, block, 0, from, to, indices, window);
  if constexpr (std::is_same_v<Value, float> || std::is_same_v<Value, float4>) {
    for (const int side : {2, 3}) {
      if (!is_square(p, side, depth)) continue;
      const bool max = kind == PoolKind::max;
      if (side == 2)
        return max ? launch_square<MaxFold<Value>, 2>(context, kind, p, outputs, x, y)
                   : launch_square<SumFold<Value>, 2>(context, kind, p, outputs, x, y);
      return max ? launch_square<MaxFold<Value>, 3>(context, kind, p, outputs, x, y)
                 : launch_square<SumFold<Value>, 3>(context, kind, p, outputs, x, y);
    }
    if (kind == PoolKind::max ? launch_tile<MaxFold<Value>>(context, kind, p, images, window, x, y)
                              : launch_tile<SumFold<Value>>(context, kind, p, images, window, x, y))
      return;
    if (kind != PoolKind::max) return launch(context, pool_average<Value>, grid, block, 0, from, to, window, kind);
  }
  launch(context, pool_max<MaxFold<Value>>, grid, block, 0, from, to, window);
}

}  // namespace

void pool(const Context& context, PoolKind kind, const PoolProblem& problem, DType dtype, bool nhwc, const void* x,
          void* y, std::int64_t* indices) {
  const std::int64_t images = nhwc ? problem.n : problem.n * problem.c, depth = nhwc ? problem.c : 1;
  if (dtype == DType::i8) return pool_values<std::int8_t>(context, kind, problem, images, depth, x, y, indices);
  if (dtype == DType::u8) return pool_values<std::uint8_t>(context, kind, problem, images, depth, x, y, indices);
  if (indices == nullptr && depth % 4 == 0 && quad_aligned(x, y))
    return pool_values<float4>(context, kind, problem, images, depth / 4, x, y, nullptr);
  pool_values<float>(context, kind, problem, images, depth, x, y, indices);
}

}  // namespace lenslet::cuda

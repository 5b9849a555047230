#include "ops/pool/pool_kernels.h"

#include <algorithm>
#include <type_traits>

#include "base/cuda/launch.h"
#include "ops/pool/pool_square.cuh"
#include "ops/reduce/beats.h"

namespace lenslet::cuda {

namespace {

/// Any window in up to three dimensions.
struct WindowProblem {
  Outputs outputs;
  PoolProblem pool;
};

struct Taps {
  PoolTaps d, h, w;
};

/// Calls tap(offset of the tap from the image's channel, in elements) for all taps, and end_of_line() after each line.
template <typename Tap, typename EndOfLine>
__device__ void walk(const WindowProblem& p, const Taps& taps, const Tap& tap, const EndOfLine& end_of_line) {
  const std::int64_t pixel = p.outputs.pixel.x, step = p.pool.axes[2].dilation * pixel;
  if (taps.w.count == 0) return;
  for (std::int64_t i = 0; i < taps.d.count; ++i)
    for (std::int64_t j = 0; j < taps.h.count; ++j) {
      const std::int64_t slice = taps.d.first + i * p.pool.axes[0].dilation,
                         line = taps.h.first + j * p.pool.axes[1].dilation;
      const std::int64_t at = ((slice * p.pool.axes[1].in + line) * p.pool.axes[2].in + taps.w.first) * pixel;
      const auto count = static_cast<int>(taps.w.count);  // at most the width
#pragma unroll 4
      for (int k = 0; k < count; ++k) tap(at + k * step);
      end_of_line();
    }
}

__device__ Taps taps_at(const WindowProblem& p, const Outputs::Place& at) {
  return {p.pool.axes[0].taps(at.slice), p.pool.axes[1].taps(at.line), p.pool.axes[2].taps(at.column)};
}

__device__ std::int64_t image_offset(const WindowProblem& p, const Outputs::Place& at) {
  return at.image * p.pool.axes[0].in * p.pool.axes[1].in * p.pool.axes[2].in * p.outputs.pixel.x + at.channel;
}

// Folds: pool_windows calls add(x, offset of the tap) for an output's taps in order, end_of_line() after each line of
// the window, and finish(), which stores.

template <typename T>
struct Maximum {
  using Stored = T;
  using Value = typename MaxOf<T>::type;
  Value top = least<Value>();
  __device__ void add(Value x, std::int64_t) { top = greater(top, x); }
  __device__ void end_of_line() {}
  __device__ Value result(const Taps&, PoolKind) const { return top; }
};

/// With the position of the first maximum.
template <typename T>
struct IndexedMaximum {
  using Stored = T;
  using Value = Loaded<T>;
  Value top = least<Value>();
  std::int64_t index = -1;
  __device__ void add(Value x, std::int64_t offset) {
    if (index >= 0 && !beats(x, top)) return;
    top = x;
    index = offset;
  }
  __device__ void end_of_line() {}
  __device__ Value result(const Taps&, PoolKind) const { return top; }
};

struct Itself {
  __device__ double operator()(double a) const { return a; }
};
template <typename Value>
struct Total {
  double x = 0, y = 0, z = 0, w = 0;
  /// The sum of term(a), in double.
  template <typename Term = Itself>
  __device__ void add(float a, const Term& term = {}) {
    x += term(static_cast<double>(a));
  }
  template <typename Term = Itself>
  __device__ void add(float4 a, const Term& term = {}) {
    x += term(static_cast<double>(a.x)), y += term(static_cast<double>(a.y));
    z += term(static_cast<double>(a.z)), w += term(static_cast<double>(a.w));
  }
  /// Stores f(sum), rounded.
  template <typename F>
  __device__ float each(float, const F& f) const {
    return static_cast<float>(f(x));
  }
  template <typename F>
  __device__ float4 each(float4, const F& f) const {
    return make_float4(static_cast<float>(f(x)), static_cast<float>(f(y)), static_cast<float>(f(z)),
                       static_cast<float>(f(w)));
  }
};
template <>
struct Total<Eight> {
  Total<float4> low, high;
  template <typename Term = Itself>
  __device__ void add(Eight a, const Term& term = {}) {
    low.add(a.low, term), high.add(a.high, term);
  }
  template <typename F>
  __device__ Eight each(Eight, const F& f) const {
    return {low.each(float4{}, f), high.each(float4{}, f)};
  }
};
template <typename Value>
__device__ Value mean(const Total<Value>& total, double count) {
  return total.each(Value{}, [=](double sum) { return sum / count; });
}

/// Lines of the window are summed in float, their sums in double: large windows stay exact at one addition per element.
template <typename T>
struct Average {
  using Stored = T;
  using Value = Loaded<T>;
  Total<Value> total;
  Value partial{};
  __device__ void add(Value x, std::int64_t) { partial = partial + x; }
  __device__ void end_of_line() {
    total.add(partial);
    partial = Value{};
  }
  __device__ Value result(const Taps& taps, PoolKind kind) const {
    const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c) {
      return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
    };
    const double count = kind == PoolKind::average ? product(taps.d.count, taps.h.count, taps.w.count)
                                                   : product(taps.d.padded, taps.h.padded, taps.w.padded);
    return mean(total, fmax(1.0, count));
  }
};

/// Not inlined: it is long.
[[gnu::noinline]] __device__ double power(double base, double exponent) { return pow(base, exponent); }

template <typename T>
struct Norm {
  using Stored = T;
  using Value = Loaded<T>;
  std::int64_t p = 1;
  Total<Value> total;
  __device__ void add(Value x, std::int64_t) {
    total.add(x, [this](double a) {
      if (p == 2) return a * a;
      return p == 1 ? fabs(a) : power(fabs(a), static_cast<double>(p));
    });
  }
  __device__ void end_of_line() {}
  __device__ Value result(const Taps&, PoolKind) const {
    return total.each(Value{}, [this](double sum) {
      if (p == 2) return sqrt(sum);
      return p == 1 ? sum : power(sum, 1 / static_cast<double>(p));
    });
  }
};

template <typename Window, typename After = AsItIs>
__global__ void __launch_bounds__(threads)
    pool_windows(const typename Window::Stored* x, typename Window::Stored* y, std::int64_t* indices,
                 const __grid_constant__ WindowProblem p, PoolKind kind, const After after) {
  wait_for_previous();
  let_next_start();
  const std::int64_t output = thread_index();
  if (output >= p.outputs.count) return;
  const Outputs::Place at = p.outputs.place(output);
  const Taps taps = taps_at(p, at);
  const std::int64_t start = image_offset(p, at);
  const auto* image = x + start;
  Window window;
  if constexpr (std::is_same_v<Window, Norm<typename Window::Stored>>) window.p = p.pool.norm;
  walk(
      p, taps, [&](std::int64_t offset) { window.add(value_of<typename Window::Value>(image[offset]), offset); },
      [&] { window.end_of_line(); });
  y[at.stored] = as_stored<typename Window::Stored>(after(window.result(taps, kind), at));
  if constexpr (std::is_same_v<Window, IndexedMaximum<typename Window::Stored>>)
    indices[output] = start + (window.index < 0 ? 0 : p.pool.numbered(window.index));
}

/// Tall, overlapping 2-D windows: the lines of a tile are pooled once, into shared memory, and windows from those: R +
/// S loads per output instead of R * S. A block computes depth * columns = 64 values times tile_lines lines.
constexpr int tile_values = 64, tile_lines = 16, tile_bytes_most = 40 << 10;

struct TileProblem {
  WindowProblem window;
  int depth_bits = 0;        ///< log2 of the depth of a tile
  int lines_in = 0;          ///< of a tile
  FastDivider across, down;  ///< tiles along the line with those along the depth, and along the lines
  FastDivider deep;          ///< tiles along the depth
};

template <typename Fold>
__global__ void __launch_bounds__(threads) pool_tile(const typename Fold::Stored* x, typename Fold::Stored* y,
                                                     const __grid_constant__ TileProblem p, PoolKind kind) {
  using Value = typename Fold::Value;
  using Stored = typename Fold::Stored;
  using Partial = typename Fold::Partial;
  wait_for_previous();
  let_next_start();
  extern __shared__ float4 pool_tile_shared[];
  auto* pooled = reinterpret_cast<Partial*>(pool_tile_shared);
  const PoolAxis &high = p.window.pool.axes[1], &wide = p.window.pool.axes[2];
  const std::int64_t depth = p.window.outputs.depth.value;
  const PoolPixels& pixel = p.window.outputs.pixel;
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
    columns = wide.taps(column);
    const Stored* from = x + (image * high.in * wide.in + columns.first) * pixel.x + channel;
    for (int line = row; line < p.lines_in; line += threads / tile_values) {
      Value partial = Fold::start();
      if (top + line >= 0 && top + line < high.in) {
        const Stored* at = from + (top + line) * wide.in * pixel.x;
        const auto count = static_cast<int>(columns.count);
#pragma unroll 4
        for (int s = 0; s < count; ++s) partial = Fold::join(partial, value_of<Value>(at[s * wide.dilation * pixel.x]));
      }
      pooled[line * tile_values + value] = as_stored<Partial>(partial);
    }
  }
  __syncthreads();
  if (!inside) return;
  for (int line = row; line < tile_lines && first_line + line < out_lines; line += threads / tile_values) {
    const PoolTaps lines = high.taps(first_line + line);
    const auto skipped = static_cast<int>(lines.first - top), step = static_cast<int>(high.dilation);
    const Partial* at = pooled + skipped * tile_values + value;
    Stored* to = y + ((image * out_lines + first_line + line) * out_columns + column) * pixel.y + channel;
    const auto count = static_cast<int>(lines.count);
    if constexpr (Fold::sums) {
      Total<Value> total;
      for (int r = 0; r < count; ++r) total.add(at[r * step * tile_values]);
      const double taps = kind == PoolKind::average
                              ? static_cast<double>(lines.count) * static_cast<double>(columns.count)
                              : static_cast<double>(lines.padded) * static_cast<double>(columns.padded);
      *to = as_stored<Stored>(mean(total, fmax(1.0, taps)));
    } else {
      Value best = Fold::start();
#pragma unroll 4
      for (int r = 0; r < count; ++r) best = Fold::join(best, value_of<Value>(at[r * step * tile_values]));
      *to = as_stored<Stored>(best);
    }
  }
}

/// Queues pool_tile; false if it does not support the problem.
template <typename Fold>
bool launch_tile(const Context& context, PoolKind kind, const PoolProblem& p, std::int64_t images,
                 const WindowProblem& window, const typename Fold::Stored* x, typename Fold::Stored* y) {
  const PoolAxis &deepest = p.axes[0], &high = p.axes[1], &wide = p.axes[2];
  const std::int64_t lines_in = (tile_lines - 1) * high.stride + (high.kernel - 1) * high.dilation + 1;
  const std::int64_t bytes = lines_in * tile_values * static_cast<std::int64_t>(sizeof(typename Fold::Partial));
  if (deepest.in != 1 || deepest.kernel != 1 || deepest.out != 1 || high.kernel < 2 * high.stride ||
      bytes > tile_bytes_most)
    return false;
  TileProblem tile{window, 0, static_cast<int>(lines_in), {}, {}, {}};
  const std::int64_t depth = window.outputs.depth.value;
  while (tile.depth_bits < 3 && 1 << tile.depth_bits < depth) ++tile.depth_bits;  // 128 bytes of float4
  const std::int64_t deep = (depth + (1 << tile.depth_bits) - 1) >> tile.depth_bits;
  const std::int64_t columns = tile_values >> tile.depth_bits, across = deep * ((wide.out + columns - 1) / columns);
  const std::int64_t down = (high.out + tile_lines - 1) / tile_lines, blocks = images * across * down;
  if (blocks >= Radix::narrow_end) return false;
  tile.across = FastDivider(static_cast<std::uint32_t>(across));
  tile.down = FastDivider(static_cast<std::uint32_t>(down));
  tile.deep = FastDivider(static_cast<std::uint32_t>(deep));
  launch(context, pool_tile<Fold>, dim3(static_cast<unsigned>(blocks)), dim3(threads), static_cast<std::size_t>(bytes),
         x, y, tile, kind);
  return true;
}

Outputs outputs_of(const PoolProblem& p, std::int64_t images, std::int64_t depth, const PoolPixels& pixel) {
  Outputs outputs;
  outputs.depth = Radix(depth);
  outputs.line = Radix(p.axes[2].out);
  outputs.lines = Radix(p.axes[1].out);
  outputs.slices = Radix(p.axes[0].out);
  outputs.count = images * p.out() * depth;
  outputs.pixel = pixel;
  outputs.narrow = outputs.count < Radix::narrow_end;
  return outputs;
}

/// True if pool_square's numbers fit 32 bits, with a margin of a stride.
bool is_square(const PoolProblem& p, int side, std::int64_t pixel) {
  constexpr std::int64_t most = 1 << 28;
  bool fits = pixel < most && p.axes[0].in == 1 && p.axes[0].kernel == 1 && p.axes[0].out == 1;
  for (const PoolAxis& axis : {p.axes[1], p.axes[2]})
    fits = fits && axis.kernel == side && axis.dilation == 1 && axis.in < most && axis.stride < most &&
           axis.out * axis.stride < most && axis.pad_begin < most;
  // From an image's start to the farthest tap, before or behind it.
  const auto taps = [&](const PoolAxis& axis) {
    return static_cast<double>(std::max(axis.pad_begin, axis.out * axis.stride) + side);
  };
  const double line = static_cast<double>(p.axes[2].in) * static_cast<double>(pixel);
  return fits && taps(p.axes[1]) * line + taps(p.axes[2]) * static_cast<double>(pixel) < 0x1p31;
}

template <typename Fold>
void pool_floats(const Context& context, PoolKind kind, const PoolProblem& p, std::int64_t images,
                 const WindowProblem& window, const typename Fold::Stored* x, typename Fold::Stored* y) {
  using Stored = typename Fold::Stored;
  const dim3 grid(blocks_for(window.outputs.count, threads)), block(threads);
  if (kind == PoolKind::lp)
    return launch(context, pool_windows<Norm<Stored>>, grid, block, 0, x, y, nullptr, window, kind, AsItIs());
  for (const int side : {2, 3})
    if (is_square(p, side, window.outputs.pixel.x))
      return pool_squares<Fold>(context, side, {window.outputs, SquareAxis(p.axes[1]), SquareAxis(p.axes[2])}, kind, x,
                                y);
  if (launch_tile<Fold>(context, kind, p, images, window, x, y)) return;
  using Window = std::conditional_t<Fold::sums, Average<Stored>, Maximum<Stored>>;
  launch(context, pool_windows<Window>, grid, block, 0, x, y, nullptr, window, kind, AsItIs());
}

/// The average's difference: of the 3x3 windows that networks have, or any.
template <typename Stored>
void pool_difference(const Context& context, PoolKind kind, const PoolProblem& p, const WindowProblem& window,
                     const MinusInput<Stored>& after, Stored* y) {
  const dim3 grid(blocks_for(window.outputs.count, threads)), block(threads);
  if (is_square(p, 3, window.outputs.pixel.x)) {
    const SquareProblem square{window.outputs, SquareAxis(p.axes[1]), SquareAxis(p.axes[2])};
    return launch(context, pool_square<SumFold<Stored>, 3, MinusInput<Stored>>, grid, block, 0, after.x, y, square,
                  kind, after);
  }
  launch(context, pool_windows<Average<Stored>, MinusInput<Stored>>, grid, block, 0, after.x, y, nullptr, window, kind,
         after);
}

template <typename Stored>
void pool_values(const Context& context, PoolKind kind, const PoolProblem& p, std::int64_t images, std::int64_t depth,
                 const PoolPixels& pixel, const void* from, void* to, std::int64_t* indices,
                 const PoolDifference& difference) {
  if (images * p.out() * depth == 0) return;
  const WindowProblem window{outputs_of(p, images, depth, pixel), p};
  const auto* x = static_cast<const Stored*>(from);
  auto* y = static_cast<Stored*>(to);
  using Value = Loaded<Stored>;
  constexpr bool single = std::is_same_v<Value, float>, several = !single && !std::is_integral_v<Value>;
  if constexpr (single || several)
    if (difference.on) {
      MinusInput<Stored> after{x, static_cast<const Stored*>(difference.residual), difference.scale};
      after.scale_stored = difference.scale_dtype != DType::f32;
      after.x_pixel = pixel.x;
      after.residual_pixel = pixel.residual;
      after.planes = images / p.n;
      return pool_difference<Stored>(context, kind, p, window, after, y);
    }
  if constexpr (single || several)
    if (indices == nullptr)
      return kind == PoolKind::max ? pool_floats<MaxFold<Stored>>(context, kind, p, images, window, x, y)
                                   : pool_floats<SumFold<Stored>>(context, kind, p, images, window, x, y);
  if constexpr (!several)
    launch(context, indices != nullptr ? pool_windows<IndexedMaximum<Stored>> : pool_windows<Maximum<Stored>>,
           dim3(blocks_for(window.outputs.count, threads)), dim3(threads), 0, x, y, indices, window, kind, AsItIs());
}

}  // namespace

void pool(const Context& context, PoolKind kind, const PoolProblem& problem, DType dtype, bool nhwc,
          const PoolPixels& pixel, const void* x, void* y, std::int64_t* indices, const PoolDifference& difference) {
  const std::int64_t images = nhwc ? problem.n : problem.n * problem.c, depth = nhwc ? problem.c : 1;
  const PoolPixels step = nhwc ? pixel : PoolPixels{1, 1, 1};
  dispatch(dtype, WithHalves<PoolTypes>(), [&]<typename T>(std::type_identity<T>) {
    const auto several = [&]<typename Stored>(std::type_identity<Stored>) {
      constexpr std::int64_t count = sizeof(Stored) / sizeof(T);
      const bool whole = depth % count == 0 && step.x % count == 0 && step.y % count == 0 && step.residual % count == 0;
      const bool aligned = quad_aligned(x, y, difference.scale, difference.residual);
      if (indices != nullptr || !whole || !aligned) return false;
      pool_values<Stored>(context, kind, problem, images, depth / count,
                          {step.x / count, step.y / count, step.residual / count}, x, y, nullptr, difference);
      return true;
    };
    if constexpr (std::is_same_v<T, float>)
      if (several(std::type_identity<float4>())) return;
    if constexpr (is_half<T>)
      if (several(std::type_identity<EightHalves<T>>())) return;
    pool_values<T>(context, kind, problem, images, depth, step, x, y, indices, difference);
  });
}

}  // namespace lenslet::cuda

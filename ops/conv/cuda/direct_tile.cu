// A block a spatial tile, NHWC: the input tile with its halo and the filters lie in shared memory, a thread keeps 4
// neighbouring outputs of up to 8 filters in registers. For few input channels and filters up to 11x11.
//
// A warp computes 4 rows of 32 columns of one group of filters, so that all its threads want the same weight at the
// same time. In shared memory a row of one input channel is cut by column modulo stride_w into phases: whatever the
// stride, neighbouring outputs then read neighbouring floats.

#include <algorithm>
#include <cmath>
#include <string>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/direct_limits.h"
#include "ops/conv/cuda/filter_groups.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {
namespace {

constexpr int warp_rows = 4, warp_columns = 32;  ///< outputs of one filter that a warp computes
constexpr int thread_columns = 4;
constexpr int max_warps = 8, max_threads = 32 * max_warps;
/// Bytes of a block with all channels at once, and with two chunks of them in turn: three and two blocks a
/// multiprocessor of an H200; devices of compute capability 8.6 and 8.9 give a block 99 KiB.
constexpr std::int64_t whole_bytes = 72 << 10, chunked_bytes = 96 << 10;

/// How a problem is cut up. Sizes of shared memory in floats.
struct Tiling {
  int filters_a_group = 8;         ///< 6 or 8, whichever leaves fewer places empty
  bool window = false;             ///< a kernel that knows s and stride_w; else the one for everything
  int warps_p = 1, warps_k = 1;    ///< of a block: along rows of output, and groups of filters
  int chunk = 1, stages = 1;       ///< input channels in shared memory at once; 2 stages: while the next are loaded
  int rows = 1, columns = 1;       ///< input tile
  int phase_pitch = 4, pitch = 4;  ///< floats of a phase and of a row
  std::int64_t x_floats = 0, w_floats = 0;  ///< a stage's
  int output_pitch = 8;                     ///< floats from pixel to pixel of the sums on their way out
  std::int64_t bytes = 0;                   ///< all shared memory of a block
};

/// The kernels' arguments: x [N][height][width][C], w as prepare_groups() makes it, y and residual [N][p][q][K]; bias
/// and residual may be null.
struct TileCall {
  const float *x, *w, *bias, *residual;
  float* y;
  int c, height, width, k, p, q, r, s;
  int stride_h, stride_w, dilation_h, pad_top, pad_left;
  int groups;  ///< of filters, in all
  int warps_p, warps_k, chunk, rows, columns, phase_pitch, pitch, x_floats, w_floats, output_pitch;
  int tap[max_kernel];  ///< where column s of a filter's window lies in a row, from the output's column on
  FastDivider tiles_q, tiles_p, quads_a_tap, vectors_a_pixel;
  bool vectors;  ///< y and residual can be accessed by vectors
  DeviceActivation activation;
};

/// Copies 4 or 16 bytes to shared memory in the background, or writes zeros there without reading.
template <int bytes>
__device__ void copy_async(float* to, const float* from, bool inside) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(bytes),
               "r"(inside ? bytes : 0)
               : "memory");
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for this thread's copies but those of the last `left` commits.
template <int left>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/// The input tile whose corner is (top, left), channels [first, first + channels): to[channel][row][phase][column].
/// Pads are zeros. A thread stays in its column, so that positions are worked out once for all rows.
__device__ void stage_input(const TileCall& call, const float* image, float* to, int first, int channels, int top,
                            int left) {
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int floats = call.columns * channels;  // a row of the tile, consecutive in memory when all channels are in it
  const int slots = min(threads, floats), rows_at_once = threads / slots;
  const int first_row = thread / slots;
  if (first_row >= rows_at_once) return;
  const int line = call.width * call.c;
  for (int i = thread % slots; i < floats; i += slots) {
    const int column = i / channels, c = i % channels, w = left + column;
    const bool column_inside = w >= 0 && w < call.width;
    const float* from = image + w * call.c + first + c;
    float* at = to + c * call.rows * call.pitch + column % call.stride_w * call.phase_pitch + column / call.stride_w;
    for (int row = first_row; row < call.rows; row += rows_at_once) {
      const int h = top + row;
      const bool inside = column_inside && h >= 0 && h < call.height;
      copy_async<4>(at + row * call.pitch, inside ? from + h * line : image, inside);
    }
  }
}

/// The weights of channels [first, first + channels) of the block's groups: to[channel][r][s][warps_k][8].
__device__ void stage_filters(const TileCall& call, float* to, int first, int channels, int first_group) {
  const int taps = call.r * call.s;
  const int quads = channels * taps * call.warps_k * (group_floats / 4);
  for (int i = static_cast<int>(threadIdx.x); i < quads; i += static_cast<int>(blockDim.x)) {
    int tap = i;
    const int quad = call.quads_a_tap.split(tap);
    const bool inside = first_group + quad / 2 < call.groups;
    const int from = ((first * taps + tap) * call.groups + first_group) * group_floats + quad * 4;
    copy_async<16>(to + i * 4, call.w + (inside ? from : 0), inside);
  }
}

template <int filters>
__device__ void load_weights(float (&w)[filters], const float* from) {
  const float4 low = *reinterpret_cast<const float4*>(from);
  w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w;
  if constexpr (filters == 8) {
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    w[4] = high.x, w[5] = high.y, w[6] = high.z, w[7] = high.w;
  } else {
    const float2 high = *reinterpret_cast<const float2*>(from + 4);
    w[4] = high.x, w[5] = high.y;
  }
}

/// One row of the filters' windows, size and stride known: the thread's outputs are columns 4*lane .. 4*lane+3, whose
/// windows overlap in registers. `x` is at column 4*lane of phase 0, `w` at the row's first weight.
template <int size, int stride, int filters>
__device__ void add_window(float (&sums)[thread_columns][filters], const TileCall& call, const float* x,
                           const float* w) {
  constexpr int quads = ((size + stride - 1) / stride + thread_columns - 1 + 3) / 4;  // of the longest phase
  float window[stride][4 * quads];
#pragma unroll
  for (int phase = 0; phase < stride; ++phase)
#pragma unroll
    for (int i = 0; i < quads; ++i)
      *reinterpret_cast<float4*>(&window[phase][4 * i]) =
          *reinterpret_cast<const float4*>(x + phase * call.phase_pitch + 4 * i);
#pragma unroll
  for (int s = 0; s < size; ++s) {
    float weights[filters];
    load_weights(weights, w + s * call.warps_k * group_floats);
#pragma unroll
    for (int j = 0; j < thread_columns; ++j)
#pragma unroll
      for (int k = 0; k < filters; ++k) sums[j][k] = fmaf(window[s % stride][s / stride + j], weights[k], sums[j][k]);
  }
}

/// The same for any size, stride and dilation: the outputs are columns lane, lane+8, lane+16, lane+24, which a warp
/// reads without bank conflicts.
template <int filters>
__device__ void add_taps(float (&sums)[thread_columns][filters], const TileCall& call, const float* x, const float* w) {
#pragma unroll 2
  for (int s = 0; s < call.s; ++s) {
    float weights[filters];
    load_weights(weights, w + s * call.warps_k * group_floats);
#pragma unroll
    for (int j = 0; j < thread_columns; ++j) {
      const float value = x[call.tap[s] + 8 * j];
#pragma unroll
      for (int k = 0; k < filters; ++k) sums[j][k] = fmaf(value, weights[k], sums[j][k]);
    }
  }
}

template <int vector>
struct alignas(vector * sizeof(float)) Vector {
  float values[vector];
};

/// Bias, residual and activation of neighbouring filters of one output, and the store; `at` counts floats in y's image.
template <int vector>
__device__ void finish(const TileCall& call, Vector<vector> sums, int image, int at, int k) {
  const std::int64_t offset = static_cast<std::int64_t>(image) * call.p * call.q * call.k + at;
  const int count = min(vector, call.k - k);
  Vector<vector> residual{};
  if (call.residual != nullptr) {
    if (call.vectors) {
      residual = *reinterpret_cast<const Vector<vector>*>(call.residual + offset);
    } else {
#pragma unroll
      for (int i = 0; i < vector; ++i)
        if (i < count) residual.values[i] = call.residual[offset + i];
    }
  }
#pragma unroll
  for (int i = 0; i < vector; ++i) {
    if (call.bias != nullptr && i < count) sums.values[i] += call.bias[k + i];
    sums.values[i] = call.activation(sums.values[i] + residual.values[i]);
  }
  if (call.vectors) {
    *reinterpret_cast<Vector<vector>*>(call.y + offset) = sums;
    return;
  }
#pragma unroll
  for (int i = 0; i < vector; ++i)
    if (i < count) call.y[offset + i] = sums.values[i];
}

/// size 0: add_taps.
template <int size, int stride, int filters>
__global__ void __launch_bounds__(max_threads, 2) direct_tile(const __grid_constant__ TileCall call) {
  wait_for_previous();
  extern __shared__ float4 shared_quads[];
  auto* shared = reinterpret_cast<float*>(shared_quads);

  int image = static_cast<int>(blockIdx.x);
  const int first_q = call.tiles_q.split(image) * warp_columns;
  const int first_p = call.tiles_p.split(image) * warp_rows * call.warps_p;
  const int first_group = static_cast<int>(blockIdx.y) * call.warps_k;
  const int top = first_p * call.stride_h - call.pad_top, left = first_q * call.stride_w - call.pad_left;
  const float* x = call.x + static_cast<std::int64_t>(image) * call.height * call.width * call.c;

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp % call.warps_p * warp_rows + lane / 8, lane_q = lane % 8, group = warp / call.warps_p;

  const int stage_floats = call.x_floats + call.w_floats;
  const auto stage = [&](int first, int index) {
    float* to = shared + index * stage_floats;
    const int channels = min(call.chunk, call.c - first);
    stage_input(call, x, to, first, channels, top, left);
    stage_filters(call, to + call.x_floats, first, channels, first_group);
    commit_copies();
  };

  float sums[thread_columns][filters] = {};
  stage(0, 0);
  int current = 0;
  for (int first = 0; first < call.c; first += call.chunk, current ^= 1) {
    if (first + call.chunk < call.c) {
      stage(first + call.chunk, current ^ 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    const int channels = min(call.chunk, call.c - first);
    const float* tile = shared + current * stage_floats + row * call.stride_h * call.pitch +
                        (size == 0 ? lane_q : thread_columns * lane_q);
    const float* w = shared + current * stage_floats + call.x_floats + group * group_floats;
    for (int c = 0; c < channels; ++c, tile += call.rows * call.pitch)
#pragma unroll 1
      for (int r = 0; r < call.r; ++r, w += call.s * call.warps_k * group_floats) {
        const float* line = tile + r * call.dilation_h * call.pitch;
        if constexpr (size == 0)
          add_taps(sums, call, line, w);
        else
          add_window<size, stride>(sums, call, line, w);
      }
    __syncthreads();  // the next copies, or the sums, go where this was read
  }

  // The sums leave through shared memory, so that neighbouring threads store neighbouring filters. A pixel's place in
  // its row is 8*j + lane_q, which with an odd number of vectors from pixel to pixel has no bank conflicts.
  constexpr int vector = filters == 8 ? 4 : 2;
#pragma unroll
  for (int j = 0; j < thread_columns; ++j) {
    float* to = shared + (row * warp_columns + 8 * j + lane_q) * call.output_pitch + group * filters;
#pragma unroll
    for (int k = 0; k < filters; k += vector) {
      Vector<vector> some;
#pragma unroll
      for (int i = 0; i < vector; ++i) some.values[i] = sums[j][k + i];
      *reinterpret_cast<Vector<vector>*>(to + k) = some;
    }
  }
  __syncthreads();
  const int vectors = call.warps_p * warp_rows * warp_columns * call.warps_k * (filters / vector);
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += static_cast<int>(blockDim.x)) {
    int pixel = i;
    const int k_in_block = call.vectors_a_pixel.split(pixel) * vector, k = first_group * filters + k_in_block;
    const int column = pixel % warp_columns, line = pixel / warp_columns;
    const int p = first_p + line, q = first_q + column;
    if (p >= call.p || q >= call.q || k >= call.k) continue;
    const int place = size == 0 ? column : column % thread_columns * 8 + column / thread_columns;
    const float* from = shared + (line * warp_columns + place) * call.output_pitch + k_in_block;
    finish(call, *reinterpret_cast<const Vector<vector>*>(from), image, (p * call.q + q) * call.k + k, k);
  }
}

using Kernel = void (*)(TileCall);

/// The kernels that know width and stride of their filters, with 6 and 8 filters a group.
struct Window {
  int size, stride;
  Kernel six, eight;
};
template <int size, int stride>
constexpr Window window{size, stride, direct_tile<size, stride, 6>, direct_tile<size, stride, 8>};
constexpr Window windows[] = {window<3, 1>, window<5, 1>, window<6, 1>, window<7, 1>,
                              window<3, 2>, window<5, 2>, window<7, 2>};
constexpr Window any_window = window<0, 1>;

const Window& window_for(const ConvProblem& p) {
  for (const Window& known : windows)
    if (p.s == known.size && p.stride_w == known.stride && p.dilation_w == 1) return known;
  return any_window;
}

constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

int filters_a_group(const ConvProblem& p) { return round_up(p.k, 6) < round_up(p.k, 8) ? 6 : 8; }

std::int64_t block_count(const ConvProblem& p, const Tiling& t) {
  return p.n * group_count(p.p, t.warps_p * warp_rows) * group_count(p.q, warp_columns) *
         group_count(group_count(p.k, t.filters_a_group), t.warps_k);
}

/// Fills in what follows from warps_p and warps_k. False: not even one channel fits into shared memory.
bool lay_out(const ConvProblem& p, Tiling& t) {
  const std::int64_t rows = (t.warps_p * warp_rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
  const std::int64_t columns = (warp_columns - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1;
  const std::int64_t phase_pitch = round_up((columns + p.stride_w - 1) / p.stride_w, 4);
  std::int64_t pitch = p.stride_w * phase_pitch;
  // The four rows of a warp, 8 floats each, in different banks.
  if (!t.window)
    for (int more = 0; more < 32; ++more)
      if (const std::int64_t banks = p.stride_h * (pitch + more) % 32; banks == 8 || banks == 24) {
        pitch += more;
        break;
      }
  const double channel_floats = static_cast<double>(rows) * static_cast<double>(pitch) +
                                static_cast<double>(p.r * p.s * t.warps_k * group_floats);
  // Room for rounding up to whole quads.
  const auto channels_in = [&](std::int64_t bytes) {
    return static_cast<std::int64_t>((static_cast<double>(bytes) / sizeof(float) - 8) / channel_floats);
  };
  t.stages = 1;
  std::int64_t chunk = p.c;
  if (channels_in(whole_bytes) < p.c) {
    t.stages = 2;
    const std::int64_t most = channels_in(chunked_bytes / 2);
    if (most < 1) return false;
    chunk = group_count(p.c, static_cast<int>(group_count(p.c, static_cast<int>(std::min(most, p.c)))));
  }
  t.chunk = static_cast<int>(chunk);
  t.rows = static_cast<int>(rows);
  t.columns = static_cast<int>(columns);
  t.phase_pitch = static_cast<int>(phase_pitch);
  t.pitch = static_cast<int>(pitch);
  t.x_floats = round_up(chunk * rows * pitch, 4);
  t.w_floats = chunk * p.r * p.s * t.warps_k * group_floats;
  const int vector = t.filters_a_group == 8 ? 4 : 2;
  const int vectors_a_pixel = t.warps_k * t.filters_a_group / vector;
  t.output_pitch = vector * (vectors_a_pixel | 1);
  const std::int64_t output_floats = t.warps_p * warp_rows * warp_columns * t.output_pitch;
  t.bytes = 4 * std::max(t.stages * (t.x_floats + t.w_floats), output_floats);
  return true;
}

/// Large blocks share more of the halo and of the filters, as long as there are blocks for every multiprocessor.
std::optional<Tiling> tiling_of(const ConvProblem& p, int multiprocessors) {
  Tiling t;
  t.filters_a_group = filters_a_group(p);
  t.window = window_for(p).size != 0;
  t.warps_k = static_cast<int>(std::min<std::int64_t>(group_count(p.k, t.filters_a_group), max_warps));
  t.warps_p = t.warps_k <= 2 ? 4 : t.warps_k <= 4 ? 2 : 1;
  while (t.warps_p > 1 && block_count(p, t) < 2 * multiprocessors) t.warps_p /= 2;
  while (t.warps_k > 1 && block_count(p, t) < multiprocessors / 2) t.warps_k = (t.warps_k + 1) / 2;
  while (!lay_out(p, t)) {
    if (t.warps_p == 1 && t.warps_k == 1) return std::nullopt;
    if (t.warps_p > 1)
      t.warps_p /= 2;
    else
      t.warps_k = (t.warps_k + 1) / 2;
  }
  return t;
}

class DirectTile final : public ConvAlgorithm {
 public:
  DirectTile(std::string_view name, bool padded) : name_(name), padded_(padded) {}
  std::string_view name() const override { return name_; }
  Format format() const override { return formats::nhwc; }
  bool wants_padded() const override { return padded_; }

  std::optional<std::string> refuse(const ConvProblem& p) const override {
    if (padded_ && !p.padded()) return "no pads: the same as direct_tile";
    if (auto reason = refuse_direct(p)) return reason;
    if (!tiling_of(p, 1)) return "one channel of an input tile does not fit into shared memory";
    return std::nullopt;
  }

  double tolerance(const ConvProblem& problem) const override { return direct_tolerance(problem); }

  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    // Share of the peak with the multiprocessors full, the warps that fill one, the copies that such a one starts in a
    // us, and the wait for the first tile. Within 15 % on 17 of 18 layers measured on an H200, 8 to 117 us.
    constexpr double window_share = 0.77, taps_share = 0.21, warps_to_fill = 8, copies_a_us = 6250, start_us = 3.9;
    const Tiling t = *tiling_of(p, rates.threads);
    const auto blocks = static_cast<double>(block_count(p, t)), channels = static_cast<double>(p.c);
    const auto taps = static_cast<double>(p.r * p.s);
    const double warps = blocks * t.warps_p * t.warps_k;
    const double issued = 2 * warps * warp_rows * warp_columns * t.filters_a_group * channels * taps;
    // The input by floats, the filters by fours.
    const double copies = blocks * channels * (t.rows * t.columns + taps * t.warps_k * (group_floats / 4));
    const double filled = std::min(1.0, warps / (warps_to_fill * rates.threads));
    double us = rates.launch_us + start_us +
                issued / (filled * (t.window ? window_share : taps_share) * rates.flops_per_us) +
                copies / (filled * copies_a_us * rates.threads) + p.bytes() / rates.bytes_per_us;
    if (padded_) {
      constexpr double pad_start_us = 0.5;
      const ConvProblem padded = p.with_explicit_padding();
      us += rates.launch_us + pad_start_us +
            4.0 * static_cast<double>(p.n * p.c) * static_cast<double>(p.h * p.w + padded.h * padded.w) /
                rates.bytes_per_us;
    }
    return us;
  }

  std::size_t workspace_bytes(const ConvProblem&, int) const override { return 0; }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const override {
    return prepare_groups(problem, filter, filters_a_group(problem));
  }

  void run(const ConvRun& run) const override {
    const ConvProblem& p = run.problem;
    const Tiling t = *tiling_of(p, run.cuda->multiprocessors);
    const auto integer = [](std::int64_t value) { return static_cast<int>(value); };
    const int vector = t.filters_a_group == 8 ? 4 : 2;
    const auto misaligned = [&](const float* at) {
      return reinterpret_cast<std::uintptr_t>(at) % (static_cast<unsigned>(vector) * sizeof(float)) != 0;
    };
    TileCall call{.x = run.x,
                  .w = static_cast<const DeviceFilter&>(*run.filter).w.data(),
                  .bias = run.bias,
                  .residual = run.residual,
                  .y = run.y,
                  .c = integer(p.c),
                  .height = integer(p.h),
                  .width = integer(p.w),
                  .k = integer(p.k),
                  .p = integer(p.p),
                  .q = integer(p.q),
                  .r = integer(p.r),
                  .s = integer(p.s),
                  .stride_h = integer(p.stride_h),
                  .stride_w = integer(p.stride_w),
                  .dilation_h = integer(p.dilation_h),
                  .pad_top = integer(p.pad_top),
                  .pad_left = integer(p.pad_left),
                  .groups = integer(group_count(p.k, t.filters_a_group)),
                  .warps_p = t.warps_p,
                  .warps_k = t.warps_k,
                  .chunk = t.chunk,
                  .rows = t.rows,
                  .columns = t.columns,
                  .phase_pitch = t.phase_pitch,
                  .pitch = t.pitch,
                  .x_floats = integer(t.x_floats),
                  .w_floats = integer(t.w_floats),
                  .output_pitch = t.output_pitch,
                  .tap = {},
                  .tiles_q = FastDivider(group_count(p.q, warp_columns)),
                  .tiles_p = FastDivider(group_count(p.p, t.warps_p * warp_rows)),
                  .quads_a_tap = FastDivider(t.warps_k * (group_floats / 4)),
                  .vectors_a_pixel = FastDivider(t.warps_k * t.filters_a_group / vector),
                  .vectors = p.k % vector == 0 && !misaligned(run.y) && !misaligned(run.residual),
                  .activation = DeviceActivation(p.activation)};
    for (std::int64_t s = 0; s < p.s; ++s) {
      const std::int64_t column = s * p.dilation_w;
      call.tap[s] = integer(column % p.stride_w * t.phase_pitch + column / p.stride_w);
    }
    const Kernel kernel = t.filters_a_group == 8 ? window_for(p).eight : window_for(p).six;
    const auto bytes = static_cast<std::size_t>(t.bytes);
    allow_shared_bytes(kernel, bytes);
    const auto tiles =
        static_cast<unsigned>(p.n * group_count(p.p, t.warps_p * warp_rows) * group_count(p.q, warp_columns));
    const auto blocks_k = static_cast<unsigned>(group_count(call.groups, t.warps_k));
    launch(*run.cuda, kernel, dim3(tiles, blocks_k), static_cast<unsigned>(32 * t.warps_p * t.warps_k), bytes, call);
  }

 private:
  std::string_view name_;
  bool padded_;
};

}  // namespace

const ConvAlgorithm& conv_direct_tile() {
  static const DirectTile algorithm("direct_tile", false);
  return algorithm;
}

const ConvAlgorithm& conv_direct_tile_padded() {
  static const DirectTile algorithm("direct_tile_padded", true);
  return algorithm;
}

}  // namespace lenslet::cuda

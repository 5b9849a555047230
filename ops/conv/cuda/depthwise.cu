// Depthwise convolution in NHWC: every output channel reads one input channel. 3x3 and 5x5 with stride 1 or 2 go by
// four channels and a few neighbouring outputs a thread, which share the columns and rows that they read; everything
// else goes an output at a time.

#include <cmath>
#include <span>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "ops/conv/cpu/packed_filter.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/device_filter.h"
#include "ops/conv/cuda/index_range.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {
namespace {

constexpr int max_threads = 128;

/// x [N][height][width][C], y and residual [N][p][q][K], w [R][S][K]; bias and residual may be null. An item is what
/// one thread computes; items count channels first, then tiles along q, tiles along p, images.
struct DepthwiseCall {
  const float *x, *w, *bias, *residual;
  float* y;
  int c, height, width, k, p, q;
  int r, s, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int items;
  FastDivider channel_groups, tiles_q, tiles_p, multiplier;
  DeviceActivation activation;
};

/// Where an item lies.
struct Place {
  int channel, q, p, image;
  __device__ Place(const DepthwiseCall& call, int item, int lanes, int tile_p, int tile_q) {
    channel = call.channel_groups.split(item) * lanes;
    q = call.tiles_q.split(item) * tile_q;
    p = call.tiles_p.split(item) * tile_p;
    image = item;
  }
};

template <typename Vector>
__device__ Vector zero();
template <>
__device__ float zero<float>() {
  return 0;
}
template <>
__device__ float4 zero<float4>() {
  return {0, 0, 0, 0};
}

__device__ void multiply_add(float& sum, float x, float w) { sum = fmaf(x, w, sum); }
__device__ void multiply_add(float4& sum, float4 x, float4 w) {
  sum = {fmaf(x.x, w.x, sum.x), fmaf(x.y, w.y, sum.y), fmaf(x.z, w.z, sum.z), fmaf(x.w, w.w, sum.w)};
}
__device__ void add(float& sum, float x) { sum += x; }
__device__ void add(float4& sum, float4 x) { sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w}; }

template <typename Vector>
__device__ const Vector& vector_at(const float* from) {
  return *reinterpret_cast<const Vector*>(from);
}

/// Four floats, or zeros without a read. Predicated by hand: as an `if` it can become a branch, which ends the run of
/// loads that are under way together.
__device__ float4 load_or_zero(const float* from, bool inside) {
  float4 v;
  asm volatile(
      "{\n"
      "  .reg .pred inside;\n"
      "  setp.ne.s32 inside, %5, 0;\n"
      "  mov.f32 %0, 0f00000000;\n"
      "  mov.f32 %1, 0f00000000;\n"
      "  mov.f32 %2, 0f00000000;\n"
      "  mov.f32 %3, 0f00000000;\n"
      "  @inside ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "l"(from), "r"(static_cast<int>(inside)));
  return v;
}

/// The bias of the channels from `channel` on: what sums start from. Where a model's bias lies is not for us to say, so
/// it is read by single floats.
__device__ void start(float& sum, const float* bias, int channel) { sum = bias == nullptr ? 0 : bias[channel]; }
__device__ void start(float4& sum, const float* bias, int channel) {
  sum = zero<float4>();
  if (bias == nullptr) return;
  bias += channel;
  sum = {bias[0], bias[1], bias[2], bias[3]};
}

/// Adds the residual, activates and stores; `at` counts floats within the output image.
template <typename Vector>
__device__ void finish(const DepthwiseCall& call, Vector sum, int image, int at) {
  const std::int64_t offset = static_cast<std::int64_t>(image) * call.p * call.q * call.k + at;
  if (call.residual != nullptr) add(sum, vector_at<Vector>(call.residual + offset));
  *reinterpret_cast<Vector*>(call.y + offset) = call.activation(sum);
}

/// tile_p x tile_q outputs of four channels, which share the window of inputs that one thread reads into registers.
// One block a multiprocessor is all that is asked for, so that the compiler spends registers on loads under way instead
// of sinking them between the multiplications: what counts is bytes in flight, not the number of warps.
template <int size, int stride, int tile_p, int tile_q>
__global__ void __launch_bounds__(max_threads, 1) depthwise_tile(const __grid_constant__ DepthwiseCall call) {
  wait_for_previous();
  constexpr int rows = (tile_p - 1) * stride + size, columns = (tile_q - 1) * stride + size;
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const Place place(call, item, 4, tile_p, tile_q);
  const int top = place.p * stride - call.pad_top, left = place.q * stride - call.pad_left;
  const float* x = call.x + static_cast<std::int64_t>(place.image) * call.height * call.width * call.c + place.channel;
  const float* w = call.w + place.channel;

  float4 sums[tile_p][tile_q];
  start(sums[0][0], call.bias, place.channel);
#pragma unroll
  for (int i = 1; i < tile_p * tile_q; ++i) sums[i / tile_q][i % tile_q] = sums[0][0];

  // All loads before the first multiplication: at batch 1 there are few warps, and waiting once is what counts.
  float4 window[rows][columns];
#pragma unroll
  for (int row = 0; row < rows; ++row) {
    const int h = top + row;
    const bool row_inside = h >= 0 && h < call.height;
#pragma unroll
    for (int column = 0; column < columns; ++column) {
      const int width = left + column;
      window[row][column] =
          load_or_zero(x + (h * call.width + width) * call.c, row_inside && width >= 0 && width < call.width);
    }
  }
#pragma unroll
  for (int r = 0; r < size; ++r)
#pragma unroll
    for (int s = 0; s < size; ++s) {
      const float4 tap = __ldg(reinterpret_cast<const float4*>(w + (r * size + s) * call.k));
#pragma unroll
      for (int p = 0; p < tile_p; ++p)
#pragma unroll
        for (int q = 0; q < tile_q; ++q) multiply_add(sums[p][q], window[p * stride + r][q * stride + s], tap);
    }
#pragma unroll
  for (int p = 0; p < tile_p; ++p)
#pragma unroll
    for (int q = 0; q < tile_q; ++q)
      if (place.p + p < call.p && place.q + q < call.q)
        finish(call, sums[p][q], place.image, ((place.p + p) * call.q + place.q + q) * call.k + place.channel);
}

/// Any filter, stride, dilation and multiplier; Vector is float4 only for multiplier 1.
template <typename Vector>
__global__ void __launch_bounds__(max_threads) depthwise_any(const __grid_constant__ DepthwiseCall call) {
  wait_for_previous();
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const Place place(call, item, sizeof(Vector) / sizeof(float), 1, 1);
  const int top = place.p * call.stride_h - call.pad_top, left = place.q * call.stride_w - call.pad_left;
  const float* x = call.x + static_cast<std::int64_t>(place.image) * call.height * call.width * call.c +
                   static_cast<int>(call.multiplier.divide(static_cast<unsigned>(place.channel)));
  const float* w = call.w + place.channel;
  Vector sum;
  start(sum, call.bias, place.channel);
  for (int r = 0; r < call.r; ++r) {
    const int h = top + r * call.dilation_h;
    if (h < 0 || h >= call.height) continue;
#pragma unroll 4
    for (int s = 0; s < call.s; ++s) {
      const int width = left + s * call.dilation_w;
      Vector value = zero<Vector>();
      if (width >= 0 && width < call.width) value = vector_at<Vector>(x + (h * call.width + width) * call.c);
      multiply_add(sum, value, vector_at<Vector>(w + (r * call.s + s) * call.k));
    }
  }
  finish(call, sum, place.image, (place.p * call.q + place.q) * call.k + place.channel);
}

using Kernel = void (*)(DepthwiseCall);

/// A kernel with what a thread of it computes.
struct Variant {
  Kernel kernel;
  int lanes, tile_p, tile_q;
};

template <int size, int stride, int tile_p, int tile_q>
constexpr Variant tile{depthwise_tile<size, stride, tile_p, tile_q>, 4, tile_p, tile_q};
/// Largest first; of 5x5 with stride 2 a wider one would no longer fit into the registers.
constexpr Variant tiles_3_1[] = {tile<3, 1, 2, 4>, tile<3, 1, 1, 4>, tile<3, 1, 1, 1>};
constexpr Variant tiles_3_2[] = {tile<3, 2, 2, 4>, tile<3, 2, 1, 4>, tile<3, 2, 1, 1>};
constexpr Variant tiles_5_1[] = {tile<5, 1, 1, 4>, tile<5, 1, 1, 2>, tile<5, 1, 1, 1>};
constexpr Variant tiles_5_2[] = {tile<5, 2, 1, 2>, tile<5, 2, 1, 1>};
constexpr Variant any4{depthwise_any<float4>, 4, 1, 1}, any1{depthwise_any<float>, 1, 1, 1};

double item_count(const ConvProblem& p, const Variant& variant) {
  const auto blocks = [](std::int64_t size, int tile) { return static_cast<double>((size + tile - 1) / tile); };
  return static_cast<double>(p.n) * blocks(p.p, variant.tile_p) * blocks(p.q, variant.tile_q) *
         static_cast<double>(p.k / variant.lanes);
}

bool tiled(const ConvProblem& p) {
  const bool square = p.r == p.s && (p.r == 3 || p.r == 5);
  const bool strides = p.stride_h == p.stride_w && (p.stride_h == 1 || p.stride_h == 2);
  return p.c == p.k && p.c % 4 == 0 && square && strides && p.dilation_h == 1 && p.dilation_w == 1;
}

/// The largest tile that still gives every multiprocessor a warp for each of its four schedulers: below that, the loads
/// that a larger tile saves cost less than the multiprocessors that it leaves waiting.
const Variant& largest_filling(std::span<const Variant> variants, const ConvProblem& p, int multiprocessors) {
  for (const Variant& variant : variants)
    if (item_count(p, variant) >= 128.0 * multiprocessors) return variant;
  return variants.back();
}

const Variant& choose_variant(const ConvRun& run) {
  const ConvProblem& p = run.problem;
  const auto aligned = [](const float* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  const bool vectors =
      p.c == p.k && p.c % 4 == 0 && aligned(run.x) && aligned(run.y) && aligned(run.residual);  // null is aligned
  if (!vectors) return any1;
  if (!tiled(p)) return any4;
  const auto choose = [&](std::span<const Variant> unit, std::span<const Variant> halving) -> const Variant& {
    return largest_filling(p.stride_h == 1 ? unit : halving, p, run.cuda->multiprocessors);
  };
  return p.r == 3 ? choose(tiles_3_1, tiles_3_2) : choose(tiles_5_1, tiles_5_2);
}

class Depthwise final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "depthwise"; }
  Format format() const override { return formats::nhwc; }

  std::optional<std::string> refuse(const ConvProblem& problem) const override {
    if (problem.groups != problem.c) return "not depthwise: groups and input channels differ";
    if (!fits_32_bits(problem) || item_count(problem, any1) > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  double tolerance(const ConvProblem& problem) const override { return packed_tolerance(problem); }

  /// Each tensor once at the rate of memory, which L2 does not exceed for so few bytes; `any` loads every tap of every
  /// output. Of MobileNetV2's layers on an H200, batch 1 and 8, within 25 %: 2.4 us (2.3 by this) for 32x112x112.
  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    constexpr double start_us = 0.5, any_us_a_tap = 0.02, any_loads = 0.25;
    const double memory = p.bytes() / rates.bytes_per_us;
    double us = rates.launch_us + start_us + memory;
    if (!tiled(p)) {
      const auto taps = static_cast<double>(p.r * p.s);
      us += any_us_a_tap * taps + any_loads * taps * memory;
    }
    return us;
  }

  std::size_t workspace_bytes(const ConvProblem&, int) const override { return 0; }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const override {
    const auto filters = static_cast<std::size_t>(problem.k), taps = static_cast<std::size_t>(problem.r * problem.s);
    std::vector<float> w(filters * taps);  // [R][S][K]
    for (std::size_t tap = 0; tap < taps; ++tap)
      for (std::size_t k = 0; k < filters; ++k) w[tap * filters + k] = scaled_weight(filter, k, tap, taps);
    return std::make_unique<DeviceFilter>(w);
  }

  void run(const ConvRun& run) const override {
    const ConvProblem& p = run.problem;
    const Variant& variant = choose_variant(run);
    const auto integer = [](std::int64_t value) { return static_cast<int>(value); };
    const int items = static_cast<int>(item_count(p, variant));
    const DepthwiseCall call{.x = run.x,
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
                             .dilation_w = integer(p.dilation_w),
                             .pad_top = integer(p.pad_top),
                             .pad_left = integer(p.pad_left),
                             .items = items,
                             .channel_groups = FastDivider(p.k / variant.lanes),
                             .tiles_q = FastDivider((p.q + variant.tile_q - 1) / variant.tile_q),
                             .tiles_p = FastDivider((p.p + variant.tile_p - 1) / variant.tile_p),
                             .multiplier = FastDivider(p.k / p.c),
                             .activation = DeviceActivation(p.activation)};
    // Small problems in small blocks, so that every multiprocessor gets one.
    const unsigned threads = items < max_threads * run.cuda->multiprocessors ? max_threads / 2 : max_threads;
    launch(*run.cuda, variant.kernel, blocks_for(items, threads), threads, 0, call);
  }
};

}  // namespace

const ConvAlgorithm& conv_depthwise() {
  static const Depthwise algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

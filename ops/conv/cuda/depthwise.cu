// Depthwise convolution in NHWC: each output channel reads one input channel. In 3x3, 5x5 and 7x7 kernels with stride 1
// or 2 a thread computes four channels of a few neighbouring outputs, which share input rows and columns. All other
// shapes go pixel by pixel, several filters a thread where possible. These are the float kernels; depthwise_half.cu has
// those for 16 bits, depthwise.cpp what they refuse and cost.

#include <array>
#include <utility>

#include "ops/conv/cuda/depthwise.cuh"

namespace lenslet::cuda {
namespace {

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

/// Loads four floats, or gives zeros without a read. Predicated in PTX: an `if` may become a branch, which splits the
/// batch of loads in flight.
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

/// Starts the accumulators from the bias of the channels from `channel` on, read by single floats: the model's bias may
/// be unaligned.
__device__ void start(float& sum, const DepthwiseCall& call, int channel) {
  sum = call.bias == nullptr || channel >= call.biases ? 0 : call.bias[channel];
}
__device__ void start(float4& sum, const DepthwiseCall& call, int channel) {
  sum = {};
  if (call.bias == nullptr) return;
  if (const float* const bias = call.bias + channel; channel + 4 <= call.biases) {
    sum = {bias[0], bias[1], bias[2], bias[3]};
    return;
  }
  start(sum.x, call, channel);
  start(sum.y, call, channel + 1);
  start(sum.z, call, channel + 2);
  start(sum.w, call, channel + 3);
}

/// Epilogue: adds the residual, activates and stores; `at` is an offset in floats within the output image.
template <typename Vector>
__device__ void finish(const DepthwiseCall& call, Vector sum, int image, int at) {
  const std::int64_t offset = static_cast<std::int64_t>(image) * call.p * call.q * call.y_pixel + at;
  if (call.residual != nullptr) add(sum, vector_at<Vector>(static_cast<const float*>(call.residual) + offset));
  *reinterpret_cast<Vector*>(static_cast<float*>(call.y) + offset) = call.activation(sum);
}

/// tile_p x tile_q outputs of four channels from one input window, which the thread loads into registers.
// Launch bounds ask for one block a multiprocessor, so that the compiler spends registers on loads in flight and does
// not sink them between the multiplications: bytes in flight count here, not the number of warps.
template <int size, int stride, int tile_p, int tile_q>
__global__ void __launch_bounds__(max_depthwise_threads, 1) depthwise_tile(const __grid_constant__ DepthwiseCall call) {
  wait_for_previous();
  constexpr int rows = (tile_p - 1) * stride + size, columns = (tile_q - 1) * stride + size;
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const DepthwisePlace place(call, item, 4, tile_p, tile_q);
  const int top = place.p * stride - call.pad_top, left = place.q * stride - call.pad_left;
  const float* x = static_cast<const float*>(call.x) +
                   static_cast<std::int64_t>(place.image) * call.height * call.width * call.c + place.channel;
  const float* w = static_cast<const float*>(call.w) + place.channel;

  float4 acc[tile_p][tile_q];
  start(acc[0][0], call, place.channel);
#pragma unroll
  for (int i = 1; i < tile_p * tile_q; ++i) acc[i / tile_q][i % tile_q] = acc[0][0];

  // Issues all loads before the first multiplication: at batch 1 there are few warps, so a thread should wait once.
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
  let_next_start();
#pragma unroll
  for (int r = 0; r < size; ++r)
#pragma unroll
    for (int s = 0; s < size; ++s) {
      const float4 tap = __ldg(reinterpret_cast<const float4*>(w + (r * size + s) * call.k));
#pragma unroll
      for (int p = 0; p < tile_p; ++p)
#pragma unroll
        for (int q = 0; q < tile_q; ++q) multiply_add(acc[p][q], window[p * stride + r][q * stride + s], tap);
    }
#pragma unroll
  for (int p = 0; p < tile_p; ++p)
#pragma unroll
    for (int q = 0; q < tile_q; ++q)
      if (place.p + p < call.p && place.q + q < call.q)
        finish(call, acc[p][q], place.image, ((place.p + p) * call.q + place.q + q) * call.y_pixel + place.channel);
}

/// tile_p x tile_q outputs of four channels for larger filters: one row of the window is in registers, and `ahead` rows
/// are in flight.
template <int size, int stride, int tile_p, int tile_q, int ahead>
__global__ void __launch_bounds__(max_depthwise_threads, 1) depthwise_rows(const __grid_constant__ DepthwiseCall call) {
  wait_for_previous();
  constexpr int rows = (tile_p - 1) * stride + size, columns = (tile_q - 1) * stride + size;
  static_assert(ahead <= rows);
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const DepthwisePlace place(call, item, 4, tile_p, tile_q);
  const int top = place.p * stride - call.pad_top, left = place.q * stride - call.pad_left;
  const float* x = static_cast<const float*>(call.x) +
                   static_cast<std::int64_t>(place.image) * call.height * call.width * call.c + place.channel;
  const float* w = static_cast<const float*>(call.w) + place.channel;
  float4 window[ahead][columns];
  const auto load_row = [&](float4(&to)[columns], int row) {
    const int h = top + row;
    const bool row_inside = h >= 0 && h < call.height;
#pragma unroll
    for (int column = 0; column < columns; ++column) {
      const int width = left + column;
      to[column] = load_or_zero(x + (h * call.width + width) * call.c, row_inside && width >= 0 && width < call.width);
    }
  };
#pragma unroll
  for (int row = 0; row < ahead; ++row) load_row(window[row], row);
  let_next_start();
  float4 acc[tile_p][tile_q];
  start(acc[0][0], call, place.channel);
#pragma unroll
  for (int i = 1; i < tile_p * tile_q; ++i) acc[i / tile_q][i % tile_q] = acc[0][0];
#pragma unroll
  for (int row = 0; row < rows; ++row) {
#pragma unroll
    for (int p = 0; p < tile_p; ++p) {
      const int r = row - p * stride;
      if (r < 0 || r >= size) continue;
#pragma unroll
      for (int s = 0; s < size; ++s) {
        const float4 tap = __ldg(reinterpret_cast<const float4*>(w + (r * size + s) * call.k));
#pragma unroll
        for (int q = 0; q < tile_q; ++q) multiply_add(acc[p][q], window[row % ahead][q * stride + s], tap);
      }
    }
    if (row + ahead < rows) load_row(window[row % ahead], row + ahead);
  }
#pragma unroll
  for (int p = 0; p < tile_p; ++p)
#pragma unroll
    for (int q = 0; q < tile_q; ++q)
      if (place.p + p < call.p && place.q + q < call.q)
        finish(call, acc[p][q], place.image, ((place.p + p) * call.q + place.q + q) * call.y_pixel + place.channel);
}

/// Any filter, stride and dilation: one pixel, filters by Vector. Each filter reads its own channel or, with a channel
/// multiplier, the `channels` of FilterChannels. float and float4 give the same bits.
template <typename Vector, int channels = 0>
__global__ void __launch_bounds__(max_depthwise_threads) depthwise_any(const __grid_constant__ DepthwiseCall call) {
  constexpr int lanes = sizeof(Vector) / sizeof(float);
  wait_for_previous();
  let_next_start();
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const DepthwisePlace place(call, item, lanes, 1, 1);
  const FilterChannels<lanes, channels> reads(call, place.channel);
  const int top = place.p * call.stride_h - call.pad_top, left = place.q * call.stride_w - call.pad_left;
  const float* x = static_cast<const float*>(call.x) +
                   static_cast<std::int64_t>(place.image) * call.height * call.width * call.c + reads.first;
  const float* w = static_cast<const float*>(call.w) + place.channel;
  Vector sum;
  start(sum, call, place.channel);
  for_each_tap(call, top, left, [&](int tap, int h, int width, bool inside) {
    const float* const from = x + (h * call.width + width) * call.c;
    Vector value;
    if constexpr (channels == 0) {
      value = load_or_zero(from, inside);
    } else {
      // Outside of the image a valid address is read: an `if` could become a branch and split the batch of loads.
      const float* const pixel = inside ? from : x;
      float of_channel[channels];
#pragma unroll
      for (int i = 0; i < channels; ++i) {
        const float read = pixel[reads.further[i]];
        of_channel[i] = inside ? read : 0.0F;
      }
      if constexpr (lanes == 1)
        value = of_channel[0];
      else
        value = {reads(of_channel, 0), reads(of_channel, 1), reads(of_channel, 2), reads(of_channel, 3)};
    }
    multiply_add(sum, value, vector_at<Vector>(w + tap * call.k));
  });
  finish(call, sum, place.image, (place.p * call.q + place.q) * call.y_pixel + place.channel);
}

template <std::size_t at>
constexpr DepthwiseFunction kernel_of() {
  constexpr DepthwiseVariant v = float_depthwise_variants[at];
  if constexpr (v.ahead > 0)
    return depthwise_rows<v.size, v.stride, v.tile_p, v.tile_q, v.ahead>;
  else if constexpr (v.size > 0)
    return depthwise_tile<v.size, v.stride, v.tile_p, v.tile_q>;
  else if constexpr (v.lanes == 1)
    return depthwise_any<float, v.channels>;
  else
    return depthwise_any<float4, v.channels>;
}
template <std::size_t... at>
constexpr auto kernels_of(std::index_sequence<at...>) {
  return std::array{kernel_of<at>()...};
}
constexpr auto kernels = kernels_of(std::make_index_sequence<float_depthwise_variants.size()>());

}  // namespace

std::unique_ptr<const BoundKernel> bind_depthwise(const ConvProblem& p, const DepthwiseLaunch& as) {
  const bool floats = p.storage == DType::f32;
  const DepthwiseVariant& variant = floats ? float_depthwise_variants[as.variant] : half_depthwise_variants[as.variant];
  const std::int64_t groups = p.k / variant.lanes;
  const auto divider_over = [](std::int64_t size, std::int64_t block) {
    return FastDivider((size + block - 1) / block);
  };
  const DepthwiseCall call{UntypedConvCall(p),
                           static_cast<int>(as.items),
                           static_cast<int>(as.rows),
                           static_cast<int>(as.biases),
                           FastDivider(as.chunk),
                           divider_over(p.q, variant.tile_q),
                           FastDivider(groups / as.chunk),
                           divider_over(p.p, as.rows),
                           FastDivider(p.k / p.c)};
  return std::make_unique<OneLaunch<DepthwiseCall>>(
      p, call, floats ? kernels[as.variant] : half_depthwise_kernel(p.storage, as.variant),
      blocks_for(as.items, as.threads), as.threads);
}

}  // namespace lenslet::cuda

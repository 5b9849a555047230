#include "ops/conv/deform_conv.h"

#include <algorithm>

#include "base/cuda/cublas.h"
#include "base/cuda/launch.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
/// Channels that a thread computes with one set of sampling points.
constexpr std::int64_t channels_each = 8;
/// As in im2col_gemm.cu.
constexpr std::int64_t chunk_bytes = std::int64_t{64} << 20;

std::int64_t pixels_at_a_time(const DeformProblem& d) {
  const std::int64_t pixel_bytes = std::max<std::int64_t>(1, d.c * d.taps()) * static_cast<std::int64_t>(sizeof(float));
  return std::clamp<std::int64_t>(chunk_bytes / pixel_bytes, 1, std::max<std::int64_t>(1, d.pixels()));
}

/// columns [C][taps][count] of output pixels [first, first + count) of an image. Grid: (count * taps, blocks of
/// channels that share offsets); adjacent threads take adjacent pixels.
__global__ void __launch_bounds__(threads)
    unfold_deformed(const float* x, const float* offsets, const float* mask, float* columns, std::int64_t first,
                    std::int64_t count, std::int64_t blocks, const __grid_constant__ DeformProblem d) {
  wait_for_previous();
  const std::int64_t item = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (item >= count * d.taps()) return;
  const std::int64_t tap = item / count, pixel = item - tap * count;
  const std::int64_t group = blockIdx.y / blocks, shared = d.offset_channels();
  const std::int64_t from = (blockIdx.y - group * blocks) * channels_each;
  const std::int64_t end = from + channels_each < shared ? from + channels_each : shared;
  const std::int64_t planes = d.taps() * d.pixels();
  const DeformPoint point(d, offsets + 2 * group * planes, mask == nullptr ? nullptr : mask + group * planes, tap,
                          first + pixel);
  for (std::int64_t c = group * shared + from; c < group * shared + end; ++c)
    columns[(c * d.taps() + tap) * count + pixel] = point(x + c * d.h * d.w);
}

__global__ void __launch_bounds__(threads)
    spread_bias(const float* bias, float* y, std::int64_t elems, std::int64_t pixels, std::int64_t channels) {
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < elems) y[i] = bias == nullptr ? 0.0F : bias[i / pixels % channels];
}

}  // namespace

std::int64_t deform_columns(const DeformProblem& d) { return d.c * d.taps() * pixels_at_a_time(d); }

void deform_conv(const Context& context, const DeformProblem& d, Numerics::Multiply multiply, const float* x,
                 const float* filter, const float* offsets, const float* bias, const float* mask, float* y,
                 float* columns) {
  if (d.y_elems() == 0) return;
  const std::int64_t pixels = d.pixels(), step = pixels_at_a_time(d), gemm_k = d.gemm_k(), group_k = d.k / d.groups;
  const bool acc = gemm_k > 0;
  if (bias != nullptr || !acc)
    launch(context, spread_bias, blocks_for(d.y_elems(), threads), threads, 0, bias, y, d.y_elems(), pixels, d.k);
  if (!acc) return;
  const std::int64_t blocks = (d.offset_channels() + channels_each - 1) / channels_each;
  const std::int64_t planes = d.offset_groups * d.taps() * pixels;
  for (std::int64_t image = 0; image < d.n; ++image)
    for (std::int64_t first = 0; first < pixels; first += step) {
      const std::int64_t count = std::min(step, pixels - first);
      const dim3 grid(blocks_for(count * d.taps(), threads), static_cast<unsigned>(blocks * d.offset_groups));
      launch(context, unfold_deformed, grid, dim3(threads), 0, x + image * d.c * d.h * d.w,
             offsets + 2 * image * planes, mask == nullptr ? nullptr : mask + image * planes, columns, first, count,
             blocks, d);
      context.cublas->gemm(group_k, count, gemm_k, {filter, gemm_k, false, group_k * gemm_k},
                           {columns, count, false, gemm_k * count}, y + image * d.k * pixels + first, pixels,
                           bias == nullptr ? 0.0F : 1.0F, d.groups, group_k * pixels, multiply);
    }
}

}  // namespace lenslet::cuda

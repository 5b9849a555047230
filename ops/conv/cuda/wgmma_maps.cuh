#pragma once
// Tensor maps (TMA descriptors) of the operands of wgmma_gemm, wgmma_tf32 and wgmma_halo, encoded on the host.

#include <array>
#include <cstdint>

#include "base/cuda/tensor_map.h"
#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Device addresses of a run. x_pixel and y_pixel: elements from pixel to pixel; x_pixel 0: as aligned_nhwc.
struct WgmmaOperands {
  const void* x = nullptr;
  std::int64_t x_pixel = 0;
  const void* filters = nullptr;  ///< as WgmmaFilters
  const float* bias = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
  std::int64_t y_pixel = 0;
};

/// Pixel pitch in elements: pixels begin at 16 bytes (aligned_nhwc). The padding is outside of the map: TMA loads zeros
/// for it.
inline std::int64_t map_pitch(std::int64_t channels, MapElement element) {
  const std::int64_t vector = 16 / bytes_of(element);
  return (channels + vector - 1) / vector * vector;
}

/// Windows of `pixels` outputs, one K group, from x in NHWC: im2col mode, or pointwise [pixels][C]. `pitch`: elements
/// from pixel to pixel; 0: as aligned_nhwc.
inline CUtensorMap window_operand(const ConvProblem& p, const void* x, int pixels, int width, MapElement element,
                                  std::int64_t pitch = 0) {
  if (pitch == 0) pitch = map_pitch(p.c, element);
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const auto rows = static_cast<std::uint32_t>(pixels), channels = static_cast<std::uint32_t>(width);
  if (is_pointwise(p))
    return tiled_map(x, std::array{size(p.c), size(p.n * p.h * p.w)}, std::array{channels, rows}, element, size(pitch));
  const Im2colBox box = im2col_box(p);
  return window_map(x,
                    {.sizes = {size(p.c), size(p.w), size(p.h), size(p.n)},
                     .lower = {box.lower_w, box.lower_h},
                     .upper = {box.upper_w, box.upper_h},
                     .stride = {static_cast<std::uint32_t>(box.stride_w), static_cast<std::uint32_t>(box.stride_h)},
                     .pixels = rows,
                     .channels = channels,
                     .pitch = size(pitch)},
                    element);
}

/// One K group of n packed filters. One tap a box: several would be interleaved by filter in shared memory.
inline CUtensorMap filter_operand(const ConvProblem& p, const WgmmaFilters& filters, const void* prepared, int n,
                                  int width, MapElement element) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return tiled_map(
      prepared,
      std::array{size(prepared_channels(group_set(p, filters.together))), size(p.r * p.s), size(filters.all(p))},
      std::array{static_cast<std::uint32_t>(width), 1U, static_cast<std::uint32_t>(n)}, element);
}

}  // namespace lenslet::cuda

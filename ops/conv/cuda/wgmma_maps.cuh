#pragma once
// The tensor maps of the operands of wgmma_gemm and wgmma_tf32. Made on the host.

#include <array>
#include <cstdint>

#include "base/aligned_format.h"
#include "base/cuda/tensor_map.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Elements from a pixel to the next where it has so many channels: they begin at 16 bytes (aligned_nhwc). What lies
/// between is no part of a map: a copy brings zeros for it.
inline std::int64_t map_pitch(std::int64_t channels, MapElement element) {
  return aligned_channels(channels, element == MapElement::half ? DType::f16 : DType::f32);
}

/// A group of the windows of `pixels` outputs, of x in NHWC: in im2col mode, or pointwise [pixels][C].
inline CUtensorMap window_operand(const ConvProblem& p, const void* x, int pixels, int width,
                                  MapElement element = MapElement::half) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const auto rows = static_cast<std::uint32_t>(pixels), channels = static_cast<std::uint32_t>(width);
  if (is_pointwise(p))
    return tiled_map(x, std::array{size(p.c), size(p.n * p.h * p.w)}, std::array{channels, rows},
                     size(map_pitch(p.c, element)), element);
  const Im2colBox box = im2col_box(p);
  return window_map(x,
                    {.sizes = {size(p.c), size(p.w), size(p.h), size(p.n)},
                     .lower = {box.lower_w, box.lower_h},
                     .upper = {box.upper_w, box.upper_h},
                     .stride = {static_cast<std::uint32_t>(box.stride_w), static_cast<std::uint32_t>(box.stride_h)},
                     .pixels = rows,
                     .channels = channels,
                     .pitch = size(map_pitch(p.c, element))},
                    element);
}

/// Filters as they are prepared for tiles of n, zeros behind the last one: copies that reach beyond it can take longer
/// than products (64x256x28x28 -> 72, 3x3, by 128x128: 77 us for 46 in fp16 and 136 for 95 in TF32).
constexpr std::int64_t whole_tiles(std::int64_t filters, int n) { return (filters + n - 1) / n * n; }

/// A group of `filters` filters of the `prepared_filters` that there are, [K][R*S][prepared_channels]. One tap a copy:
/// those of several in one would lie together filter by filter.
inline CUtensorMap filter_operand(const ConvProblem& p, const void* prepared, std::int64_t prepared_filters,
                                  int filters, int width, MapElement element) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  return tiled_map(prepared, std::array{size(prepared_channels(p)), size(p.r * p.s), size(prepared_filters)},
                   std::array{static_cast<std::uint32_t>(width), 1U, static_cast<std::uint32_t>(filters)}, 0, element);
}

}  // namespace lenslet::cuda

#pragma once
// Tensor maps: what the bulk tensor copy engine (TMA, sm_90) knows of a tensor in memory. They are made on the host,
// hold an address, and go to a kernel as a __grid_constant__ parameter. Boxes are 128, 64 or 32 bytes wide, in the
// swizzle of as many bytes that tensor cores read; what lies outside of the tensor is zero.

#include <cuda.h>

#include <array>
#include <cstdint>
#include <span>

namespace lenslet::cuda {

/// What copies move: 16 bits of any type, 64 a box; or float32, 32 a box, as they are (f32), or such as the copy engine
/// rounds to TF32's 10 mantissa bits, to nearest, on their way into shared memory.
enum class MapElement { half, tf32, f32 };

/// `sizes` from the innermost axis, four at most, densely one in the other, but for `pitch`: elements from one place of
/// axis 1 to the next, a multiple of 16 bytes; 0: as many as axis 0 has. `last_stride`: bytes from one place of the
/// last axis to the next, if it is not dense; places may overlap. `box` is what one copy brings: 128, 64 or 32 bytes,
/// or 192 without a swizzle, then 256 each at most. Error(device), also where the driver makes no tensor maps.
CUtensorMap tiled_map(const void* tensor, std::span<const std::uint64_t> sizes, std::span<const std::uint32_t> box,
                      std::uint64_t pitch = 0, MapElement element = MapElement::half, std::uint64_t last_stride = 0);

/// Of images [N][H][W][C] in im2col mode: a copy brings `channels` of `pixels` windows: 128, 64 or 32 bytes. Windows
/// begin at the lower corner and `stride` apart, up to the upper corner, which counts from the last column and line.
/// Pairs are w, h.
struct WindowMap {
  std::array<std::uint64_t, 4> sizes{};  ///< C, W, H, N
  std::array<int, 2> lower{}, upper{};
  std::array<std::uint32_t, 2> stride{};
  std::uint32_t pixels = 0;
  std::uint32_t channels = 0;  ///< 0: 128 bytes
  std::uint64_t pitch = 0;     ///< as above, of pixels
};
CUtensorMap window_map(const void* images, const WindowMap& map, MapElement element = MapElement::half);

}  // namespace lenslet::cuda

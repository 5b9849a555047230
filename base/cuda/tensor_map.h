#pragma once
// TMA descriptors (tensor maps, sm_90). They are made on the host, hold a device address, and reach a kernel as a
// __grid_constant__ parameter. Boxes are 128, 64 or 32 bytes wide, in the swizzle of that width; elements outside of
// the tensor read zero.

#include <cuda.h>

#include <array>
#include <cstdint>
#include <span>

namespace lenslet::cuda {

/// Element types: any 16-bit type, 64 per box; or float32, 32 per box, unchanged (f32) or rounded to nearest TF32 by
/// the load (tf32).
enum class MapElement { half, tf32, f32 };
constexpr std::uint32_t bytes_of(MapElement element) {
  switch (element) {  // without a default, so that the compiler names what a new enumerator lacks
    case MapElement::half:
      return 2;
    case MapElement::tf32:
    case MapElement::f32:
      return 4;
  }
  return 0;
}

/// `sizes` from the innermost axis, at most four, dense except for `pitch`: the stride of axis 1 in elements, a
/// multiple of 16 bytes; 0: dense. `last_strides`: those of the last axes in bytes if not dense; slices may
/// overlap. `box`: innermost 128, 64 or 32 bytes, or 192 without swizzle, then at most 256 per axis. Error(device),
/// also where the driver lacks tensor maps.
CUtensorMap tiled_map(const void* tensor, std::span<const std::uint64_t> sizes, std::span<const std::uint32_t> box,
                      MapElement element, std::uint64_t pitch = 0, std::span<const std::uint64_t> last_strides = {});

/// im2col mode over images [N][H][W][C]: a load fetches `channels` (128, 64 or 32 bytes) of `pixels` windows. Windows
/// begin at the lower corner, `stride` apart, up to the upper corner, which counts from the last column and row. Pairs
/// are w, h.
struct WindowMap {
  std::array<std::uint64_t, 4> sizes{};  ///< C, W, H, N
  std::array<int, 2> lower{}, upper{};
  std::array<std::uint32_t, 2> stride{};
  std::uint32_t pixels = 0;
  std::uint32_t channels = 0;  ///< 0: 128 bytes
  std::uint64_t pitch = 0;     ///< as above, of pixels
};
CUtensorMap window_map(const void* images, const WindowMap& map, MapElement element);

}  // namespace lenslet::cuda

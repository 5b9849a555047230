#pragma once
// Grid and geometry as kernel arguments: by value, 32-bit where the operators' limits allow it.

#include <cstdint>
#include <limits>

#include "base/cuda/host_device.h"
#include "ops/sparse/grid.h"
#include "ops/sparse/rulebook.h"

namespace lenslet::cuda {

/// Larger than every key: the key of rows without a site.
inline constexpr std::int64_t no_key = std::numeric_limits<std::int64_t>::max();

/// (image, z, y, x). A negative image means no site.
struct Site {
  std::int32_t image, z, y, x;
};

struct DeviceGrid {
  std::int32_t dims = 3, images = 1, depth = 1, height = 1, width = 1;
  std::int64_t plane = 1, volume = 1;  ///< cells of a plane, of an image

  explicit DeviceGrid(const SparseGrid& grid)
      : dims(grid.dims),
        images(static_cast<std::int32_t>(grid.images)),
        depth(static_cast<std::int32_t>(grid.size[0])),
        height(static_cast<std::int32_t>(grid.size[1])),
        width(static_cast<std::int32_t>(grid.size[2])),
        plane(grid.size[1] * grid.size[2]),
        volume(grid.size[0] * plane) {}

  LENSLET_HOST_DEVICE bool has(const Site& s) const {
    return s.image >= 0 && s.image < images && s.z >= 0 && s.z < depth && s.y >= 0 && s.y < height && s.x >= 0 &&
           s.x < width;
  }
  /// Row-major cell number. no_key for a site outside of the grid, so that nothing overflows.
  LENSLET_HOST_DEVICE std::int64_t key(const Site& s) const {
    return has(s) ? s.image * volume + s.z * plane + std::int64_t{s.y} * width + s.x : no_key;
  }
  LENSLET_HOST_DEVICE Site site(std::int64_t key) const {
    // Most grids have less than 2^32 cells, and 64-bit divisions are function calls.
    constexpr std::int64_t most = UINT32_MAX;
    if (key <= most && volume <= most)
      return split(static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(plane),
                   static_cast<std::uint32_t>(volume));
    return split(static_cast<std::uint64_t>(key), static_cast<std::uint64_t>(plane),
                 static_cast<std::uint64_t>(volume));
  }

 private:
  template <typename Number>
  LENSLET_HOST_DEVICE Site split(Number key, Number plane_cells, Number volume_cells) const {
    const Number image = key / volume_cells, of_image = key % volume_cells;
    const Number z = of_image / plane_cells, of_plane = of_image % plane_cells;
    const auto row = static_cast<Number>(width);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(z), static_cast<std::int32_t>(of_plane / row),
            static_cast<std::int32_t>(of_plane % row)};
  }
};

/// One axis of a regular or transposed geometry.
struct DeviceAxis {
  std::int32_t taps = 1, stride = 1, dilation = 1, pad = 0, out_size = 1;

  /// The output coordinate of an input through a tap; -1: none. 31 bits suffice: an axis of either grid has at most
  /// 2^30 cells, and taps and pads reach 2^18 beyond.
  template <bool transposed>
  LENSLET_HOST_DEVICE std::int32_t meets(std::int32_t in, std::int32_t tap) const {
    std::int32_t at = 0;
    if constexpr (transposed) {
      at = in * stride + tap * dilation - pad;
    } else {
      at = in + pad - tap * dilation;
      if (at < 0 || at % stride != 0) return -1;
      at /= stride;
    }
    return at >= 0 && at < out_size ? at : -1;
  }
};

struct DeviceGeometry {
  DeviceAxis z, y, x;
  bool transposed = false;

  DeviceGeometry(const SparseGeometry& g, const SparseGrid& out)
      : z(axis(g, out, 0)),
        y(axis(g, out, 1)),
        x(axis(g, out, 2)),
        transposed(g.kind == SparseGeometry::Kind::transposed) {}
  LENSLET_HOST_DEVICE std::int32_t volume() const { return z.taps * y.taps * x.taps; }

 private:
  static DeviceAxis axis(const SparseGeometry& g, const SparseGrid& out, std::size_t a) {
    return {static_cast<std::int32_t>(g.kernel[a]), static_cast<std::int32_t>(g.stride[a]),
            static_cast<std::int32_t>(g.dilation[a]), static_cast<std::int32_t>(g.pad_begin[a]),
            static_cast<std::int32_t>(out.size[a])};
  }
};

}  // namespace lenslet::cuda

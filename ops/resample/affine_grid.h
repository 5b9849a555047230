#pragma once
// AffineGrid at one point, for host and device. Source: ONNX, AffineGrid-20, and its reference.

#include <cstdint>

#include "base/cuda/host_device.h"

namespace lenslet {

/// The grid [n, spatial sizes ..., axes] of theta [n, axes, axes + 1].
struct AffineGridShape {
  std::int64_t n = 0;
  int axes = 2;                   ///< 2 or 3
  std::int64_t size[3]{1, 1, 1};  ///< D (left out of 2), H, W
  bool align_corners = false;     ///< the outermost points are -1 and 1, not half a point inside

  LENSLET_HOST_DEVICE std::int64_t points() const { return size[0] * size[1] * size[2]; }
};

/// In double, rounded once.
LENSLET_HOST_DEVICE inline double grid_position(std::int64_t i, std::int64_t size, bool align_corners) {
  if (align_corners) return size == 1 ? -1 : static_cast<double>(2 * i) / static_cast<double>(size - 1) - 1;
  return static_cast<double>(2 * i + 1) / static_cast<double>(size) - 1;
}

/// Writes the `axes` coordinates (x, y, z) of point `at` of an image; W varies fastest.
LENSLET_HOST_DEVICE inline void affine_point(const AffineGridShape& shape, const float* theta, std::int64_t at,
                                             float* to) {
  double position[3];
  for (int i = 0; i < shape.axes; ++i) {
    const std::int64_t size = shape.size[2 - i];
    position[i] = grid_position(at % size, size, shape.align_corners);
    at /= size;
  }
  for (int row = 0; row < shape.axes; ++row) {
    const float* const factors = theta + row * (shape.axes + 1);
    double sum = factors[shape.axes];
    for (int i = 0; i < shape.axes; ++i) sum += static_cast<double>(factors[i]) * position[i];
    to[row] = static_cast<float>(sum);
  }
}

}  // namespace lenslet

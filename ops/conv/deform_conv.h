#pragma once
// DeformConv's sizes, and the sampling point of each tap, for both devices. Source: ONNX, DeformConv-22.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "lenslet/numerics.h"

namespace lenslet {

/// X [n,c,h,w], W [k,c/groups,r,s], Y [n,k,p,q]; offsets [n,offset_groups,r,s,2,p,q] hold rows, then columns; a mask
/// [n,offset_groups,r,s,p,q]. All row-major without gaps.
struct DeformProblem {
  std::int64_t n = 0, c = 0, h = 0, w = 0, k = 0, r = 1, s = 1, p = 0, q = 0;
  std::int64_t groups = 1, offset_groups = 1;
  std::int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, pad_top = 0, pad_left = 0;

  LENSLET_HOST_DEVICE std::int64_t taps() const { return r * s; }
  LENSLET_HOST_DEVICE std::int64_t pixels() const { return p * q; }
  LENSLET_HOST_DEVICE std::int64_t offset_channels() const { return c / offset_groups; }  ///< of an offset group
  std::int64_t gemm_k() const { return c / groups * taps(); }                             ///< of a sum
  std::int64_t y_elems() const { return n * k * pixels(); }
};

/// Bilinear sample of a channel: four weights and offsets; a negative offset is a zero outside of the image.
struct DeformPoint {
  std::int64_t offset[4] = {-1, -1, -1, -1};
  float weight[4] = {};

  DeformPoint() = default;
  /// The sample of tap `tap` at output pixel `pixel`; `offsets` and `mask` (or null) belong to one image and offset
  /// group. Computed in double: float32 would be off by up to size * 2^-24 elements. A NaN offset gives NaN.
  LENSLET_HOST_DEVICE DeformPoint(const DeformProblem& d, const float* offsets, const float* mask, std::int64_t tap,
                                  std::int64_t pixel) {
    const std::int64_t pixels = d.pixels(), row = pixel / d.q, r = tap / d.s;
    const float* const moved = offsets + 2 * tap * pixels + pixel;
    const double y =
        static_cast<double>(row * d.stride_h - d.pad_top + r * d.dilation_h) + static_cast<double>(moved[0]);
    const double x =
        static_cast<double>((pixel - row * d.q) * d.stride_w - d.pad_left + (tap - r * d.s) * d.dilation_w) +
        static_cast<double>(moved[pixels]);
    if (!(y > -1 && y < static_cast<double>(d.h) && x > -1 && x < static_cast<double>(d.w))) {
      if (y == y && x == x) return;
      offset[0] = 0;
      weight[0] = static_cast<float>(y + x);
      return;
    }
    const double top = std::floor(y), left = std::floor(x), down = y - top, right = x - left;
    const double factor = mask == nullptr ? 1 : static_cast<double>(mask[tap * pixels + pixel]);
    for (int i = 0; i < 4; ++i) {
      const std::int64_t at_y = static_cast<std::int64_t>(top) + i / 2, at_x = static_cast<std::int64_t>(left) + i % 2;
      if (at_y < 0 || at_y >= d.h || at_x < 0 || at_x >= d.w) continue;
      offset[i] = at_y * d.w + at_x;
      weight[i] = static_cast<float>((i / 2 == 0 ? 1 - down : down) * (i % 2 == 0 ? 1 - right : right) * factor);
    }
  }
  /// Value in the channel at `x`.
  LENSLET_HOST_DEVICE float operator()(const float* x) const {
    float sum = 0;
    for (int i = 0; i < 4; ++i)
      if (offset[i] >= 0) sum += weight[i] * x[offset[i]];
    return sum;
  }
  /// Whether all four elements are inside of the image. Then within() gives the same.
  bool inside() const { return offset[0] >= 0 && offset[1] >= 0 && offset[2] >= 0 && offset[3] >= 0; }
  float within(const float* x) const {
    return 0.0F + weight[0] * x[offset[0]] + weight[1] * x[offset[1]] + weight[2] * x[offset[2]] +
           weight[3] * x[offset[3]];
  }
};

namespace cuda {

struct Context;

/// Floats of columns built at a time.
std::int64_t deform_columns(const DeformProblem& problem);
/// Device addresses; mask and bias may be null; `columns` has deform_columns() floats. Multiplies by cuBLAS.
void deform_conv(const Context& context, const DeformProblem& problem, Numerics::Multiply multiply, const float* x,
                 const float* filter, const float* offsets, const float* bias, const float* mask, float* y,
                 float* columns);

}  // namespace cuda
}  // namespace lenslet

#pragma once
// GlobalResponseNorm behind its norms, for the device.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// The layout of x and y: [images][pixels][channels] with `x_pixel` and `y_pixel` elements between pixels if
/// `channels_last`, else [images][channels][pixels].
struct ResponseImages {
  std::int64_t images = 0, channels = 0, pixels = 0;
  bool channels_last = false;
  std::int64_t x_pixel = 0, y_pixel = 0;

  bool empty() const { return images == 0 || channels == 0 || pixels == 0; }
};

namespace cuda {

struct Context;

/// y = x * (1 + scale[c] * norms[c] / (mean of the image's norms + epsilon)) + bias[c]. Device addresses: x and y both
/// of float32 or of one 16-bit type, y may be x; norms [images, channels], scale and bias [channels] of float32.
void apply_response(const Context& context, const ResponseImages& of, float epsilon, DType dtype, const float* norms,
                    const float* scale, const float* bias, const void* x, void* y);

}  // namespace cuda
}  // namespace lenslet

#pragma once
// How an image is resized, cropped and normalised for a network: shared by CPU and CUDA.

#include <array>
#include <cstdint>

#include "base/resize.h"
#include "lenslet/image.h"

namespace lenslet {

/// The image is resized to height x width. `window` of that goes to (top, left) of the input; the rest is padding.
struct ResizePlan {
  std::int64_t height = 0, width = 0;
  Rect window;
  std::int64_t top = 0, left = 0;
};

/// Channels of the network's input: 1 or 3.
std::int64_t image_channels(const ImageSpec& spec);

/// Error(invalid_argument) when image or spec are invalid, or the result would not have the spec's size.
ResizePlan plan_resize(const ImageView& image, const ImageSpec& spec);
/// The same for an image of this size.
ResizePlan plan_resize(std::int64_t height, std::int64_t width, const ImageSpec& spec);

/// ITU-R 601-2 luma in Pillow's fixed point.
inline std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

/// The padding's pixel in the channels of the input, in RGB order: three equal ones for gray.
std::array<std::uint8_t, 3> pad_pixel(const ImageSpec& spec);

/// [channels of the input, 256]: the normalised value of each pixel value, computed in double, rounded to float32, then
/// converted to `dtype`. Error(invalid_argument) when the spec's numbers are invalid.
Tensor normalisation_tables(const ImageSpec& spec, DType dtype);

/// Error(invalid_argument) unless to_input() can write image `index` to `input`.
void check_image_input(const ImageSpec& spec, const Tensor& input, std::int64_t index);

}  // namespace lenslet

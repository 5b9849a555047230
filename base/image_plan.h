#pragma once
// How an image is resized, cropped and normalised for a network: shared by CPU and CUDA.

#include <cstdint>

#include "base/resize.h"
#include "lenslet/image.h"

namespace lenslet {

/// The image is resized to height x width and cropped to `window`.
struct ResizePlan {
  std::int64_t height = 0, width = 0;
  Window window;
};

/// Channels of the network's input: 1 or 3.
std::int64_t image_channels(const ImageSpec& spec);

/// Error(invalid_argument) when image or spec are invalid, or the result would not have the spec's size.
ResizePlan plan_resize(const ImageView& image, const ImageSpec& spec);

/// [channels of the input, 256]: the normalised value of each pixel value, computed in double, rounded to float32, then
/// converted to `dtype`. Error(invalid_argument) when the spec's numbers are invalid.
Tensor normalisation_tables(const ImageSpec& spec, DType dtype);

/// Error(invalid_argument) unless to_input() can write image `index` to `input`.
void check_image_input(const ImageSpec& spec, const Tensor& input, std::int64_t index);

}  // namespace lenslet

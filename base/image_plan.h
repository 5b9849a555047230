#pragma once
// What becomes of an image on its way into a network, in numbers: shared by the CPU and the CUDA path.

#include <cstdint>

#include "base/resize.h"
#include "lenslet/image.h"

namespace lenslet {

/// The image is resized to height x width, of which `window` is kept.
struct ResizePlan {
  std::int64_t height = 0, width = 0;
  Window window;
};

/// Channels of the network's input: 1 or 3.
std::int64_t image_channels(const ImageSpec& spec);

/// Error(invalid_argument) when image or spec make no sense, or the result would not have the spec's size.
ResizePlan plan_resize(const ImageView& image, const ImageSpec& spec);

/// [channels of the input, 256]: the normalised value of each of the 256 pixel values, computed in double and rounded
/// to float32, then converted to `dtype`. Error(invalid_argument) when the spec's numbers do not allow it.
Tensor normalisation_tables(const ImageSpec& spec, DType dtype);

/// Error(invalid_argument) unless `input` is what to_input() can write image `index` to.
void check_image_input(const ImageSpec& spec, const Tensor& input, std::int64_t index);

}  // namespace lenslet

#pragma once
// Converts a network's output to a picture.

#include <array>
#include <cstdint>
#include <optional>

#include "lenslet/picture.h"
#include "lenslet/tensor.h"

namespace lenslet::tool {

/// Whether a tensor of this type and shape shows a picture. Floats and uint8 of [1,C,H,W] or [1,H,W,C] are pixels, C =
/// 1, 3 or 4 (the first if both fit). Integers and bool of [1,1,H,W], [1,H,W,1], [1,H,W] or [H,W] are classes (uint8
/// only below four dimensions).
bool shows_picture(DType dtype, const Shape& shape);

/// PASCAL VOC's colour of a class: R, G, B. Class 0 is black.
std::array<std::uint8_t, 3> class_colour(std::uint64_t number);

struct ShownTensor {
  Picture picture;           ///< 1 (gray), 3 (RGB) or 4 channels (RGBA)
  bool classes = false;      ///< the colours stand for classes
  std::int64_t outside = 0;  ///< values that were clamped by at least a half, or NaN (shown as 0)
};

/// Pixels are values times `scale` (default 255 for floats, 1 for uint8), rounded to nearest and clamped to 0..255;
/// classes get the colours of PASCAL VOC (class 0 is black). Format nchw. Error(invalid_argument) for other tensors,
/// and for a scale with classes.
ShownTensor show_tensor(const Tensor& tensor, std::optional<double> scale);

}  // namespace lenslet::tool

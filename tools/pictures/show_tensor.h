#pragma once
// Converts a network's output to a picture.

#include <optional>

#include "lenslet/tensor.h"
#include "tools/pictures/read_image.h"

namespace lenslet::tool {

/// Does a tensor of this type and shape show a picture? Floats and uint8 of [1,C,H,W] or [1,H,W,C], C = 1, 3 or 4 (the
/// first where both fit); whole numbers and bool of [1,1,H,W], [1,H,W,1], [1,H,W] or [H,W], which are classes (uint8 of
/// four dimensions are pixels).
bool shows_picture(DType dtype, const Shape& shape);

struct ShownTensor {
  Picture picture;       ///< 1 (gray), 3 (RGB) or 4 channels (RGBA)
  bool classes = false;  ///< the colours stand for classes
  std::int64_t outside =
      0;  ///< values that were clamped, a half and more beyond the range, or that are NaN (shown as 0)
};

/// Values times `scale` (none: 255 of floats, 1 of uint8), clamped to 0..255, rounded to nearest; classes in the
/// colours of PASCAL VOC (class 0 is black). Format nchw. Error(invalid_argument) for what shows no picture, and for a
/// scale of classes.
ShownTensor show_tensor(const Tensor& tensor, std::optional<double> scale);

}  // namespace lenslet::tool

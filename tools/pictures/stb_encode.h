#pragma once
// stb_image_write behind one function: PNG.

#include <string>

#include "lenslet/image.h"

namespace lenslet::tool {

/// A PNG file of `image`, which has 1 (gray), 3 (RGB) or 4 channels (RGBA) and at most max_image_pixels pixels (so that
/// stb's ints hold). bad_alloc where there is no memory.
std::string stb_encode_png(const ImageView& image);

}  // namespace lenslet::tool

#pragma once
// A wrapper of stb_image_write for PNG.

#include <string>

#include "lenslet/image.h"

namespace lenslet::tool {

/// `image` as a PNG file: 1 (gray), 3 (RGB) or 4 channels (RGBA), and at most max_image_pixels pixels, which keeps
/// stb's ints in range. bad_alloc without memory.
std::string stb_encode_png(const ImageView& image);

}  // namespace lenslet::tool

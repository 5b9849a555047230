#pragma once
// Pillow's Image.resize for 8-bit pixels, bit for bit, computing only a window of its result.

#include <cstdint>
#include <vector>

#include "lenslet/image.h"

namespace lenslet {

/// A rectangle of the resized picture, in its pixels.
struct Window {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

/// The reference is Pillow 9.4: columns first, then rows. (Pillow 13 takes the rows first in some odd shapes, which
/// moves single pixels by a rounding.)
///
/// The pixels of `window` out of `image` resized to new_height x new_width: [window.height, window.width, C], C as in
/// the image. Each result pixel depends on its own source pixels only, so a window equals a crop of the whole, and a
/// picture of extreme proportions costs no more than its window. With `antialias` off the filter keeps its width in
/// source pixels when reducing. Sizes are > 0 and the window lies inside: the caller's business.
std::vector<std::uint8_t> resize_window(const ImageView& image, std::int64_t new_height, std::int64_t new_width,
                                        const Window& window, ImageSpec::Filter filter, bool antialias);

}  // namespace lenslet

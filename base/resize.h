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

/// Fractional bits of Taps::weights, Pillow's: 22 leave 8 bits for the pixel and 2 for the overshoot of bicubic.
inline constexpr int tap_bits = 32 - 8 - 2;

/// One direction of a resize: result pixel i is the sum over t < count[i] of weights[i * taps + t] * source[first[i] +
/// t] plus one half, shifted right by tap_bits and clamped to 0..255. Sums fit 32 bits.
struct Taps {
  std::int64_t taps = 0;
  std::vector<std::int64_t> first, count;
  std::vector<std::int32_t> weights;
};

/// Of the result pixels [begin, begin + size) when old_size pixels become new_size. `same_size`: neither direction
/// changes, and pixels are taken over. resize_window() computes the same bits as these taps applied to the columns
/// first, rounded, then to the rows.
Taps resize_taps(std::int64_t old_size, std::int64_t new_size, std::int64_t begin, std::int64_t size,
                 ImageSpec::Filter filter, bool antialias, bool same_size);

/// Columns first, then rows, as Pillow to 12.1 does: what networks were trained with. From 12.2 on it takes the rows
/// first of some tall pictures, which changes what is rounded in between (docs/model-card.md).
///
/// The pixels of `window` out of `image` resized to new_height x new_width: [window.height, window.width, C], C as in
/// the image. Each result pixel depends on its own source pixels only, so a window equals a crop of the whole, and a
/// picture of extreme proportions costs no more than its window. With `antialias` off the filter keeps its width in
/// source pixels when reducing. Sizes are > 0 and the window lies inside: the caller's business.
std::vector<std::uint8_t> resize_window(const ImageView& image, std::int64_t new_height, std::int64_t new_width,
                                        const Window& window, ImageSpec::Filter filter, bool antialias);

}  // namespace lenslet

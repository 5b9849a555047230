#pragma once
// Pillow's Image.resize for 8-bit pixels, bit for bit, limited to a window of its result.

#include <cstdint>
#include <vector>

#include "lenslet/image.h"

namespace lenslet {

/// Fractional bits of Taps::weights, as in Pillow: 22 leave 8 bits for the pixel and 2 for bicubic's overshoot.
inline constexpr int tap_bits = 32 - 8 - 2;

/// One direction of a resize: result pixel i is the sum over t < count[i] of weights[i * taps + t] * source[first[i] +
/// t] plus one half, shifted right by tap_bits and clamped to 0..255. Sums fit 32 bits.
struct Taps {
  std::int64_t taps = 0;
  std::vector<std::int64_t> first, count;
  std::vector<std::int32_t> weights;
};

/// Taps of result pixels [begin, begin + size) when old_size becomes new_size. `same_size`: neither direction changes,
/// and pixels are copied. resize_window() gives the same bits as these taps applied to columns, rounded, then to rows.
Taps resize_taps(std::int64_t old_size, std::int64_t new_size, std::int64_t begin, std::int64_t size,
                 ImageSpec::Filter filter, bool antialias, bool same_size);

/// Resizes columns first, then rows, as Pillow up to 12.1, which networks were trained with. Pillow 12.2 resizes the
/// rows of some tall images first, with other roundings (docs/model-card.md).
///
/// Returns `window` of `image` resized to new_height x new_width: [window.height, window.width, C], C as in the image.
/// A window equals a crop of the whole, and costs no more than its own pixels. With `antialias` off the filter keeps
/// its width in source pixels when reducing. The caller ensures sizes > 0 and a window inside.
std::vector<std::uint8_t> resize_window(const ImageView& image, std::int64_t new_height, std::int64_t new_width,
                                        const Rect& window, ImageSpec::Filter filter, bool antialias);

}  // namespace lenslet

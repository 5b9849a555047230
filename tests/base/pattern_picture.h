#pragma once
// Pictures of a pattern, whose resized pixels are known from elsewhere.

#include <cstdint>
#include <vector>

#include "lenslet/image.h"

namespace lenslet::test {

using Pixels = std::vector<std::uint8_t>;

struct Picture {
  std::int64_t height, width, channels;
  Pixels pixels;
  ImageView view() const { return {pixels.data(), height, width, channels}; }
};

inline Picture pattern(std::int64_t height, std::int64_t width, std::int64_t channels) {
  Picture picture{height, width, channels, {}};
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < channels; ++c)
        picture.pixels.push_back(
            static_cast<std::uint8_t>((y * 37 + x * 91 + c * 53 + x * y * 7 + (x * x * y) % 23 * 11) % 256));
  return picture;
}

/// FNV-1a, 64 bits.
inline std::uint64_t hash(const Pixels& pixels) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (std::uint8_t pixel : pixels) value = (value ^ pixel) * 0x100000001b3u;
  return value;
}

}  // namespace lenslet::test

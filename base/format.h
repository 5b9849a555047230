#pragma once
// What a Format means for a shape: element offsets, stored size, cost of conversion.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lenslet/tensor.h"

namespace lenslet {

/// Strides of one shape in a format, in elements from the first stored one.
class Strides {
 public:
  Strides(const Format& format, const Shape& shape);

  /// Stride per axis; of the channel axis (1), from one block of channels to the next.
  std::array<std::int64_t, Shape::max_rank> step{};
  std::int64_t block = 1;   ///< contiguous channels; 1: `step` is enough
  std::int64_t origin = 0;  ///< of the element with index 0: behind the halo
  std::int64_t stored = 0;  ///< elements in memory, padded blocks and halo included

  /// Offset of element (n, c, h, w) of a 4-D shape.
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return origin + n * step[0] + c / block * step[1] + c % block + h * step[2] + w * step[3];
  }
};

/// Strides of a format without blocks and halo; it may have a pixel pitch.
inline std::array<std::int64_t, Shape::max_rank> element_strides(const Shape& shape, const Format& format) {
  return Strides(format, shape).step;
}

/// Axes of a tensor of this rank in memory order, outermost first: 0 2 3 1 for nhwc. Ignores blocks and halo.
std::array<int, Shape::max_rank> memory_order(int rank, const Format& format) noexcept;

/// True if both formats store all elements of `shape` at the same offsets (a single channel or pixel, for example).
bool same_bytes(const Format& a, const Format& b, const Shape& shape);

/// Bytes that a conversion moves: the stored input, read once, plus the stored output, written once.
double conversion_bytes(const Format& from, const Format& to, const Shape& shape, DType dtype);

/// Parses to_string()'s output. Nothing for any other text.
std::optional<Format> parse_format(std::string_view text);

}  // namespace lenslet

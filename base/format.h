#pragma once
// What a Format means for a shape: where elements lie, how many are stored, what converting costs.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lenslet/tensor.h"

namespace lenslet {

/// Where a format stores the elements of one shape, counted in elements from the first that is stored.
class Strides {
 public:
  Strides(const Format& format, const Shape& shape);

  /// From one position of an axis to the next; of the channel axis (1) from one block of channels to the next.
  std::array<std::int64_t, Shape::max_rank> step{};
  std::int64_t block = 1;   ///< channels that lie side by side; 1: `step` says it all
  std::int64_t origin = 0;  ///< of the element with index 0: behind the halo
  std::int64_t stored = 0;  ///< elements in memory, padded blocks and halo included

  /// Of element (n, c, h, w) of a 4-D shape.
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return origin + n * step[0] + c / block * step[1] + c % block + h * step[2] + w * step[3];
  }
};

/// Steps of a format that stores each element once, without blocks and halo; it may have a pixel pitch.
inline std::array<std::int64_t, Shape::max_rank> element_strides(const Shape& shape, const Format& format) {
  return Strides(format, shape).step;
}

/// Axes of a tensor of this rank in memory order, outermost first: 0 2 3 1 for nhwc. Blocks and halo do not count.
std::array<int, Shape::max_rank> memory_order(int rank, const Format& format) noexcept;

/// Do both formats store every element of `shape` at the same place (as with a single channel, or a single pixel)?
bool same_bytes(const Format& a, const Format& b, const Shape& shape);

/// Bytes that a conversion has to move: what is stored before, read once, and what is stored after, written once.
double conversion_bytes(const Format& from, const Format& to, const Shape& shape, DType dtype);

/// What to_string() writes. Nothing for any other text.
std::optional<Format> parse_format(std::string_view text);

}  // namespace lenslet

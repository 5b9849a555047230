#pragma once
// A channel shuffle of two groups in nhwc, each of them a tensor of its own: what ShuffleNetV2 ends its units with.

#include <array>
#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// y[o][p, 2*j + g] = x[g][p, o*count + j] for pixels p, outputs o and j < count. Pixels of all are so many elements
/// apart as `x_pixel` and `y_pixel` say, which count whole vectors of 16 bytes: what is left of the last one of y is
/// written, too.
struct ShufflePairs {
  std::size_t element_bytes = 2;  ///< or 4
  std::int64_t pixels = 0;
  int outputs = 1, count = 0;
  int x_pixel = 0, y_pixel = 0;
};
/// Device addresses at multiples of 16 bytes; an output may be null.
void shuffle_pairs(const Context& context, const ShufflePairs& shuffle, const std::array<const void*, 2>& x,
                   const std::array<void*, 2>& y);

}  // namespace lenslet::cuda

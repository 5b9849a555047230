#pragma once
// A channel shuffle of two groups in nhwc as separate tensors: the end of ShuffleNetV2's units.

#include <array>
#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// y[o][p, 2*j + g] = x[g][p, o*count + j] for pixels p, outputs o and j < count. The pixel pitches `x_pixel` and
/// `y_pixel` are in elements and whole 16-byte vectors; the padding of y's last vector is written, too.
struct ShufflePairs {
  std::size_t element_bytes = 2;  ///< or 4
  std::int64_t pixels = 0;
  int outputs = 1, count = 0;
  int x_pixel = 0, y_pixel = 0;
};
/// 16-byte aligned device addresses; an output may be null.
void shuffle_pairs(const Context& context, const ShufflePairs& shuffle, const std::array<const void*, 2>& x,
                   const std::array<void*, 2>& y);

}  // namespace lenslet::cuda

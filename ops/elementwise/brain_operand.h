#pragma once
// BinaryOperand of bfloat16, widened piece by piece.

#include <cstdint>

#include "ops/core/by_floats.h"
#include "ops/elementwise/binary_kernels.h"

namespace lenslet {

struct BrainOperand {
  const BFloat16* at = nullptr;
  std::int64_t row = 0, stride = 1;

  /// A piece (for_each_piece) as floats in `to`.
  BinaryOperand widened(std::int64_t first_row, std::int64_t rows, std::int64_t first, std::int64_t count,
                        float* to) const {
    if (row == 0) rows = 1;
    if (stride == 0) count = 1;
    const BFloat16* from = at + first_row * row + first * stride;
    if (stride <= 1) {
      widen_rows(from, row, rows, count, to);
    } else {
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < count; ++i) to[r * count + i] = lenslet::widened(from[r * row + i * stride]);
    }
    return {to, row == 0 ? 0 : count, stride == 0 ? 0 : 1};
  }
};

}  // namespace lenslet

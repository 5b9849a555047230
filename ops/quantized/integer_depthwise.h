#pragma once
// Depthwise convolutions of integers in float32, line by line.

#include <cstdint>

#include "ops/quantized/integer_product.h"

namespace lenslet {

/// to[i] = from[i * step] as `of` means it, less `zero`.
void widen_integers(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t step, std::int64_t count,
                    float* to);

/// Taps over lines that lie `wide` apart.
struct IntegerTaps {
  const float* x = nullptr;
  std::int64_t wide = 0;
  const std::int64_t* at = nullptr;  ///< each tap's first element in x
  const float* weights = nullptr;
  std::int64_t taps = 0;
};
/// Elements behind x and behind the sums that are read, or written, and mean nothing; those of x are numbers whose sums
/// an int32 holds.
inline constexpr std::int64_t integer_taps_slack = 64;
/// sums[p][q] = sum over t of weights[t] * x[at[t] + p * wide + q].
void sum_integer_taps(const IntegerTaps& of, std::int64_t lines, std::int64_t columns, std::int32_t* sums);

}  // namespace lenslet

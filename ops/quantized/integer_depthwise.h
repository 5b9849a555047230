#pragma once
// Depthwise integer convolutions in float32, line by line.

#include <cstdint>

#include "ops/quantized/apart.h"
#include "ops/quantized/integer_product.h"

namespace lenslet {

/// to[i] = from[i] as a number of `of`, minus `zero`.
void widen_integers(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t count, float* to);
/// take_apart() of an image of such numbers; 0 outside.
void widen_integers(const ApartPlane& plane, std::int64_t begin, std::int64_t end, const IntegerOperand& of, int zero,
                    const std::uint8_t* image, float* to);

/// Taps over lines with a pitch of `wide`.
struct IntegerTaps {
  const float* x = nullptr;
  std::int64_t wide = 0;
  const std::int64_t* at = nullptr;  ///< each tap's first element in x
  const float* weights = nullptr;
  std::int64_t taps = 0;
};
/// Elements read behind x, and written behind the sums, whose values do not matter; those of x must be numbers whose
/// sums fit an int32.
inline constexpr std::int64_t integer_taps_slack = 64;
/// sums[p][q] = sum over t of weights[t] * x[at[t] + p * wide + q].
void sum_integer_taps(const IntegerTaps& of, std::int64_t lines, std::int64_t columns, std::int32_t* sums);

}  // namespace lenslet

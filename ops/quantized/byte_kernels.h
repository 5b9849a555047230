#pragma once
// Vectorised loops over 8-bit codes.

#include <array>
#include <cstdint>

namespace lenslet {

/// An operand of binary_codes(): codes of a row are `stride` apart, 0 or 1; rows are `row` apart. `flip` makes its
/// codes unsigned ones, whose zero point this is.
struct ByteOperand {
  const std::uint8_t* at = nullptr;
  std::int64_t row = 0, stride = 1;
  std::uint8_t flip = 0;
  std::int32_t zero_point = 0;
  float scale = 1;
};

/// y = code of a's number + b's, or *; y's bytes hold codes of either type, in [least, most].
struct BinaryCodes {
  bool multiplies = false;
  float y_scale = 1;
  std::int32_t y_zero_point = 0, least = 0, most = 255;
  /// A sum in fixed point: (factor[0] * a + factor[1] * b + offset) >> shift, of unsigned codes, is y's unsigned code
  /// before it is clamped. shift 0: in float32.
  std::int16_t factor[2] = {};
  std::int32_t offset = 0, shift = 0;
  std::uint8_t y_flip = 0;
};

/// Chooses fixed point for a sum where that is exact to 1/100 of a step: factors of 15 bits, whose errors cancel at the
/// middle code. Sums that may be ties, since the factors are exact, remain in float32, as do odd scales.
void choose_fixed_point(BinaryCodes& of, const ByteOperand& a, const ByteOperand& b);

/// The function on one pair, bytes of either type. Float32 arithmetic rounds each step.
std::uint8_t binary_code(const BinaryCodes& of, const ByteOperand& a, std::uint8_t of_a, const ByteOperand& b,
                         std::uint8_t of_b);
/// The same for `rows` rows of n codes, bit for bit; y may be an operand.
void binary_codes(const BinaryCodes& of, const ByteOperand& a, const ByteOperand& b, std::uint8_t* y,
                  std::int64_t y_row, std::int64_t rows, std::int64_t n);

/// y[i] = table[x[i]]; y may be x.
void look_up_codes(const std::array<std::uint8_t, 256>& table, const std::uint8_t* x, std::int64_t n, std::uint8_t* y);

/// sums[c] = sum of `pixels` bytes x[c + i * step] ^ flip; at most 2^23 pixels.
void sum_pixels(const std::uint8_t* x, std::int64_t pixels, std::int64_t step, std::int64_t channels, std::uint8_t flip,
                std::int32_t* sums);
/// The sum of n bytes x[i] ^ flip; n < 2^23.
std::int32_t sum_bytes(const std::uint8_t* x, std::int64_t n, std::uint8_t flip);

}  // namespace lenslet

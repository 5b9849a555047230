#pragma once
// 20-bit weights for products of few rows with TF32. Their cost is reading the weights, and TF32 needs only 10 mantissa
// bits of a float32: 20 bits with 11 mantissa bits are 62.5 % of the bytes. Plain C++.

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

/// A row consists of chunks of packed weights, the last one padded: first the upper 16 bits of all, then four bits
/// each. Each of 32 lanes has eight weights, in 16 bytes and in 4.
inline constexpr int packed_lane_weights = 8, packed_chunk_weights = 32 * packed_lane_weights;
inline constexpr int packed_chunk_bytes = packed_chunk_weights * 20 / 8, packed_lane_bytes = packed_chunk_bytes / 32;

constexpr std::int64_t packed_row_bytes(std::int64_t k) {
  return (k + packed_chunk_weights - 1) / packed_chunk_weights * packed_chunk_bytes;
}

/// The upper 20 bits of a float, rounded to nearest even.
constexpr std::uint32_t packed_bits(float weight) {
  constexpr std::uint32_t exponent = 0x7F800000U, quiet = 0x00400000U;
  const auto bits = std::bit_cast<std::uint32_t>(weight);
  if ((bits & exponent) == exponent) return (bits & 0x007FFFFFU) != 0 ? (bits | quiet) >> 12 : bits >> 12;
  return (bits + 0x7FFU + (bits >> 12 & 1)) >> 12;
}

/// Writes weight l of a row that was zeroed.
inline void pack_weight(std::byte* row, std::int64_t l, float weight) {
  std::byte* const chunk = row + l / packed_chunk_weights * packed_chunk_bytes;
  const auto at = static_cast<int>(l % packed_chunk_weights), lane = at / packed_lane_weights,
             i = at % packed_lane_weights;
  const std::uint32_t bits = packed_bits(weight);
  const auto set = [](std::byte& to, std::uint32_t value) { to |= static_cast<std::byte>(value & 0xFFU); };
  set(chunk[at * 2], bits >> 4);
  set(chunk[at * 2 + 1], bits >> 12);
  set(chunk[packed_chunk_weights * 2 + lane * 4 + i / 2], (bits & 0xFU) << (i % 2 * 4));
}

}  // namespace lenslet::cuda

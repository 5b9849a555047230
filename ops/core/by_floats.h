#pragma once
// Functions of float32 on bfloat16 elements: widened in pieces that L1 holds, computed in float32, rounded once.

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/convert_floats.h"
#include "base/half.h"

namespace lenslet {

/// Floats of a piece. Three such pieces take a quarter of a 48 KiB L1.
inline constexpr std::int64_t floats_at_once = 1024;
using FloatPiece = std::array<float, floats_at_once>;

inline void widen(const BFloat16* x, float* y, std::int64_t n) { convert_floats(DType::bf16, x, DType::f32, y, n); }
inline void narrow(const float* x, BFloat16* y, std::int64_t n) { convert_floats(DType::f32, x, DType::bf16, y, n); }

/// Rows of `count` elements, `row` apart, as dense floats, and back.
inline void widen_rows(const BFloat16* x, std::int64_t row, std::int64_t rows, std::int64_t count, float* y) {
  if (row == count) return widen(x, y, rows * count);
  for (std::int64_t r = 0; r < rows; ++r) widen(x + r * row, y + r * count, count);
}
inline void narrow_rows(const float* x, BFloat16* y, std::int64_t row, std::int64_t rows, std::int64_t count) {
  if (row == count) return narrow(x, y, rows * count);
  for (std::int64_t r = 0; r < rows; ++r) narrow(x + r * count, y + r * row, count);
}

/// Calls f(row, rows, first, count) for blocks of at most floats_at_once elements of rows of n: rows [row, row + rows),
/// their elements [first, first + count).
template <typename F>
void for_each_piece(std::int64_t rows, std::int64_t n, const F& f) {
  for (std::int64_t first = 0; first < n; first += floats_at_once) {
    const std::int64_t count = std::min(floats_at_once, n - first), most = floats_at_once / count;
    for (std::int64_t row = 0; row < rows; row += most) f(row, std::min(most, rows - row), first, count);
  }
}

/// y = f(x) of n elements; y may be x. f(from, to, count) computes floats, possibly in place.
template <typename F>
void map_floats(const float* x, float* y, std::int64_t n, const F& f) {
  f(x, y, n);
}
template <typename F>
void map_floats(const BFloat16* x, BFloat16* y, std::int64_t n, const F& f) {
  alignas(64) FloatPiece piece;
  for (std::int64_t i = 0; i < n; i += floats_at_once) {
    const std::int64_t count = std::min(floats_at_once, n - i);
    widen(x + i, piece.data(), count);
    f(piece.data(), piece.data(), count);
    narrow(piece.data(), y + i, count);
  }
}

}  // namespace lenslet

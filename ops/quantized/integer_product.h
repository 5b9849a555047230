#pragma once
// Exact (modulo 2^32) products of 8-bit integers, and requantisation of their accumulators.

#include <cstdint>

#include "base/cuda/host_device.h"
#include "ops/core/requantization.h"

namespace lenslet {

/// Offset of an operand's parameter: one for all, per row (left operand) or per column (right operand).
struct Lines {
  std::int64_t step = 0;    ///< to the next row's or column's; 0: one for all
  std::int64_t matrix = 0;  ///< rows or columns from a matrix to the next
  LENSLET_HOST_DEVICE std::int64_t at(std::int64_t of_matrix, std::int64_t line) const {
    return (of_matrix * matrix + line) * step;
  }
};

/// An int8 or uint8 operand of a kernel, in host or device memory.
struct IntegerOperand {
  const std::uint8_t* data = nullptr;
  bool is_signed = false;
  const std::uint8_t* zero = nullptr;  ///< its zero points, of its type; null: 0
  Lines zeros = {};

  LENSLET_HOST_DEVICE int widened(std::uint8_t byte) const {
    const int flip = is_signed ? 0x80 : 0;
    return (byte ^ flip) - flip;
  }
  LENSLET_HOST_DEVICE int zero_point(std::int64_t matrix, std::int64_t line) const {
    return zero == nullptr ? 0 : widened(zero[zeros.at(matrix, line)]);
  }
};

/// Scales for requantisation.
struct ScaleOperand {
  const float* values = nullptr;
  Lines lines = {};
  LENSLET_HOST_DEVICE float at(std::int64_t matrix, std::int64_t line) const { return values[lines.at(matrix, line)]; }
};

/// A result element: row i, column j, and the matrices `left` and `right` of the operands.
struct IntegerPlace {
  std::int64_t left = 0, right = 0, i = 0, j = 0;
};

/// The epilogue of integer products.
struct IntegerResult {
  void* y = nullptr;                   ///< int32, or where y_scale is there int8 or uint8
  const std::int32_t* bias = nullptr;  ///< by row
  Lines bias_lines = {.step = 1};
  ScaleOperand row_scale = {}, column_scale = {};
  const float* y_scale = nullptr;
  IntegerOperand y_zero = {};  ///< its `zero` is y's zero point, and y has its type

  LENSLET_HOST_DEVICE bool is_quantized() const { return y_scale != nullptr; }
  /// In float32, as in ONNX Runtime.
  LENSLET_HOST_DEVICE float multiplier(const IntegerPlace& at) const {
    return row_scale.at(at.left, at.i) * column_scale.at(at.right, at.j) / *y_scale;
  }
  /// The accumulator with its bias, modulo 2^32.
  LENSLET_HOST_DEVICE std::int32_t whole(std::int32_t sum, const IntegerPlace& at) const {
    const std::int32_t more = bias == nullptr ? 0 : bias[bias_lines.at(at.left, at.i)];
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) + static_cast<std::uint32_t>(more));
  }
};

/// requantized() to either type.
LENSLET_HOST_DEVICE inline std::uint8_t requantized(std::int32_t sum, float multiplier, int zero, bool is_signed) {
  const auto acc = static_cast<float>(sum);
  return is_signed ? static_cast<std::uint8_t>(requantized<std::int8_t>(acc, multiplier, zero))
                   : requantized<std::uint8_t>(acc, multiplier, zero);
}

// On the CPU k is packed into 32-bit words, as the instruction set multiplies them: four bytes (signed on the left,
// unsigned on the right), or two 16-bit integers minus their zero points. The left operand is [row][line words], the
// right one panels of integer_panel_columns() columns, [line word][column]. A line's last two words correct for the
// zero points of bytes.

std::int64_t integer_panel_columns();
std::int64_t integer_word_k();
/// Words for `terms` elements of k.
inline std::int64_t integer_words(std::int64_t terms) { return (terms + integer_word_k() - 1) / integer_word_k(); }
/// Length of a line with `words` words of k.
constexpr std::int64_t integer_line(std::int64_t words) { return words + 2; }

/// Packs a row of the left operand: for each tap the words of its elements; element i of tap t is from[i * taps + t].
void pack_integer_row(const IntegerOperand& of, int zero, const std::uint8_t* from, std::int64_t taps,
                      std::int64_t terms, std::int32_t* line);

/// Columns of a panel of the right operand.
struct PanelColumns {
  std::int64_t matrix = 0, first = 0, count = 0;  ///< no more than integer_panel_columns()
};
/// Packs words of `terms` elements; element i of column j is from[i * step + j].
void pack_integer_panel(const IntegerOperand& of, const PanelColumns& columns, const std::uint8_t* from,
                        std::int64_t step, std::int64_t terms, std::int32_t* panel);
/// Copies `words` already packed words of `count` columns; word i of column j is from[i * step + j].
void copy_integer_words(const std::int32_t* from, std::int64_t step, std::int64_t words, std::int64_t count,
                        std::int32_t* panel);
/// Writes the correction words of the columns, behind `words` packed ones.
void close_integer_panel(const IntegerOperand& of, const PanelColumns& columns, std::int64_t words,
                         std::int32_t* panel);

/// sums[i][j] for a panel's columns, which are the pitch of `sums`; need not be initialised.
void multiply_integer_panel(const std::int32_t* a, std::int64_t rows, std::int64_t words, const std::int32_t* panel,
                            std::int32_t* sums);
/// Epilogue of rows of `count` accumulators, from `at` on, with a pitch of integer_panel_columns(); y's rows start at
/// element `y_at`, y_step apart.
void store_integer_rows(const IntegerResult& result, const std::int32_t* sums, std::int64_t rows,
                        const IntegerPlace& at, std::int64_t count, std::int64_t y_at, std::int64_t y_step);

}  // namespace lenslet

#pragma once
// Operators that multiply 8-bit integers: which input is what, and what their kernels share.

#include <cstddef>
#include <span>

#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/quantized/integer_product.h"

namespace lenslet {

/// Numbers of inputs. The left operand has parameters by row, the right one by column.
struct IntegerInputs {
  static constexpr std::size_t none = 99;
  std::size_t left = 0, right = 1;
  std::size_t left_zero = 2, right_zero = 3;
  std::size_t left_scale = none, right_scale = none, y_scale = none, y_zero = none;
  std::size_t bias = none;

  /// Checks the types of all that are there, and gives the result's.
  DType result_type(std::span<const InputInfo> inputs) const;
};

/// Where the parameters of a problem lie: those of zero points and of scales.
struct IntegerLines {
  Lines left_zero = {}, right_zero = {}, left_scale = {}, right_scale = {};
};

/// The operands of a run.
struct IntegerRun {
  IntegerOperand left, right;
  IntegerResult result;
  IntegerRun(const KernelRun& run, const IntegerInputs& inputs, const IntegerLines& lines);
};
/// A known operand, on the host.
IntegerOperand operand_of(const Problem& problem, std::size_t data, std::size_t zero, const Lines& zeros);
/// Are operand and zero point known?
bool is_known(std::span<const InputInfo> inputs, std::size_t data, std::size_t zero);

/// For SimpleKernel::offer: the one candidate, which does not read operand `data` and its zero point where both are
/// known, and in the blob.
template <typename Bound>
Offer offer_prepared(const Problem& problem, const Target& target, std::size_t data, std::size_t zero) {
  Candidate candidate;
  candidate.inputs.assign(problem.inputs().size(), formats::nchw);
  candidate.outputs = {formats::nchw};
  if (is_known(problem.inputs(), data, zero)) candidate.reads &= ~(input_bit(data) | input_bit(zero));
  candidate.workspace_bytes = Bound({problem, candidate, target.device}).workspace_bytes();
  return candidate;
}

using Int8Types = Types<std::int8_t, std::uint8_t>;

/// Terms of a sum as they are kept: in pairs.
constexpr std::int64_t even(std::int64_t terms) { return (terms + 1) / 2 * 2; }
/// to[i] = of.data[at + i] - zero, then zeros up to an even count.
void widen_integers(const IntegerOperand& of, std::int64_t at, int zero, std::int64_t count, std::int16_t* to);

/// Pieces of a parallel loop of which each multiplies `products` pairs: some microseconds.
constexpr std::int64_t integer_grain(std::int64_t products) { return 1 + 100000 / (products + 1); }

/// Multiplies rows [0, rows) of `a`, widened, with a panel, and calls store(first, sums) for each block of rows, whose
/// sums lie integer_panel_columns() apart.
template <typename Store>
void multiply_rows(const std::int16_t* a, std::int64_t rows, std::int64_t k, const std::int16_t* panel,
                   const Store& store) {
  constexpr std::int64_t most_rows = 48, most_columns = 64;
  alignas(64) std::int32_t sums[most_rows * most_columns];
  for (std::int64_t first = 0; first < rows; first += most_rows) {
    const std::int64_t count = rows - first < most_rows ? rows - first : most_rows;
    multiply_integer_panel(a + first * k, count, k, panel, sums);
    for (std::int64_t i = 0; i < count; ++i) store(first + i, sums + i * integer_panel_columns());
  }
}

}  // namespace lenslet

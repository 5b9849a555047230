#pragma once
// Operators that multiply 8-bit integers: the roles of their inputs, and shared parts of their kernels.

#include <cstddef>
#include <span>

#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/quantized/integer_product.h"

namespace lenslet {

/// Input indices. The left operand has parameters per row, the right one per column.
struct IntegerInputs {
  static constexpr std::size_t none = 99;
  std::size_t left = 0, right = 1;
  std::size_t left_zero = 2, right_zero = 3;
  std::size_t left_scale = none, right_scale = none, y_scale = none, y_zero = none;
  std::size_t bias = none;

  /// Checks the types of all present inputs; returns the result's type.
  DType result_type(std::span<const InputInfo> inputs) const;
};

/// Offsets of a problem's zero points and scales.
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
/// True if operand and zero point are known.
bool is_known(std::span<const InputInfo> inputs, std::size_t data, std::size_t zero);

/// For SimpleKernel::offer: a single candidate, bound by `bind`, that does not read the inputs `in_blob`.
inline Offer offer_prepared(const Problem& problem, const Target& target, InputMask in_blob,
                            std::unique_ptr<const BoundKernel> (*bind)(const Binding&)) {
  Candidate candidate;
  candidate.inputs.assign(problem.inputs().size(), formats::nchw);
  candidate.outputs = {formats::nchw};
  candidate.reads &= ~in_blob;
  candidate.workspace_bytes = bind({problem, candidate, target.device})->workspace_bytes();
  return candidate;
}

using Int8Types = Types<std::int8_t, std::uint8_t>;

/// Grain of a parallel loop whose items have `products` products: pieces take some microseconds.
constexpr std::int64_t integer_grain(std::int64_t products) { return 1 + 100000 / (products + 1); }

/// Multiplies rows [0, rows) of `a` by a panel, both packed, and calls store(first, count, sums) per block of rows;
/// `sums` has a pitch of integer_panel_columns().
template <typename Store>
void multiply_rows(const std::int32_t* a, std::int64_t rows, std::int64_t words, const std::int32_t* panel,
                   const Store& store) {
  constexpr std::int64_t most_rows = 48, most_columns = 64;
  alignas(64) std::int32_t sums[most_rows * most_columns];
  for (std::int64_t first = 0; first < rows; first += most_rows) {
    const std::int64_t count = rows - first < most_rows ? rows - first : most_rows;
    multiply_integer_panel(a + first * integer_line(words), count, words, panel, sums);
    store(first, count, sums);
  }
}

}  // namespace lenslet

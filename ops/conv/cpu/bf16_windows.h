#pragma once
// Convolutions of bfloat16 with float32 sums as products without columns: what bf16_packed and bf16_amx share.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/conv/cpu/packed_windows.h"

namespace lenslet {

/// The inner kernel of bf16_packed, for the instruction set in use.
WindowKernel bf16_vector_kernel();

/// x is bfloat16, or float32 that is rounded to it (a stem).
class Bf16Conv : public WindowConv {
 public:
  DTypeSet types() const override { return dtypes<Types<BFloat16>>; }

 protected:
  bool reads_float32() const override { return true; }
  double tolerance(const ConvProblem& p) const override;
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override;
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> to) const override;
};

/// The epilogue of a panel's filters.
struct Bf16Panel {
  static constexpr std::int64_t most_columns = 32;

  Bf16Panel(const WindowBlock& block, std::int64_t first, std::int64_t columns);

  alignas(64) float start[most_columns] = {};  ///< bias; zero past the last
  std::int64_t columns;
  Activation activation;
};

/// Adds the residual (or none) to sums [rows][two vectors], which began with panel.start, applies the activation,
/// rounds to bfloat16 and stores panel.columns elements of each of at most 16 rows.
void store_bf16_rows(const Bf16Panel& panel, const float* sums, std::int64_t rows, std::byte* y,
                     const std::byte* residual, std::int64_t y_pixel);

}  // namespace lenslet

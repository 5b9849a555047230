#pragma once
// Requantized convolutions of uint8 as products without columns: what int8_packed and int8_amx share.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/conv/cpu/packed_windows.h"

namespace lenslet {

/// The codes of y.
struct Int8Codes {
  std::int32_t zero_point = 0, least = 0, most = 255;
  bool is_signed = false;
};
Int8Codes codes_of(const ConvProblem& p);

/// Whether the CPU multiplies bytes by AVX-VNNI.
bool has_avx_vnni();

/// The inner kernel of int8_packed, for the instruction set in use.
WindowKernel int8_vector_kernel();

class Int8Conv : public WindowConv {
 public:
  DTypeSet types() const override { return dtypes<Types<std::uint8_t, std::int8_t>>; }

 protected:
  DType filter_type() const override { return DType::i8; }
  DType accumulator_type() const override { return DType::i32; }
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override;
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> to) const override;
};

/// Why a kernel that only makes codes of its sums refuses a problem; nothing if it need not.
std::optional<std::string> refuse_more_than_codes(const ConvProblem& p);

/// Multipliers and first summands of a panel's filters, zero past the last.
struct Int8Panel {
  static constexpr std::int64_t most_columns = 32;

  Int8Panel(const WindowBlock& block, std::int64_t first, std::int64_t columns);

  alignas(64) float multipliers[most_columns] = {};
  alignas(64) std::int32_t start[most_columns] = {};
  std::int64_t columns;
  bool finite, below_one;  ///< all multipliers; their magnitudes, so that products are below 2^31
  Int8Codes codes;
};

/// Requantizes sums [rows][two vectors], which began with panel.start, and stores panel.columns bytes of each row.
void store_int8_rows(const Int8Panel& panel, const std::int32_t* sums, std::int64_t rows, std::uint8_t* y,
                     std::int64_t y_pixel);

}  // namespace lenslet

#pragma once
// Requantized convolutions of uint8 as products without columns: what int8_packed and int8_amx share. A row of A is an
// output pixel's window: runs of elements in x itself, or in a copy of a band of x that has its pads. A word has 4
// bytes: 4 elements of 8 bits, or 2 of 16 where the instruction set cannot multiply bytes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/conv/algorithm.h"

namespace lenslet {

/// The codes of y, and where they are stored.
struct Int8Codes {
  std::int32_t zero_point = 0, least = 0, most = 255;
  bool is_signed = false;
};

/// The windows of `m` output pixels times some filters of one group.
struct Int8Block {
  const std::byte* const* windows = nullptr;  ///< [m]: the first element of each window in group 0
  std::int64_t m = 0;
  std::int64_t line = 0, window_stride = 0;  ///< each `line` windows are window_stride bytes apart
  std::int64_t lines = 1, line_stride = 0;   ///< so many lines begin line_stride windows apart; 0: no whole number
  const std::int64_t* runs = nullptr;        ///< bytes from there to each run
  std::int64_t run_count = 0, words = 0, group_offset = 0;
  const std::int32_t* filters = nullptr;      ///< packed (Int8Layout)
  std::int64_t k = 0;                         ///< filters
  const float* multipliers = nullptr;         ///< [k]
  const std::int32_t* corrections = nullptr;  ///< [k], added to the sums
  const std::int32_t* bias = nullptr;         ///< [k], or null
  std::uint8_t* y = nullptr;                  ///< [m][k], y_pixel bytes apart
  std::int64_t y_pixel = 0;
  Int8Codes codes;
};

/// An inner kernel, and what its estimate needs.
struct Int8Kernel {
  void (*multiply)(const Int8Block&) = nullptr;
  std::int64_t lanes = 0;                        ///< filters of a vector; a panel has two
  std::int64_t word_k = 4;                       ///< elements of a word
  std::int64_t block_words = 1 << 30;            ///< the most words of a k-block; a run is padded to equal ones
  std::int64_t tile_pixels = 1, tile_words = 1;  ///< what a multiplication computes, needed or not
  double speed = 1;                              ///< products for each of the profile's fp32 products
  double vector_us = 0;                          ///< to requantize and store a vector of sums
};

/// The filters: K corrections -x_zero_point * sum(w); then for each group panels of two vectors of filters (the last
/// has one if that suffices), each [runs][words][filters] words.
struct Int8Layout {
  Int8Layout(const ConvProblem& p, const Int8Kernel& kernel);

  std::int64_t lanes, word_k, element_bytes;
  bool adjacent;  ///< a run is a line of the window: S*C elements; else a tap's C/groups
  std::int64_t run_elements, words;
  bool copies;                     ///< x is copied, with its pads
  std::int64_t window_w, x_pixel;  ///< columns of a window; bytes from pixel to pixel
  std::int64_t over_read;          ///< bytes that a kernel reads past a run
  std::int64_t correction_words, group_words;

  std::int64_t run_count(const ConvProblem& p) const { return adjacent ? p.r : p.r * p.s; }
};

/// Whether the CPU multiplies bytes by AVX-VNNI.
bool has_avx_vnni();

/// The inner kernel of int8_packed, for the instruction set in use.
Int8Kernel int8_vector_kernel();

class Int8Conv : public ConvAlgorithm {
 public:
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<Types<std::uint8_t, std::int8_t>>; }

 protected:
  virtual Int8Kernel kernel() const = 0;

  DType filter_type() const override { return DType::i8; }
  DType accumulator_type() const override { return DType::i32; }
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override;
  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override;
  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override;
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> to) const override;
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override;
};

/// Why a kernel that only makes codes of its sums refuses a problem; nothing if it need not.
std::optional<std::string> refuse_more_than_codes(const ConvProblem& p);

/// Multipliers and first summands of a panel's filters, zero past the last.
struct Int8Panel {
  static constexpr std::int64_t most_columns = 32;

  Int8Panel(const Int8Block& block, std::int64_t first, std::int64_t columns);

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

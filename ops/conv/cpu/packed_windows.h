#pragma once
// Convolutions as products without columns: what int8_packed, int8_amx, bf16_packed and bf16_amx share. A row of A is
// an output pixel's window: runs of elements in x itself, or in a copy of a band of x that has its pads. A word has 4
// bytes: 4 elements of 8 bits, or 2 of 16 (bfloat16, or codes where the instruction set cannot multiply bytes).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ops/conv/algorithm.h"

namespace lenslet {

/// The windows of `m` output pixels times some filters of one group.
struct WindowBlock {
  const ConvProblem* problem = nullptr;       ///< for the epilogue
  const std::byte* const* windows = nullptr;  ///< [m]: the first element of each window in group 0
  std::int64_t m = 0;
  std::int64_t line = 0, window_stride = 0;  ///< each `line` windows are window_stride bytes apart
  std::int64_t lines = 1, line_stride = 0;   ///< lines, and windows from one to the next; 0: no whole number
  const std::int64_t* runs = nullptr;        ///< bytes from there to each run
  std::int64_t run_count = 0, words = 0, group_offset = 0;
  const std::int32_t* filters = nullptr;  ///< packed (WindowLayout)
  std::int64_t k = 0;                     ///< filters
  const std::byte* bias = nullptr;        ///< [k] accumulators, or null
  std::byte* y = nullptr;                 ///< [m][k], y_pixel bytes apart
  const std::byte* residual = nullptr;    ///< as y; may be y
  std::int64_t y_pixel = 0;
  // Of codes:
  const float* multipliers = nullptr;         ///< [k]
  const std::int32_t* corrections = nullptr;  ///< [k], added to the sums
};

/// An inner kernel, and what its estimate needs.
struct WindowKernel {
  void (*multiply)(const WindowBlock&) = nullptr;
  std::int64_t lanes = 0;                        ///< filters of a vector; a panel has two
  std::int64_t word_k = 4;                       ///< elements of a word
  std::int64_t block_words = 1 << 30;            ///< the most words of a k-block; a run is padded to equal ones
  std::int64_t tile_pixels = 1, tile_words = 1;  ///< what a multiplication computes, needed or not
  bool reads_past_runs = true;  ///< what it reads there is finite and times 0: true of codes, not of floats
  double speed = 1;             ///< products for each of the profile's fp32 products
  double vector_us = 0;         ///< epilogue of a vector of sums
};

/// The filters: of codes, K corrections -x_zero_point * sum(w); then for each group panels of two vectors of filters
/// (the last has one if that suffices), each [runs][words][filters] words.
struct WindowLayout {
  WindowLayout(const ConvProblem& p, const WindowKernel& kernel);

  std::int64_t lanes, word_k;
  bool adjacent;         ///< a run is a line of the window: S*group_c elements; else a tap's group_c
  std::int64_t group_c;  ///< channels of a group in a window, some added so that runs are whole
  std::int64_t element_bytes, x_bytes, y_bytes;  ///< of an element in a word, in x, in y
  std::int64_t run_elements, words;
  bool copies;                     ///< x is copied, with its pads
  std::int64_t window_w, x_pixel;  ///< columns of a window; bytes from pixel to pixel
  std::int64_t over_read;          ///< bytes that a kernel reads past a run
  std::int64_t correction_words, group_words;

  std::int64_t run_count(const ConvProblem& p) const { return adjacent ? p.r : p.r * p.s; }
};

class WindowConv : public ConvAlgorithm {
 public:
  DeviceKind device() const override { return DeviceKind::cpu; }

 protected:
  virtual WindowKernel kernel() const = 0;
  /// kernel() in this configuration: another `multiply` and `speed`.
  virtual WindowKernel kernel_of(std::string_view /*config*/) const { return kernel(); }
  virtual double tolerance(const ConvProblem&) const { return 0; }

  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override;
  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, target, {});
  }
  ConvCandidate candidate_of(const ConvProblem& p, const Target& target, std::string_view config) const;
  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override;
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override;

  /// For transform(): calls place(k, i, element) with the place of each weight; i counts c, r, s.
  using PlaceWeight = std::function<void(std::int64_t k, std::int64_t i, std::byte* element)>;
  void place_weights(const ConvProblem& p, std::int32_t* words, const PlaceWeight& place) const;
};

}  // namespace lenslet

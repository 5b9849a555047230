#pragma once
// Packed filters of wgmma_gemm, wgmma_tf32 and wgmma_halo, as TMA loads them: [sets of groups][filters of a
// set][R*S][prepared_channels of a set], rounded to x's type or, for float32, to TF32; the latter permuted
// within a box (tf32_filter_at). Plain C++.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

struct WgmmaFilters {
  std::int64_t together = 1;  ///< groups in a set (group_sets.h)
  std::int64_t filters = 0;   ///< of a set, zero-padded; float32: whole boxes

  /// Filters of all sets.
  std::int64_t all(const ConvProblem& problem) const { return problem.groups / together * filters; }
  std::int64_t elements(const ConvProblem& problem) const;
  /// Identifies the packing, besides problem and constants.
  std::string form(const ConvProblem& problem) const;
  /// `to` holds elements() elements.
  void write(const ConvProblem& problem, const ConvFilter& filter, std::span<std::byte> to) const;
};

/// Pads filters to whole tiles of n: TMA boxes that reach past the last filter can take longer than the products
/// (64x256x28x28 -> 72, 3x3, by 128x128: 77 us for 46 in fp16, 136 for 95 in TF32).
WgmmaFilters in_whole_tiles(const ConvProblem& problem, std::int64_t together, int n);

inline constexpr const char* wgmma_sets_refusal = "several groups, whose filters fill no whole tiles";

/// An algorithm with such filters.
class WgmmaConv : public ConvAlgorithm {
 protected:
  virtual WgmmaFilters filters_of(const ConvProblem& problem, std::string_view config) const = 0;
  FilterForm filter_form(const ConvProblem& problem, std::string_view config) const final;
  void transform(const ConvProblem& problem, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> to) const final;
};

}  // namespace lenslet::cuda

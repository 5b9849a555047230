#pragma once
// What can be wrong with the values of sparse operators in a run, and in which words it is told: those of the CPU,
// which throws them, and of CUDA's kernels, which leave numbers behind (ops/core/fault.h).

#include <cstdint>
#include <span>
#include <string>

#include "ops/sparse/grid.h"

namespace lenslet {

enum class SiteFault : std::int32_t {
  none,
  // Of a row of indices; a smaller one is told first where one row has several.
  behind_empty,  ///< other: the first row that holds no site
  outside,
  twice,  ///< other: the row of the same site where they need not be in order, else -1
  out_of_order,
  // Of all of them together.
  sites,         ///< more than the bound; count
  pairs,         ///< count
  output_sites,  ///< count
  // Of a rulebook's value.
  no_rulebook,
  leads_elsewhere,  ///< row, other: inputs and outputs
  bad_pairs,
};

/// As CUDA's kernels write it into Context::fault, in this order.
struct SiteFaultWords {
  SiteFault kind = SiteFault::none;
  std::int32_t row = 0, other = -1;
  std::int32_t site[4] = {};  ///< the row as it stands
  std::int32_t count_low = 0, count_high = 0;

  std::int64_t count() const {
    return std::int64_t{count_high} * (std::int64_t{1} << 32) + static_cast<std::uint32_t>(count_low);
  }
};

/// `words`: what a kernel has written, 9 at least.
SiteFaultWords read_fault(std::span<const std::int32_t> words);

/// What the texts name besides.
struct SiteFaultContext {
  SparseGrid grid = {};
  std::int64_t max_sites = 0, max_pairs = 0;
  std::int64_t taps = 0, most_inputs = 0, most_outputs = 0;  ///< what a rulebook has to be
};

std::string site_fault_text(const SiteFaultWords& words, const SiteFaultContext& context);

}  // namespace lenslet

#pragma once
// Faults in the values of sparse operators and their messages: thrown by the CPU, and reported as numbers by CUDA's
// kernels (ops/core/fault.h).

#include <cstdint>
#include <span>
#include <string>

#include "ops/sparse/grid.h"

namespace lenslet {

enum class SiteFault : std::int32_t {
  none,
  // Of one row of indices; with several faults the smaller is reported.
  behind_empty,  ///< other: the first row that holds no site
  outside,
  twice,  ///< other: the row of the same site where they need not be in order, else -1
  out_of_order,
  // Of all rows together.
  sites,         ///< more than the bound; count
  pairs,         ///< count
  output_sites,  ///< count
  // Of a rulebook's value.
  no_rulebook,
  leads_elsewhere,  ///< row, other: inputs and outputs
  bad_pairs,
};

/// Words that CUDA's kernels write to Context::fault, in this order.
struct SiteFaultWords {
  SiteFault kind = SiteFault::none;
  std::int32_t row = 0, other = -1;
  std::int32_t site[4] = {};  ///< the row as it stands
  std::int32_t count_low = 0, count_high = 0;

  std::int64_t count() const {
    return std::int64_t{count_high} * (std::int64_t{1} << 32) + static_cast<std::uint32_t>(count_low);
  }
};

/// `words`: written by a kernel, at least 9.
SiteFaultWords read_fault(std::span<const std::int32_t> words);

/// What else the messages mention.
struct SiteFaultContext {
  SparseGrid grid = {};
  std::int64_t max_sites = 0, max_pairs = 0;
  std::int64_t taps = 0, most_inputs = 0, most_outputs = 0;  ///< what a rulebook has to be
};

std::string site_fault_text(const SiteFaultWords& words, const SiteFaultContext& context);

}  // namespace lenslet

#pragma once
// How rulebooks are made on a device, to the values that the CPU makes (build_rulebook.h). Nothing is sorted that
// arrives in order, and no table is built where counting bits gives the numbers:
//
// A submanifold's pairs: each block of sites finds where the line of cells that a line of taps leads to lies among the
// rows, takes those rows' keys into shared memory, and each site looks there. Three launches: find and count, places,
// write.
//
// Outputs of the others: a bit a cell of their grid, set by the pairs; counting the bits before one gives the output's
// number. Five launches: count (and clear), mark, number, places, write. Beyond `most_marked_cells` the keys of the
// pairs' outputs are sorted instead, and equal ones get one number.
//
// A table of neighbours comes along in the same launches: cleared while pairs are counted, filled while they are
// written; a submanifold's finds its first half anyway.
//
// What is counted is counted a warp of 32 sites and a tap, so that neither counting nor writing needs a barrier.
// Nothing that the order of threads decides is ever read but bits that are set by `or`.

#include <cstddef>
#include <cstdint>

#include "ops/sparse/build_rulebook.h"

namespace lenslet::cuda {

struct Context;

/// Clearing, reading and numbering bits of so many cells takes some 45 us on an H200 (half a byte a cell at 3 TB/s),
/// as long as sorting the pairs of 160,000 sites.
inline constexpr std::int64_t most_marked_cells = std::int64_t{1} << 28;

/// Device addresses of what is made.
struct RulebookMemory {
  std::int32_t* rulebook = nullptr;
  std::int32_t* out_indices = nullptr;  ///< only of what is no submanifold, or null
  std::int32_t* table = nullptr;        ///< of neighbours, where the plan has one
  std::byte* workspace = nullptr;
};

/// Bytes of workspace of make_rulebook().
std::size_t rulebook_workspace_bytes(const RulebookPlan& plan);
/// What is wrong is told to context.fault as SiteFaultWords say, and the rulebook then is that of no site.
void make_rulebook(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                   const RulebookMemory& to);

}  // namespace lenslet::cuda

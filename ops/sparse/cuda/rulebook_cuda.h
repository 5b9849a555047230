#pragma once
// Builds rulebooks on a device, equal to the CPU's (build_rulebook.h). Sorted input is not sorted again, and no hash
// table is used where counting bits gives the numbers:
//
// Submanifold pairs: each block of sites finds the rows that a line of taps leads to, loads their keys into shared
// memory, and each site searches there. Three launches: find and count, offsets, write.
//
// Outputs of other geometries: pairs set one bit per cell of the output grid; the number of bits before one is the
// output's number. Five launches: count (and clear), mark, number, offsets, write. Beyond `most_marked_cells` the
// pairs' output keys are sorted instead, and equal keys get one number.
//
// A neighbour table is built in the same launches: cleared while pairs are counted, filled while they are written.
// Submanifolds have its first half anyway.
//
// Counts are per warp of 32 sites and tap, so that counting and writing need no barrier. Only bits set by `or` depend
// on the order of threads, so results are deterministic.

#include <cstddef>
#include <cstdint>

#include "ops/sparse/build_rulebook.h"

namespace lenslet::cuda {

struct Context;

/// Clearing, reading and numbering the bits of this many cells takes about 45 us on an H200 (half a byte per cell at 3
/// TB/s), as long as sorting the pairs of 160,000 sites.
inline constexpr std::int64_t most_marked_cells = std::int64_t{1} << 28;

/// Device addresses of the results.
struct RulebookMemory {
  std::int32_t* rulebook = nullptr;
  std::int32_t* out_indices = nullptr;  ///< only of what is no submanifold, or null
  std::int32_t* table = nullptr;        ///< of neighbours, where the plan has one
  std::byte* workspace = nullptr;
};

/// Bytes of workspace of make_rulebook().
std::size_t rulebook_workspace_bytes(const RulebookPlan& plan);
/// Faults go to context.fault as SiteFaultWords; the rulebook is then that of no site.
void make_rulebook(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                   const RulebookMemory& to);

}  // namespace lenslet::cuda

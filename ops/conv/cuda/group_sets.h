#pragma once
// Grouped convolutions as dense ones: `together` groups form a set, with zeros across groups. An infinity times a zero
// of a neighbouring group gives NaN. Plain C++.

#include <cstdint>
#include <vector>

#include "ops/conv/problem.h"

namespace lenslet::cuda {

/// The dense convolution of a set of `together` groups, a divisor of problem.groups; the problem itself for one group.
ConvProblem group_set(const ConvProblem& problem, std::int64_t together);
/// Useful set sizes: at least whole 16-byte vectors (or all groups), up to 128 channels and filters.
std::vector<std::int64_t> useful_sets(const ConvProblem& problem);

/// The plan for sets of `together` groups whose filters fill whole tiles: tiling(set) scaled to all sets.
template <typename Tiling>
auto split_sets(const ConvProblem& problem, std::int64_t together, const Tiling& tiling) {
  auto plan = tiling(group_set(problem, together));
  plan.together = together;
  plan.sets = problem.groups / together;
  plan.tiles_n *= plan.sets;
  return plan;
}

}  // namespace lenslet::cuda

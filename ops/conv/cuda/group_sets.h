#pragma once
// Convolutions of several groups as dense ones: so many groups together, with zeros across them, are a set. Sets are
// computed apart, of their own channels. An infinity meets the zeros of its neighbours' groups and makes NaNs there.
// Plain C++.

#include <cstdint>
#include <vector>

#include "ops/conv/problem.h"

namespace lenslet::cuda {

/// The dense convolution of a set of `together` groups, a divisor of problem.groups; the problem itself if it has one.
ConvProblem group_set(const ConvProblem& problem, std::int64_t together);
/// As many groups together as a set may have: those of whole vectors of 16 bytes, or all; the fewest, and up to 128
/// channels and filters.
std::vector<std::int64_t> useful_sets(const ConvProblem& problem);

/// The plan of sets of `together` groups, whose filters fill whole tiles: of all what cut(set) says of one.
template <typename Cut>
auto cut_sets(const ConvProblem& problem, std::int64_t together, const Cut& cut) {
  auto plan = cut(group_set(problem, together));
  plan.together = together;
  plan.sets = problem.groups / together;
  plan.tiles_n *= plan.sets;
  return plan;
}

}  // namespace lenslet::cuda

#pragma once
// Filters as the direct kernels read them: in groups that one thread computes together.

#include <vector>

#include "ops/conv/cuda/device_filter.h"

namespace lenslet::cuda {

/// Floats that a group takes for one c, r and s: two 16-byte loads, however many filters are in it.
constexpr int group_floats = 8;

constexpr std::int64_t group_count(std::int64_t filters, int filters_a_group) {
  return (filters + filters_a_group - 1) / filters_a_group;
}

/// [C][R][S][groups][8] of a problem without conv groups: filter g * filters_a_group + i at place i of group g, zeros
/// in the places left over.
inline std::unique_ptr<PreparedFilter> prepare_groups(const ConvProblem& problem, const ConvFilter& filter,
                                                      int filters_a_group) {
  const auto terms = static_cast<std::size_t>(problem.c * problem.r * problem.s);
  const auto groups = static_cast<std::size_t>(group_count(problem.k, filters_a_group));
  const auto a_group = static_cast<std::size_t>(filters_a_group);
  std::vector<float> w(terms * groups * group_floats);
  for (std::size_t k = 0; k < static_cast<std::size_t>(problem.k); ++k)
    for (std::size_t i = 0; i < terms; ++i)
      w[(i * groups + k / a_group) * group_floats + k % a_group] = scaled_weight(filter, k, i, terms);
  return std::make_unique<DeviceFilter>(w);
}

}  // namespace lenslet::cuda

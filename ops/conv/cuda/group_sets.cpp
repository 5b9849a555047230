#include "ops/conv/cuda/group_sets.h"

#include "base/aligned_format.h"

namespace lenslet::cuda {

ConvProblem group_set(const ConvProblem& problem, std::int64_t together) {
  ConvProblem set = problem;
  if (problem.groups == 1) return set;
  set.groups = 1;
  set.c = together * problem.group_c();
  set.k = together * problem.group_k();
  return set;
}

std::vector<std::int64_t> useful_sets(const ConvProblem& p) {
  constexpr std::int64_t most = 128;
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 1; count <= p.groups; ++count) {
    if (p.groups % count != 0) continue;
    const std::int64_t c = count * p.group_c(), k = count * p.group_k();
    const bool vectors = aligned_channels(c, p.x_storage) == c && aligned_channels(k, p.storage) == k;
    if (!vectors && count < p.groups) continue;
    if (!counts.empty() && (c > most || k > most)) break;
    counts.push_back(count);
  }
  return counts;
}

}  // namespace lenslet::cuda

// The operators of reductions.

#include "ops/families.h"

namespace lenslet {

// reduce.cpp (root_reduction: those that end in a root or a logarithm), arg_max.cpp, and files of their names
OpParts reduction(), mean_reduction(), extreme_reduction(), root_reduction(), arg_extreme(), cum_sum(), top_k(),
    unique(), det();

std::span<const OpRow> reduce_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts, notes
  static const OpRow rows[] = {
      {"ReduceMean", "", 1, 1, 2, 1, 1, mean_reduction()},
      {"ReduceSum", "", 1, 1, 2, 1, 1, reduction()},
      {"ReduceMax", "", 1, 1, 2, 1, 1, extreme_reduction()},
      {"ReduceMin", "", 1, 1, 2, 1, 1, extreme_reduction()},
      {"ReduceProd", "", 1, 1, 2, 1, 1, reduction()},
      {"ReduceSumSquare", "", 1, 1, 2, 1, 1, reduction()},
      {"ReduceL1", "", 1, 1, 2, 1, 1, reduction()},
      {"ReduceL2", "", 1, 1, 2, 1, 1, root_reduction()},
      {"ReduceLogSum", "", 1, 1, 2, 1, 1, root_reduction()},
      {"ReduceLogSumExp", "", 1, 1, 2, 1, 1, root_reduction()},
      {"ArgMax", "", 1, 1, 1, 1, 1, arg_extreme()},
      {"ArgMin", "", 1, 1, 1, 1, 1, arg_extreme()},
      {"CumSum", "", 11, 2, 2, 1, 1, cum_sum()},
      {"CumProd", "", 26, 2, 2, 1, 1, cum_sum(), "as CumSum"},
      {"Det", "", 11, 1, 1, 1, 1, det()},
      {"TopK", "", 1, 1, 2, 1, 2, top_k(), "always sorted"},
      {"Unique", "", 11, 1, 1, 1, 4, unique(), "on the host, between two parts of the plan"},
  };
  return rows;
}

}  // namespace lenslet

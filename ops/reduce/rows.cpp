// The operators of reductions.

#include "ops/families.h"

namespace lenslet {

// reduce.cpp (root_reduction: those that end in a root or a logarithm), arg_max.cpp
OpParts reduction(), root_reduction(), arg_extreme();

std::span<const OpRow> reduce_rows() {
  // name, domain, first version read, inputs min..max, outputs min..max, parts
  static const OpRow rows[] = {
      {"ReduceMean", "", 1, 1, 2, 1, 1, reduction()},        {"ReduceSum", "", 1, 1, 2, 1, 1, reduction()},
      {"ReduceMax", "", 1, 1, 2, 1, 1, reduction()},         {"ReduceMin", "", 1, 1, 2, 1, 1, reduction()},
      {"ReduceProd", "", 1, 1, 2, 1, 1, reduction()},        {"ReduceSumSquare", "", 1, 1, 2, 1, 1, reduction()},
      {"ReduceL1", "", 1, 1, 2, 1, 1, reduction()},          {"ReduceL2", "", 1, 1, 2, 1, 1, root_reduction()},
      {"ReduceLogSum", "", 1, 1, 2, 1, 1, root_reduction()}, {"ReduceLogSumExp", "", 1, 1, 2, 1, 1, root_reduction()},
      {"ArgMax", "", 1, 1, 1, 1, 1, arg_extreme()},          {"ArgMin", "", 1, 1, 1, 1, 1, arg_extreme()},
  };
  return rows;
}

}  // namespace lenslet

#pragma once
// Network outputs that are constants or aliases of constants, which no step computes.

#include <vector>

#include "runtime/exec/plan.h"

namespace lenslet {

/// A Runner's own copies, rewritten in each run: applications may overwrite outputs, and the Model's memory is shared.
class ConstantOutputs {
 public:
  /// Memory for output `id` of `plan`, whose constant must outlive this.
  Tensor add(const Plan& plan, ValueId id);
  void write();

 private:
  struct Copy {
    Tensor output;
    const Tensor* constant;
  };
  std::vector<Copy> copies_;
};

}  // namespace lenslet

#pragma once
// Outputs that no step makes, because they are known: constants of the model, and what renames them.

#include <vector>

#include "runtime/exec/plan.h"

namespace lenslet {

/// A Runner's own copies, written anew in each run: an app may write over what it gets, and the Model's memory is
/// shared, or a file's.
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

#pragma once
// Operators whose output is the input's bytes under another shape.

#include "ops/core/copy.h"
#include "ops/core/op.h"

namespace lenslet {

/// Runs in nchw only unless an override knows better: another layout stores the elements in another order, which a new
/// shape would show.
class ViewOp : public Op {
 public:
  int alias_input() const override { return 0; }
  // No kernel is needed: plans let output and input share their memory.
  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }
  void run_cpu(const RunContext& context) const override {
    copy_bytes(context.inputs[0], context.outputs[0], context.pool);
  }
};

}  // namespace lenslet

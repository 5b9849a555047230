#pragma once
// Operators with data-dependent output shapes (NonZero, NonMaxSuppression). The host computes them once all inputs are
// known, in shape inference or between plan segments (runtime/graph/late.h). They are never a step of a plan.

#include <span>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

class WholeOp : public Op {
 public:
  /// Computes the outputs from nchw inputs (empty() for one that is left out). Error(invalid_model | invalid_argument)
  /// when their values are not allowed.
  virtual std::vector<Tensor> compute(std::span<const Tensor> inputs) const = 0;
  /// Checks that need only the inputs' types.
  virtual void check(std::span<const InputInfo> inputs) const = 0;
  /// Upper bounds of the output shapes for inputs of these types and known values, which check() has passed.
  virtual std::vector<Shape> bounds(std::span<const InputInfo> inputs) const = 0;

  /// NeedsValue while any input is unknown.
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const final;
};

/// SimpleKernel::bind of such an operator, with known inputs: lets tests compare its results with the oracle.
std::unique_ptr<const BoundKernel> bind_whole(const Binding& binding);

}  // namespace lenslet

#pragma once
// Operators whose output types follow from all that their inputs hold (NonZero, NonMaxSuppression): nothing is known of
// them before everything is. The host computes them, where shapes are inferred or between two parts of a network
// (runtime/graph/late.h), never a step of a plan.

#include <span>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

class WholeOp : public Op {
 public:
  /// The outputs, out of inputs in format nchw (empty() for one that is left out). Error(invalid_model |
  /// invalid_argument) for what they may not hold.
  virtual std::vector<Tensor> compute(std::span<const Tensor> inputs) const = 0;
  /// What can be checked of the inputs' types.
  virtual void check(std::span<const InputInfo> inputs) const = 0;
  /// The largest shapes that compute() may give for inputs of these types and known values, which check() has passed.
  virtual std::vector<Shape> bounds(std::span<const InputInfo> inputs) const = 0;

  /// NeedsValue of all inputs that are not known.
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const final;
};

/// SimpleKernel::bind of such an operator: what it gives for its known inputs, which the tests hold to the oracle.
std::unique_ptr<const BoundKernel> bind_whole(const Binding& binding);

}  // namespace lenslet

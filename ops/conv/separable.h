#pragma once
// SeparableConv: a depthwise convolution and the 1x1 convolution that is its only reader, as one step. The pass
// fuse_separable makes it where one kernel is faster than two; no file contains it. No arithmetic here.

#include <memory>
#include <string>
#include <vector>

#include "ops/conv/conv.h"

namespace lenslet {

/// Both halves: the output of the first is the input of the second, [n,c,p,q].
struct SeparableProblem {
  ConvProblem depthwise;  ///< groups == c == k, without residual
  ConvProblem pointwise;  ///< 1x1, stride 1, one group, no pads

  double flops() const { return depthwise.flops() + pointwise.flops(); }
  /// Input, filters, output (and residual), each once, as stored; the intermediate result is never stored.
  double bytes() const;
  /// "1x96x56x56 -> 96, 3x3 s1 p1 g96 f16 +bias +clip(0,6); -> 24 +bias +residual"
  std::string str() const;

  friend bool operator==(const SeparableProblem&, const SeparableProblem&) = default;
};

/// Inputs: x, depthwise filters [C,1,R,S], their bias (optional), 1x1 filters [K,C,1,1], their bias (optional),
/// residual (optional). attributes(): both Convs', the depthwise one's prefixed "depthwise_".
class SeparableConvOp final : public Op {
 public:
  static constexpr std::size_t input = 0, depthwise_filter = 1, depthwise_bias = 2, filter = 3, bias = 4, residual = 5;

  explicit SeparableConvOp(const NodeSpec& spec);

  std::string_view type() const override { return "SeparableConv"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::string describe(std::span<const InputInfo> inputs) const override;
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override;

  /// The problem of these inputs. Error(internal) where the halves do not fit SeparableProblem.
  SeparableProblem problem(std::span<const InputInfo> inputs) const;
  const ConvOp& depthwise() const { return *depthwise_; }
  const ConvOp& pointwise() const { return *pointwise_; }

 private:
  std::shared_ptr<const ConvOp> depthwise_, pointwise_;
};

/// Attributes of the fused step of a depthwise Conv and the 1x1 Conv behind it.
AttributeList separable_attributes(const Op& depthwise, const Op& pointwise);

/// A node of `problem` with constant filters and biases (as many as the problem has), for tests and benches. The
/// tensors are shared.
std::unique_ptr<const Problem> pose(const SeparableProblem& problem, const Tensor& depthwise_filter,
                                    const Tensor& depthwise_bias, const Tensor& filter, const Tensor& bias,
                                    const AttributeList& more_attributes = {});

}  // namespace lenslet

#pragma once
// Elementwise operators of one input: Relu, Sigmoid, HardSwish, Abs ... and Clip.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/core/activation.h"
#include "ops/core/op.h"
#include "ops/elementwise/unary_kernels.h"

namespace lenslet {

/// y = f(x), any shape, any layout, in place allowed. float32; Abs, Neg and Relu also float64 and signed integers.
class UnaryOp final : public Op {
 public:
  UnaryOp(std::string_view type, UnaryFunction f) : function(f), type_(type) {}

  const UnaryFunction function;

  std::string_view type() const override { return type_; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  bool may_overwrite(int input) const override { return input == 0; }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  void run_cpu(const RunContext& context) const override;
  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override;

 private:
  std::string_view type_;
};

/// Clip with its bounds as attributes (opset 6) or as optional scalar inputs 1 and 2 (opset 11 and later, constant or
/// not). A missing bound does not bind; with min > max every element becomes max. Floats and integers.
class ClipOp final : public Op {
 public:
  std::optional<float> min, max;  ///< of the attribute form

  std::string_view type() const override { return "Clip"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  bool may_overwrite(int input) const override { return input == 0; }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  void run_cpu(const RunContext& context) const override;
  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  /// Constant bounds are read on the host.
  bool reads_on_cuda(int input, const PlanContext&) const override { return input == 0; }
  void run_cuda(const CudaRun& run) const override;
};

/// "SiLU", domain lenslet: x * sigmoid(x) as one step. A pass makes it where no convolution takes the activation up.
std::shared_ptr<const Op> make_silu();

/// The activation that this node is on a float32 input, when its bounds are known: for fusing it into the producer.
/// Nothing for other operators, and for functions that are no Activation.
std::optional<Activation> as_activation(const Op& op, std::span<const InputInfo> inputs);

}  // namespace lenslet

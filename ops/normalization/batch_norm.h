#pragma once
// BatchNormalization in inference: y = (x - mean[c]) / sqrt(var[c] + epsilon) * scale[c] + bias[c].

#include <span>
#include <vector>

#include "ops/core/op.h"

namespace lenslet {

/// Inputs: x [N,C,...] of rank 2 to 5, scale, bias, mean, var, each [C]; float32.
class BatchNormOp final : public Op {
 public:
  float epsilon = 1e-5f;

  std::string_view type() const override { return "BatchNormalization"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  bool may_overwrite(int input) const override { return input == 0; }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::size_t workspace_bytes(const PlanContext& context) const override;
  void run_cpu(const RunContext& context) const override;
  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override;
};

/// The same function as y = x * factor[c] + offset[c], computed in double: what the kernel does, and what
/// fold_batch_norm puts into a convolution. All spans have C elements.
void batch_norm_as_scale(float epsilon, std::span<const float> scale, std::span<const float> bias,
                         std::span<const float> mean, std::span<const float> var, std::span<double> factor,
                         std::span<double> offset);

}  // namespace lenslet

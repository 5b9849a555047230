#pragma once
// Gemm: y = activation(alpha * A' * B' * weight_scale + beta * C), A' [M,K] and B' [K,N] transposed where asked.

#include <vector>

#include "ops/core/activation.h"
#include "ops/core/op.h"

namespace lenslet {

/// Inputs: A, B, C (optional, broadcast to [M,N]); float32. A constant B is packed once by prepare(); for CUDA it
/// becomes [N,K] on the device, unless it is that already.
class GemmOp final : public Op {
 public:
  bool trans_a = false, trans_b = false;
  float alpha = 1, beta = 1;
  Activation activation;
  std::vector<float>
      weight_scale;  ///< N factors, one a column of B', folded from a BatchNormalization or Mul; empty: 1

  std::string_view type() const override { return "Gemm"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  /// sum_tolerance of K products.
  double tolerance(std::span<const InputInfo> inputs) const override;
  std::size_t workspace_bytes(const PlanContext& context) const override;
  std::string prepare_key(const PlanContext& context) const override;
  std::shared_ptr<const void> prepare(const PlanContext& context, std::size_t& bytes) const override;
  void run_cpu(const RunContext& context) const override;
  std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const override;
  bool reads_on_cuda(int input, const PlanContext& context) const override;
  void run_cuda(const CudaRun& run) const override;

 private:
  void pack(const float* b, std::int64_t k, std::int64_t n, float* scratch, float* packed) const;
  float scaled(float value, std::int64_t column) const;
  bool scales() const { return alpha != 1 || !weight_scale.empty(); }
};

}  // namespace lenslet

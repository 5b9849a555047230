#pragma once
// The Conv operator: geometry, fused bias + residual + activation, and the algorithm chosen for it. No arithmetic.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/core/op.h"

namespace lenslet {

/// Inputs: x, w, bias (optional), residual (optional: added before the activation).
/// attributes(): strides, dilations (two entries, also for 1-D, where the second counts), pads (top, left, bottom,
/// right), auto_pad (only SAME_*/VALID, where the pads follow from the sizes), group, activation, activation_alpha,
/// activation_beta, algorithm (once chosen), weight_scale (when there is one).
class ConvOp final : public Op {
 public:
  ConvGeometry geometry;
  std::vector<std::int64_t> kernel_shape;  ///< as the file says it; empty: from w. Checked against w
  int spatial_rank = 0;                    ///< number of axes the attribute lists speak of; 0: none was given
  Activation activation;
  std::vector<float> weight_scale;           ///< K factors folded from a BatchNormalization or Mul; empty: 1
  const ConvAlgorithm* algorithm = nullptr;  ///< null until choose_conv ran; then also decides the layout
  std::string algorithm_reason;
  ConvProblem chosen_for;  ///< what choose_conv saw: implicit pads, before a Pad step took them over

  std::string_view type() const override { return "Conv"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  bool runs_in(Format layout, std::span<const InputInfo> inputs) const override;
  bool may_overwrite(int input) const override;  ///< only the residual
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::size_t workspace_bytes(const PlanContext& context) const override;
  std::string prepare_key(const PlanContext& context) const override;
  std::shared_ptr<const void> prepare(const PlanContext& context, std::size_t& bytes) const override;
  void run_cpu(const RunContext& context) const override;
  std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const override;
  bool reads_on_cuda(int input, const PlanContext& context) const override;  ///< not prepared filters
  void run_cuda(const CudaRun& run) const override;

  /// `algorithm`, but the device's `direct` where it is null, where the filters are no constant (nothing can be
  /// prepared) and for 1-D inputs (rank 3 has no other layout than row-major). Both directs run in nchw.
  const ConvAlgorithm& effective_algorithm(std::span<const InputInfo> inputs, DeviceKind device) const;

  /// The problem these inputs pose, fused parts included; pads implicit unless they were made explicit.
  ConvProblem problem(std::span<const InputInfo> inputs) const;
};

std::shared_ptr<const Op> make_conv(const NodeSpec& spec);

}  // namespace lenslet

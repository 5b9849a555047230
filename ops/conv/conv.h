#pragma once
// The Conv operator: geometry, and an epilogue of scale, bias, residual and activation. No arithmetic.

#include <array>
#include <memory>
#include <vector>

#include "ops/conv/problem.h"
#include "ops/core/kernel.h"

namespace lenslet {

/// An attribute list of one entry a spatial axis, as [h, w]; 1-D: h gets `fallback`. `rank` collects the spatial rank,
/// 0: none was given yet.
std::array<std::int64_t, 2> per_axis(const std::vector<std::int64_t>& list, const char* name, std::int64_t fallback,
                                     int& rank);
/// strides, dilations, pads, auto_pad, group and kernel_shape, as files have them and as append_geometry() says them.
void read_geometry(AttributeReader& reader, ConvGeometry& geometry, std::vector<std::int64_t>& kernel_shape, int& rank);
/// Appends them, lists of two entries, pads in the order of ConvGeometry, without kernel_shape.
void append_geometry(AttributeList& list, const ConvGeometry& geometry);

/// Inputs: x, w, bias (optional), residual (optional: added before the activation).
/// attributes(): strides, dilations (two entries, also for 1-D, where the second counts), pads (top, left, bottom,
/// right), auto_pad (only SAME_*/VALID, where the pads follow from the sizes), group, and the epilogue's.
class ConvOp final : public Op {
 public:
  static constexpr std::size_t input = 0, filter = 1, bias = 2, residual = 3;

  explicit ConvOp(const NodeSpec& spec);
  /// What poses `problem`, for tests and measurements; `scale` has K factors or none.
  explicit ConvOp(const ConvProblem& problem, std::vector<float> scale = {});

  std::string_view type() const override { return "Conv"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::string describe(std::span<const InputInfo> inputs) const override { return problem(inputs).str(); }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override;
  const Epilogue* epilogue() const override { return &epilogue_; }
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override;
  std::optional<std::vector<std::int64_t>> imagined_zeros(std::span<const InputInfo> inputs) const override;
  std::shared_ptr<const Op> imagining_zeros(std::vector<std::int64_t> pads) const override;

  /// The problem that these inputs pose, fused parts included. Errors as of infer().
  ConvProblem problem(std::span<const InputInfo> inputs) const;

 private:
  ConvGeometry geometry_;
  std::vector<std::int64_t> kernel_shape_;  ///< as the file says it; empty: from w. Checked against w
  int spatial_rank_ = 0;                    ///< number of axes the attribute lists speak of; 0: none was given
  Epilogue epilogue_{.residual_input = static_cast<int>(residual)};
};

/// Of a node whose op is a Conv.
inline ConvProblem conv_problem(const Problem& problem) { return problem.as<ConvOp>().problem(problem.inputs()); }

/// The node that poses `problem` with filters [K][C/groups][R][S] known as `w` (an empty tensor: computed by the
/// network): for tests and measurements. `w` is shared.
std::unique_ptr<const Problem> pose(const ConvProblem& problem, const Tensor& w, std::vector<float> scale = {});

}  // namespace lenslet

#pragma once
// The Conv operator: geometry, and an epilogue of scale, bias, residual and activation. No arithmetic.

#include <array>
#include <memory>
#include <vector>

#include "ops/conv/problem.h"
#include "ops/core/kernel.h"

namespace lenslet {

/// ConvGeometry of up to three axes: without `volume` there is no depth.
struct VolumeGeometry : ConvGeometry {
  bool volume = false;
  std::int64_t depth_stride = 1, depth_dilation = 1, front = 0, back = 0;

  /// The depth alone, as the height of an image of width 1.
  ConvGeometry of_depth() const {
    return {.stride = {depth_stride, 1},
            .dilation = {depth_dilation, 1},
            .pads = {front, 0, back, 0},
            .auto_pad = auto_pad,
            .groups = groups};
  }
};

/// Resolved depth of a 3-D convolution: output o reads inputs o * stride + tap * dilation - pad. Transposed: input i
/// adds to outputs i * stride + tap * dilation - pad.
struct DepthAxis {
  std::int64_t in = 1, taps = 1, stride = 1, dilation = 1, pad = 0, out = 1;
};

/// An attribute list with one entry a spatial axis, as [h, w]. 1-D: h gets `fallback`; 3-D: `depth` gets the first
/// entry, or `fallback` without a list. `rank` collects the spatial rank; 0: none given yet.
std::array<std::int64_t, 2> per_axis(const std::vector<std::int64_t>& list, const char* name, std::int64_t fallback,
                                     int& rank, std::int64_t& depth);
/// Reads strides, dilations, pads, auto_pad, group and kernel_shape, from files or append_geometry().
void read_geometry(AttributeReader& reader, VolumeGeometry& geometry, std::vector<std::int64_t>& kernel_shape,
                   int& rank);
/// Appends them without kernel_shape: lists of two entries (with `volume` three), pads in ConvGeometry's order.
void append_geometry(AttributeList& list, const VolumeGeometry& geometry);
/// x and w of a 3-D convolution as 2-D ones: [N*O,C*T,H,W], an image having all that one output depth reads, and
/// [K,C/groups*T,R,S].
Shape plane_images(const Shape& x, const DepthAxis& depth);
Shape plane_filters(const Shape& w);

/// Inputs: x, w, bias (optional), residual (optional, added before the activation). attributes(): strides, dilations
/// (two entries; 1-D uses the second; 3-D three), pads (top, left, bottom, right; 3-D front, top, left, back, bottom,
/// right), auto_pad (SAME_*/VALID, where pads follow from the sizes), group, the epilogue's, and max_pool (size, stride
/// and the four pads of MaxWindows).
class ConvOp final : public Op {
 public:
  static constexpr std::size_t input = 0, filter = 1, bias = 2, residual = 3;

  explicit ConvOp(const NodeSpec& spec);
  /// The operator of `problem`, for tests and benches; `scale` has K factors or none.
  explicit ConvOp(const ConvProblem& problem, std::vector<float> scale = {});

  std::string_view type() const override { return "Conv"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::string describe(std::span<const InputInfo> inputs) const override;
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override;
  const Epilogue* epilogue() const override { return &epilogue_; }
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override;
  std::optional<std::vector<std::int64_t>> imagined_zeros(std::span<const InputInfo> inputs) const override;
  std::shared_ptr<const Op> imagining_zeros(std::vector<std::int64_t> pads) const override;
  std::optional<CroppedFilter> without_idle_taps(std::span<const InputInfo> inputs) const override;

  /// The problem of these inputs, fused parts included; 3-D: that of the planes (plane_images). Errors as infer().
  ConvProblem problem(std::span<const InputInfo> inputs) const;
  /// Of a 3-D problem.
  DepthAxis depth(std::span<const InputInfo> inputs) const;
  /// The 2-D operator that computes a 3-D one's planes.
  std::shared_ptr<const Op> planes() const;

 private:
  VolumeGeometry geometry_;
  std::vector<std::int64_t> kernel_shape_;  ///< from the file, checked against w; empty: from w
  int spatial_rank_ = 0;                    ///< axes of the attribute lists; 0: none given
  Epilogue epilogue_{.residual_input = static_cast<int>(residual)};
  MaxWindows max_pool_;
};

/// The problem of a node whose op is a Conv.
inline ConvProblem conv_problem(const Problem& problem) {
  ConvProblem p = problem.as<ConvOp>().problem(problem.inputs());
  p.storage = problem.outputs()[0].dtype;
  return p;
}

/// A node of `problem` with constant filters `w`, [K][C/groups][R][S] (an empty tensor: computed by the network), for
/// tests and benches. `w` is shared.
std::unique_ptr<const Problem> pose(const ConvProblem& problem, const Tensor& w, std::vector<float> scale = {});

}  // namespace lenslet

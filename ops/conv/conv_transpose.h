#pragma once
// ConvTranspose: geometry, and an epilogue of scale, bias and activation. No arithmetic.

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "ops/conv/conv.h"

namespace lenslet {

/// One spatial axis: y[o - pad] = sum of w[r] * x[i] over all i and r with i * stride + r * dilation = o.
struct TransposedAxis {
  std::int64_t in = 1, taps = 1, stride = 1, dilation = 1;
  std::int64_t pad = 0;  ///< elements cropped from the begin of the full result
  std::int64_t out = 1;  ///< elements kept; past the end of the full result nothing is added

  friend bool operator==(const TransposedAxis&, const TransposedAxis&) = default;
};

/// Pads resolved; a 1-D problem has height 1.
struct TransposedProblem {
  std::int64_t n = 1, c = 1, k = 1, groups = 1;  ///< x [n,c,h,w], w [c, k/groups, r, s]
  TransposedAxis h = {}, w = {};
  std::int64_t group_c() const { return c / groups; }
  std::int64_t group_k() const { return k / groups; }
};

/// Inputs: x, w, bias (optional). attributes(): ConvGeometry's, output_padding, output_shape (both optional, one entry
/// an axis), and the epilogue's.
class ConvTransposeOp final : public Op {
 public:
  static constexpr std::size_t input = 0, filter = 1, bias = 2;
  static constexpr std::int64_t most_stride = 1024;

  explicit ConvTransposeOp(const NodeSpec& spec);

  std::string_view type() const override { return "ConvTranspose"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::string describe(std::span<const InputInfo> inputs) const override;
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override;
  const Epilogue* epilogue() const override { return &epilogue_; }
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override;

  /// The problem of these inputs; 3-D: that of the planes, x [N*O,C*T,H,W], w [C*T,K/groups,R,S]. Error(invalid_model)
  /// names sizes that contradict each other.
  TransposedProblem problem(std::span<const InputInfo> inputs) const;
  /// Of a 3-D problem.
  DepthAxis depth(std::span<const InputInfo> inputs) const;
  /// The 2-D operator that computes a 3-D one's planes.
  std::shared_ptr<const Op> planes() const;

 private:
  /// The first or second axis of `geometry`.
  TransposedAxis axis(const ConvGeometry& geometry, std::size_t i, std::int64_t output_padding,
                      std::optional<std::int64_t> output_size, std::int64_t in, std::int64_t taps) const;
  TransposedAxis axis(std::size_t i, std::int64_t in, std::int64_t taps) const;

  VolumeGeometry geometry_;
  std::array<std::int64_t, 2> output_padding_{0, 0};
  std::optional<std::array<std::int64_t, 2>> output_shape_;
  std::int64_t depth_padding_ = 0, depth_size_ = 1;  ///< the same of the depth
  std::vector<std::int64_t> kernel_shape_;           ///< from the file; empty: from w
  int spatial_rank_ = 0;                             ///< axes of the attribute lists; 0: none given
  Epilogue epilogue_;
};

}  // namespace lenslet

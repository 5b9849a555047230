#pragma once
// ConvTranspose: geometry, and an epilogue of scale, bias and activation. No arithmetic.

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "ops/conv/conv.h"

namespace lenslet {

/// One spatial axis: y[o - pad] is the sum of w[r] * x[i] over all i and r with i * stride + r * dilation = o.
struct TransposedAxis {
  std::int64_t in = 1, taps = 1, stride = 1, dilation = 1;
  std::int64_t pad = 0;  ///< elements cut from the begin of the whole result
  std::int64_t out = 1;  ///< elements left; beyond the end of the whole result nothing is added

  friend bool operator==(const TransposedAxis&, const TransposedAxis&) = default;
};

/// Pads resolved; a 1-D problem is of height 1.
struct TransposedProblem {
  std::int64_t n = 1, c = 1, k = 1, groups = 1;  ///< x [n,c,h,w], w [c, k/groups, r, s]
  TransposedAxis h = {}, w = {};
  std::int64_t group_c() const { return c / groups; }
  std::int64_t group_k() const { return k / groups; }
};

/// Inputs: x, w, bias (optional). attributes(): those of ConvGeometry, output_padding and output_shape (as many
/// entries, where it is given), and the epilogue's.
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

  /// The problem that these inputs pose; of a 3-D one the planes': x [N*O,C*T,H,W], w [C*T,K/groups,R,S].
  /// Error(invalid_model) says which sizes contradict each other.
  TransposedProblem problem(std::span<const InputInfo> inputs) const;
  /// Of a 3-D problem.
  DepthAxis depth(std::span<const InputInfo> inputs) const;
  /// The 2-D operator of the planes of a 3-D one.
  std::shared_ptr<const Op> planes() const;

 private:
  /// Of the axes in `geometry`, the first or the second.
  TransposedAxis axis(const ConvGeometry& geometry, std::size_t i, std::int64_t output_padding,
                      std::optional<std::int64_t> output_size, std::int64_t in, std::int64_t taps) const;
  TransposedAxis axis(std::size_t i, std::int64_t in, std::int64_t taps) const;

  VolumeGeometry geometry_;
  std::array<std::int64_t, 2> output_padding_{0, 0};
  std::optional<std::array<std::int64_t, 2>> output_shape_;
  std::int64_t depth_padding_ = 0, depth_size_ = 1;  ///< the same of the depth
  std::vector<std::int64_t> kernel_shape_;           ///< as the file says it; empty: from w
  int spatial_rank_ = 0;                             ///< number of axes the attribute lists speak of; 0: none was given
  Epilogue epilogue_;
};

}  // namespace lenslet

#pragma once
// The operator Attention: ONNX's, and the form that the pass fuse_attention makes.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ops/core/kernel.h"
#include "ops/gemm/attention.h"

namespace lenslet {

/// y = softmax(scale Q K^T + bias) V of each head. A row whose scores are all -infinity gives zeros. Inputs: Q, K, V,
/// and optionally a bias.
///
/// From a file Q [N,H,L,D], K [N,H,S,D], V [N,H,S,E] give y [N,H,L,E], or [N,L,H*D], [N,S,H*D], [N,S,H*E] give
/// [N,L,H*E]; the bias broadcasts to [N,H,L,S]. From a pass Q, K and V lie anywhere in their inputs: K in Q's where its
/// own is left out, V in K's likewise. The bias is [bias_n,1 or H,1 or L,S] (AttentionProblem). A pass may also give a
/// known table of rows [rows_n,L], int32, which names each of 0 to rows_n * L - 1 once, a scale for each head, the
/// epsilon of normalised rows of Q and K, that of ReLU linear attention (AttentionProblem::linear_epsilon), or say that
/// scores are between channels (AttentionProblem::between_channels).
class AttentionOp final : public Op {
 public:
  static constexpr std::size_t q = 0, k = 1, v = 2, bias = 3, rows = 4;

  explicit AttentionOp(const NodeSpec& spec);

  std::string_view type() const override { return "Attention"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::string describe(std::span<const InputInfo> inputs) const override;
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override;

  /// Error(invalid_model | unsupported) where the inputs do not fit.
  AttentionProblem problem(std::span<const InputInfo> inputs) const;
  /// As a pass stated it, without bias and rows; nothing for an operator of a file.
  const std::optional<AttentionProblem>& stated() const { return stated_; }
  /// The input that holds Q, K or V: `i` itself, or the one before it that is there.
  static std::size_t holder(std::span<const InputInfo> inputs, std::size_t i);

 private:
  AttentionProblem of_shapes(std::span<const InputInfo> inputs) const;

  std::int64_t q_heads_ = 0, kv_heads_ = 0;  ///< 0: 4-D
  std::optional<double> scale_;              ///< nothing: 1 / sqrt(D)
  std::optional<AttentionProblem> stated_;   ///< a pass's
  Shape y_shape_;
};

/// The operator of a pass, with a y of this shape; problem.y has its rows, and the problem's bias is ignored.
std::shared_ptr<const Op> make_attention_op(const AttentionProblem& problem, const Shape& y_shape);

inline AttentionProblem attention_problem(const Problem& node) { return node.as<AttentionOp>().problem(node.inputs()); }

/// The CPU's kernels, float32; of problems with linear_epsilon the second, between channels the third.
std::unique_ptr<const BoundKernel> bind_attention_cpu(const Binding& binding);
std::unique_ptr<const BoundKernel> bind_linear_attention_cpu(const Binding& binding);
std::unique_ptr<const BoundKernel> bind_channel_attention_cpu(const Binding& binding);

}  // namespace lenslet

#pragma once
// PreactivatedConv: a 1x1 convolution of act(scale[c] n(x) + shift[c]), as one step. n is either x itself, as in a
// BatchNormalization before a convolution, of a value that others read as it is (ResNetV2, DenseNet), or x brought to
// mean 0 and variance 1 over the channels of each pixel, a LayerNormalization (transformer blocks, ConvNeXt). The
// pass fuse_preactivation makes it where one kernel is faster than two; no file contains it. No arithmetic here.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/conv/conv.h"

namespace lenslet {

struct PreactivatedProblem {
  ConvProblem conv;  ///< 1x1, one group, no pads
  Activation activation;
  float epsilon = -1;  ///< of the LayerNormalization; below 0: there is none

  bool normalises() const { return epsilon >= 0; }
  double flops() const {
    return conv.flops() + (normalises() ? 8 : 2) * static_cast<double>(conv.n * conv.c * conv.h * conv.w);
  }
  /// "relu; 1x64x56x56 -> 64, 1x1 s1 p0 g1 +bias +relu", "layer norm; 1x64x56x56 -> 64, 1x1 s1 p0 g1 +bias"
  std::string str() const;

  friend bool operator==(const PreactivatedProblem&, const PreactivatedProblem&) = default;
};

/// Of what is before the convolution, as PreactivatedConv has them: with "x_".
AttributeList preactivation_attributes(const Activation& activation, std::optional<float> epsilon = {});

/// Inputs: x, scale [C], shift [C], 1x1 filters [K,C,1,1], their bias (optional), residual (optional). attributes():
/// the Conv's, and preactivation_attributes(): the activation's, and `epsilon` of a LayerNormalization.
class PreactivatedConvOp final : public Op {
 public:
  static constexpr std::size_t input = 0, scale = 1, shift = 2, filter = 3, bias = 4, residual = 5;

  explicit PreactivatedConvOp(const NodeSpec& spec);

  std::string_view type() const override { return "PreactivatedConv"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override;
  std::string describe(std::span<const InputInfo> inputs) const override;
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override;

  /// The problem of these inputs. Error(internal) where the convolution does not fit PreactivatedProblem.
  PreactivatedProblem problem(std::span<const InputInfo> inputs) const;
  const ConvOp& conv() const { return *conv_; }

 private:
  std::shared_ptr<const ConvOp> conv_;
  Activation activation_;
  float epsilon_ = -1;
};

}  // namespace lenslet

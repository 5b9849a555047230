#pragma once
// The epilogue of a matrix product: applied to the accumulators before they are stored, alike for all operators.
// Normalizations have its activation alone, or its residual alone (LayerNormalization).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lenslet/attributes.h"
#include "lenslet/tensor.h"
#include "ops/core/activation.h"
#include "ops/core/attribute_reader.h"

namespace lenslet {

struct InputInfo;  // op.h

/// y = activation(scale[k] * sum + bias_factor * bias[k] + residual), k the output channel. Fusing passes know this
/// struct and no operator class: they read an operator's epilogue, change it and ask for the operator with the new one.
struct Epilogue {
  static constexpr int no_input = -1;

  int channel_axis = 1;           ///< of the output
  int weight_input = 1;           ///< constant where there is a scale, which kernels multiply it by
  int bias_input = 2;             ///< one summand a channel, or what broadcasts to the output
  int residual_input = no_input;  ///< shaped like the output; no_input: the operator adds none

  double bias_factor = 1;
  std::vector<float> scale = {};  ///< one factor a channel; empty: 1
  Activation activation = {};

  /// y is stored in 8 bits: round(acc * multipliers[k]) + zero_point, saturated to the type, then to [least, most]; acc
  /// is the sum of (x - x_zero_point) * w, with bias and activation. Outside the image x is x_zero_point.
  struct Requantize {
    std::vector<float> multipliers = {};  ///< [K]: x's scale times the filter's, divided by y's
    std::int32_t zero_point = 0;
    DType type = DType::u8;  ///< or i8
    std::int32_t x_zero_point = 0;
    std::int32_t least = -128, most = 255;  ///< Relu: least is zero_point
  };
  std::optional<Requantize> requantize = {};

  /// True while a scale can still be folded: nothing follows the scaled and shifted sum yet.
  bool open() const { return activation.kind == Activation::Kind::none; }
};

/// Appends activation, activation_alpha, activation_beta, weight_scale, and multipliers, zero_point and stored_type of
/// Requantize, where they differ from the defaults.
void append_attributes(AttributeList& list, const Epilogue& epilogue);
/// The reverse, for normalised attributes (NodeSpec::normalised); model files cannot contain these.
void read_epilogue(AttributeReader& reader, Epilogue& epilogue);

/// With `requantize`: the type of y, of operators whose input 0 is x. x and the weights are of 8 bits, the bias is
/// int32, the residual is like y. Error(invalid_model) for other types, Error(internal) unless there are K multipliers.
DType requantized_type(const Epilogue& epilogue, std::span<const InputInfo> inputs);

}  // namespace lenslet

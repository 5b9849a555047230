#pragma once
// The epilogue of a matrix product: applied to the accumulators before they are stored, alike for all operators.

#include <cstdint>
#include <vector>

#include "lenslet/attributes.h"
#include "ops/core/activation.h"
#include "ops/core/attribute_reader.h"

namespace lenslet {

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

  /// True while a scale can still be folded: nothing follows the scaled and shifted sum yet.
  bool open() const { return activation.kind == Activation::Kind::none; }
};

/// Appends activation, activation_alpha, activation_beta and weight_scale where they differ from the defaults.
void append_attributes(AttributeList& list, const Epilogue& epilogue);
/// The reverse, for normalised attributes (NodeSpec::normalised); model files cannot contain these.
void read_epilogue(AttributeReader& reader, Epilogue& epilogue);

}  // namespace lenslet

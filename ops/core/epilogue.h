#pragma once
// What a product does to its sums before they are stored: the same for every operator that has one.

#include <cstdint>
#include <vector>

#include "lenslet/attributes.h"
#include "ops/core/activation.h"
#include "ops/core/attribute_reader.h"

namespace lenslet {

/// y = activation(scale[k] * sum + bias_factor * bias[k] + residual), k the output channel. The passes that fuse know
/// this and no operator class: they take an operator's epilogue, change it, and ask for the operator with the new one.
struct Epilogue {
  static constexpr int no_input = -1;

  int channel_axis = 1;           ///< of the output
  int weight_input = 1;           ///< constant where there is a scale, which kernels multiply it by
  int bias_input = 2;             ///< one summand a channel, or what broadcasts to the output
  int residual_input = no_input;  ///< shaped like the output; no_input: the operator adds none

  double bias_factor = 1;
  std::vector<float> scale = {};  ///< one factor a channel; empty: 1
  Activation activation = {};

  /// Nothing follows the scaled and shifted sum yet: a scale can still be folded.
  bool open() const { return activation.kind == Activation::Kind::none; }
};

/// Appends activation, activation_alpha, activation_beta and weight_scale, as far as they say something.
void append_attributes(AttributeList& list, const Epilogue& epilogue);
/// The reverse, for attributes in the normalised form (NodeSpec::normalised): a file cannot say these.
void read_epilogue(AttributeReader& reader, Epilogue& epilogue);

}  // namespace lenslet

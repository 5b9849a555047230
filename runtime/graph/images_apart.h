#pragma once
// Does a node keep the images of a batch apart?

#include <span>
#include <string>

#include "ops/core/op.h"

namespace lenslet {

/// An input of a node in a run with one image.
struct BatchInput {
  InputInfo info;
  bool batched = false;  ///< dimension 0 holds the images, outermost
};

/// Why the node would mix images, or is not known to keep them apart, if dimension 0 of the batched inputs held more:
/// "" when output dimension 0 holds them again and each image gets what it would get alone. `output` is the type of
/// output 0 for one image. At least one input is batched.
std::string mixes_images(const Op& op, std::span<const BatchInput> inputs, const TensorType& output);

}  // namespace lenslet

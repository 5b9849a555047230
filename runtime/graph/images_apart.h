#pragma once
// Does a node keep the images of a batch apart?

#include <span>
#include <string>

#include "ops/core/op.h"

namespace lenslet {

inline constexpr int no_images = -1;

/// An input of a node in a run with one image.
struct BatchInput {
  InputInfo info;
  int images = no_images;  ///< the axis that holds them, outermost in it
};

/// Of an output in such a run.
struct ImagesApart {
  std::string why;  ///< why they would be mixed, or are not known to be kept apart; "": each gets what it would alone
  int axis = 0;     ///< then: the axis that holds them, outermost in it
};

/// What becomes of an output of type `output` if those axes of the inputs held more images. At least one input has
/// some.
ImagesApart keep_images_apart(const Op& op, std::span<const BatchInput> inputs, const TensorType& output);

}  // namespace lenslet

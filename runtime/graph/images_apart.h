#pragma once
// Does a node keep the images of a batch apart?

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/core/op.h"

namespace lenslet {

inline constexpr int no_images = -1;

/// Where a value holds the images: its axis `axis` is [outer, images, what is left of it].
struct ImagesAt {
  int axis = no_images;
  std::int64_t outer = 1;

  explicit operator bool() const { return axis != no_images; }
  friend bool operator==(const ImagesAt&, const ImagesAt&) = default;
};

/// An input of a node in a run with one image.
struct BatchInput {
  InputInfo info;
  ImagesAt images;
};

/// Of an output in such a run.
struct ImagesApart {
  std::string why;  ///< why they would be mixed, or are not known to be kept apart; "": each gets what it would alone
  /// Then: where they may be, the likeliest first. A Reshape of [steps, 1, features] to [steps, features] may mean
  /// [steps * images, features], or [steps, images * features].
  std::vector<ImagesAt> places;
};

/// What becomes of an output of type `output` if the inputs held more images. At least one input has some.
ImagesApart keep_images_apart(const Op& op, std::span<const BatchInput> inputs, const TensorType& output);

}  // namespace lenslet

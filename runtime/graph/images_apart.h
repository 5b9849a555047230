#pragma once
// Checks that a node does not mix the images of a batch.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/core/op.h"

namespace lenslet {

inline constexpr int no_images = -1;

/// Position of the images in a value: its axis `axis` splits into [outer, images, inner].
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

/// Result for an output of such a run.
struct ImagesApart {
  std::string why;  ///< why images are mixed, or may be; "": each image's result is as if it ran alone
  /// If empty: candidate positions of the images, the likeliest first. A Reshape of [steps, 1, features] to [steps,
  /// features] may mean [steps * images, features], or [steps, images * features].
  std::vector<ImagesAt> places;
};

/// Analyses an output of type `output` for inputs with more images. At least one input holds images.
ImagesApart keep_images_apart(const Op& op, std::span<const BatchInput> inputs, const TensorType& output);

}  // namespace lenslet

#pragma once
// Image preprocessing (pixels to a network's input) and postprocessing (scores to classes).

#include <cstdint>
#include <span>
#include <vector>

#include "lenslet/export.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// 8-bit pixels, H x W x C, rows without gaps; C is 1 (gray) or 3 (RGB). Does not own the memory.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  std::int64_t height = 0, width = 0, channels = 3;
};

struct ImageSpec {
  enum class Channels { rgb, bgr, gray };
  enum class Resize { none, shorter_side, stretch };
  enum class Filter { nearest, bilinear, bicubic };
  enum class Crop { none, center };

  std::int64_t height = 224, width = 224;  ///< of the network's input
  Channels channels = Channels::rgb;
  bool nhwc = false;  ///< the model's input is [N,H,W,C]
  Resize resize = Resize::shorter_side;
  std::int64_t resize_size = 256;  ///< length of the shorter side after Resize::shorter_side
  Filter filter = Filter::bilinear;
  bool antialias = true;  ///< Pillow's reduction-aware filters; off: two- or four-tap sampling
  Crop crop = Crop::center;
  double scale = 1.0;                               ///< value = (pixel * scale - mean[c]) / std[c], in `channels` order
  std::vector<double> mean{0, 0, 0}, std{1, 1, 1};  ///< a number for each channel, or one for all
};

/// Resized and cropped 8-bit pixels, [height, width, C] of `spec`, C = 1 for gray else 3 in RGB order. Resizing rounds
/// to 8 bits as Pillow does. Error(invalid_argument) when the result would not have the spec's size. Allocates a few
/// times the result's size plus at most 50 bytes * (height + width) of the image; for a gray result of a colour image,
/// also one byte per source pixel.
LENSLET_API std::vector<std::uint8_t> resize_and_crop(const ImageView& image, const ImageSpec& spec);

/// Writes one image into batch slot `index` of `input` ([N,C,H,W], or [N,H,W,C] with spec.nhwc), normalised in float32,
/// then rounded if the input is f16 or bf16, or widened if it is f64. Error(invalid_argument) when image, spec and
/// input do not fit together; `input` is then unchanged.
LENSLET_API void to_input(const ImageView& image, const ImageSpec& spec, Tensor& input, std::int64_t index = 0);

struct ClassScore {
  std::int64_t index = 0;
  float score = 0;
};

/// softmax(scores) in place, computed in double.
LENSLET_API void softmax(std::span<float> scores);
/// The `count` highest scores in descending order; ties by lower index; NaN last.
LENSLET_API std::vector<ClassScore> top_k(std::span<const float> scores, std::size_t count);

}  // namespace lenslet

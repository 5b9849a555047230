#pragma once
// Image preprocessing (pixels to a network's input) and postprocessing (scores to classes).

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lenslet/export.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// A rectangle of whole pixels.
struct Rect {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Rect&) const = default;
};

/// 8-bit pixels, H x W x C; C is 1 (gray) or 3 (RGB). Does not own the memory.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  std::int64_t height = 0, width = 0, channels = 3;
  std::int64_t row_bytes = 0;  ///< from one row to the next; 0: width * channels, rows without gaps
  bool on_cuda = false;        ///< `pixels` is a CUDA device address, which only Runner::load_image() takes

  std::int64_t pitch() const { return row_bytes == 0 ? width * channels : row_bytes; }
};

struct ImageSpec {
  enum class Channels { rgb, bgr, gray };
  enum class Resize { none, shorter_side, stretch, longer_side, fit };
  enum class Filter { nearest, bilinear, bicubic };
  enum class Crop { none, center };
  enum class Pad { none, center, top_left };  ///< where the picture lies in the padding

  std::int64_t height = 224, width = 224;  ///< of the network's input
  Channels channels = Channels::rgb;
  bool nhwc = false;  ///< the model's input is [N,H,W,C]
  Resize resize = Resize::shorter_side;
  std::int64_t resize_size = 256;  ///< length of the side that Resize::shorter_side or longer_side names
  /// Of Resize::longer_side and fit: sides are rounded down, as by YOLOX; else to nearest, halves to even.
  bool round_down = false;
  Filter filter = Filter::bilinear;
  bool antialias = true;                           ///< Pillow's reduction-aware filters; off: two- or four-tap sampling
  Crop crop = Crop::center;                        ///< of what is larger than the input
  Pad pad = Pad::none;                             ///< of what is smaller than the input
  std::array<std::uint8_t, 3> pad_color{0, 0, 0};  ///< R, G, B, a color of the photo: normalised as its pixels are
  double scale = 1.0;                              ///< value = (pixel * scale - mean[c]) / std[c], in `channels` order
  std::vector<double> mean{0, 0, 0}, std{1, 1, 1};  ///< a number for each channel, or one for all
  bool operator==(const ImageSpec&) const = default;
};

/// Resized, cropped and padded 8-bit pixels, [height, width, C] of `spec`, C = 1 for gray else 3 in RGB order. Resizing
/// rounds to 8 bits as Pillow does. Sizes are those of the reference implementations, computed in double:
/// - shorter_side: the other side is resize_size * longer / shorter, rounded down;
/// - longer_side, fit: each side is round(side * r), at least 1, where r is resize_size / longer side for longer_side,
///   and min(spec.height / height, spec.width / width) for fit. With Pad::center, fit is the letterbox of YOLOv5 and
///   later (Ultralytics' LetterBox, auto=False); with Pad::top_left and round_down YOLOX's preproc, where int(side * r)
///   may be one less than the exact product.
/// Pad::center puts half of the padding, rounded down, above and on the left. Error(invalid_argument) when the result
/// would not have the spec's size. Allocates a few times the result's size plus at most 50 bytes * (height + width) of
/// the image; for a gray result of a colour image, also one byte per source pixel.
LENSLET_API std::vector<std::uint8_t> resize_and_crop(const ImageView& image, const ImageSpec& spec);

/// Writes one image into batch slot `index` of `input` ([N,C,H,W], or [N,H,W,C] with spec.nhwc), normalised in float32,
/// then rounded if the input is f16 or bf16, or widened if it is f64. Error(invalid_argument) when image, spec and
/// input do not fit together; `input` is then unchanged.
LENSLET_API void to_input(const ImageView& image, const ImageSpec& spec, Tensor& input, std::int64_t index = 0);

/// Corners, in pixels from the top left corner: pixel (y, x) covers y to y + 1 and x to x + 1.
struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
};

/// Maps a box from the pixels of the network's input to those of the photo, of which `part` was the image: a tile, or
/// {0, 0, height, width}. Undoes padding, cropping and resizing, each side by its own ratio. Not clipped to the photo.
/// Error(invalid_argument) as from resize_and_crop().
LENSLET_API Box photo_box(const ImageSpec& spec, const Rect& part, const Box& in_input);

/// Covers a large picture with tiles, row by row. Neighbours share `overlap` pixels, the last ones more: they end at
/// the picture's edge. All have the full size, except along a side on which the picture is smaller.
/// Error(invalid_argument) unless 0 <= overlap < both sides of a tile, Error(limit) for more than a million tiles.
LENSLET_API std::vector<Rect> image_tiles(std::int64_t height, std::int64_t width, std::int64_t tile_height,
                                          std::int64_t tile_width, std::int64_t overlap);

/// Whether `part` has pixels, all of them in a picture of this size.
constexpr bool is_inside(const Rect& part, std::int64_t height, std::int64_t width) {
  return part.top >= 0 && part.height > 0 && part.height <= height && part.top <= height - part.height &&
         part.left >= 0 && part.width > 0 && part.width <= width && part.left <= width - part.width;
}
/// `part` of an image, not copied. Error(invalid_argument) unless is_inside().
LENSLET_API ImageView part_of(const ImageView& image, const Rect& part);

struct ClassScore {
  std::int64_t index = 0;
  float score = 0;
};

/// softmax(scores) in place, computed in double.
LENSLET_API void softmax(std::span<float> scores);
/// The `count` highest scores in descending order; ties by lower index; NaN last.
LENSLET_API std::vector<ClassScore> top_k(std::span<const float> scores, std::size_t count);

}  // namespace lenslet

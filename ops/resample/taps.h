#pragma once
// The taps of resized elements along one axis. Source: ONNX, Resize-19.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lenslet {

/// Resize's settings for all axes.
struct ResizeRule {
  enum class Mode : std::uint8_t { nearest, linear, cubic };
  /// The map from output to input coordinates.
  enum class Coordinates : std::uint8_t {
    half_pixel,
    half_pixel_symmetric,  ///< the centres of input and output meet where the output's size was rounded
    pytorch_half_pixel,    ///< an output of one element is the input's first
    align_corners,
    asymmetric,
    tf_half_pixel_for_nn,
    tf_crop_and_resize,  ///< of a region; beyond the input there is `extrapolation`
  };
  /// floor_or_ceil: ceil along axes that shrink, as in Resize-10's node cases (ONNX 1.5); not an ONNX mode.
  enum class Nearest : std::uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil, floor_or_ceil };

  Mode mode = Mode::nearest;
  Coordinates coordinates = Coordinates::half_pixel;
  Nearest nearest = Nearest::round_prefer_floor;
  double cubic_a = -0.75;
  bool exclude_outside = false;  ///< elements beyond the input have no weight; otherwise they are those at its edge
  bool antialias = false;        ///< where the axis shrinks, the filter is stretched over the elements that fall out
};
/// ONNX's names, in the enumerators' order.
inline constexpr std::string_view resize_modes[] = {"nearest", "linear", "cubic"};
inline constexpr std::string_view resize_coordinates[] = {
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
inline constexpr std::string_view resize_nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil",
                                                      "floor_or_ceil"};
inline constexpr std::size_t onnx_nearest = 4;

struct ResizedAxis {
  std::int64_t in = 0, out = 0;
  double scale = 1;           ///< requested: out is `in` times it, rounded
  double begin = 0, end = 1;  ///< tf_crop_and_resize: of the region, as parts of the input
  bool changes = false;       ///< is not what it was
};

/// Element j is the sum of weight[t] * x[index[t]] for t in [first[j], first[j + 1]); without taps, the extrapolation.
struct AxisTaps {
  std::vector<std::int64_t> first, index;
  std::vector<float> weight;

  /// Rule::nearest has one tap of weight 1. `axis.in` is at least 1.
  AxisTaps(const ResizeRule& rule, const ResizedAxis& axis);
  std::int64_t most() const;  ///< taps of an element
};

/// A linearly blended element: of_low * x[low] + of_high * x[high].
struct LinearTap {
  std::int64_t low = 0, high = 0;
  float of_low = 0, of_high = 0;
};
/// One per output element, in ONNX Runtime's float32 arithmetic, whose last bit affects how integer sums are truncated.
/// Along unchanged blended axes, too, the last element is two halves of itself.
std::vector<LinearTap> linear_taps(const ResizeRule& rule, const ResizedAxis& axis, bool blended);

}  // namespace lenslet

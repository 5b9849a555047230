#include "base/image_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/dtypes.h"
#include "lenslet/error.h"

namespace lenslet {

namespace {

// Far above any network's input, and safe from overflow: all products here stay below 2^62.
constexpr std::int64_t max_side = std::int64_t{1} << 24, max_pitch = std::int64_t{1} << 32;

[[noreturn]] void fail(std::string message) { throw Error(ErrorKind::invalid_argument, std::move(message)); }

template <typename Enum>
void check_known(Enum value, Enum last, const char* what) {
  if (value < Enum{} || value > last) fail(fmt::format("{} has no value {}", what, static_cast<int>(value)));
}

void check(const ImageSpec& spec) {
  check_known(spec.channels, ImageSpec::Channels::gray, "ImageSpec::channels");
  check_known(spec.resize, ImageSpec::Resize::fit, "ImageSpec::resize");
  check_known(spec.filter, ImageSpec::Filter::bicubic, "ImageSpec::filter");
  check_known(spec.crop, ImageSpec::Crop::center, "ImageSpec::crop");
  check_known(spec.pad, ImageSpec::Pad::top_left, "ImageSpec::pad");
  if (spec.height < 1 || spec.width < 1 || spec.height > max_side || spec.width > max_side)
    fail(fmt::format("the input size {} x {} makes no sense", spec.height, spec.width));
  const bool shorter = spec.resize == ImageSpec::Resize::shorter_side;
  if ((shorter || spec.resize == ImageSpec::Resize::longer_side) &&
      (spec.resize_size < 1 || spec.resize_size > max_side))
    fail(fmt::format("the {} side cannot be resized to {}", shorter ? "shorter" : "longer", spec.resize_size));
}

/// (size - part) / 2 with halves rounded to even, as Python's round does: 0.5 -> 0, 1.5 -> 2.
std::int64_t centered(std::int64_t size, std::int64_t part) {
  const std::int64_t difference = size - part;
  const std::int64_t half = difference / 2;
  return half + (difference % 2 != 0 && half % 2 != 0 ? 1 : 0);
}

/// Entry c of `values`; one value, or equal ones, apply to any number of channels.
double for_channel(const std::vector<double>& values, std::int64_t c, std::int64_t channels, const char* what) {
  const bool all_equal = !values.empty() && std::all_of(values.begin(), values.end(),
                                                        [&](double value) { return value == values.front(); });
  if (all_equal) return values.front();
  if (static_cast<std::int64_t>(values.size()) != channels)
    fail(fmt::format("{} has {} values for {} channels", what, values.size(), channels));
  return values[static_cast<std::size_t>(c)];
}

}  // namespace

std::int64_t image_channels(const ImageSpec& spec) { return spec.channels == ImageSpec::Channels::gray ? 1 : 3; }

std::array<std::uint8_t, 3> pad_pixel(const ImageSpec& spec) {
  if (spec.channels != ImageSpec::Channels::gray) return spec.pad_color;
  const std::uint8_t gray = luma(spec.pad_color.data());
  return {gray, gray, gray};
}

ResizePlan plan_resize(const ImageView& image, const ImageSpec& spec) {
  if (image.pixels == nullptr) fail("the image has no pixels");
  if (image.channels != 1 && image.channels != 3)
    fail(fmt::format("the image has {} channels; 1 (gray) or 3 (RGB) are taken", image.channels));
  const ResizePlan result = plan_resize(image.height, image.width, spec);
  if (image.pitch() < image.width * image.channels || image.pitch() > max_pitch)
    fail(fmt::format("rows of {} pixels and {} channels cannot be {} bytes apart", image.width, image.channels,
                     image.pitch()));
  return result;
}

ResizePlan plan_resize(std::int64_t height, std::int64_t width, const ImageSpec& spec) {
  if (height < 1 || width < 1 || height > max_side || width > max_side)
    fail(fmt::format("the image is {} x {} pixels; each side may be 1 to {}", width, height, max_side));
  check(spec);
  ResizePlan result;
  result.height = height;
  result.width = width;
  const auto scaled = [&](std::int64_t side, double ratio) {
    const double product = static_cast<double>(side) * ratio;
    return std::max<std::int64_t>(static_cast<std::int64_t>(spec.round_down ? product : std::nearbyint(product)), 1);
  };
  const auto ratio = [](std::int64_t to, std::int64_t from) {
    return static_cast<double>(to) / static_cast<double>(from);
  };
  const auto scale_both = [&](double by) {
    result.height = scaled(height, by);
    result.width = scaled(width, by);
  };
  switch (spec.resize) {
    case ImageSpec::Resize::none:
      break;
    case ImageSpec::Resize::stretch:
      result.height = spec.height;
      result.width = spec.width;
      break;
    case ImageSpec::Resize::shorter_side: {
      const std::int64_t shorter = std::min(height, width);
      result.height = spec.resize_size * height / shorter;
      result.width = spec.resize_size * width / shorter;
      break;
    }
    case ImageSpec::Resize::longer_side:
      scale_both(ratio(spec.resize_size, std::max(height, width)));
      break;
    case ImageSpec::Resize::fit:
      scale_both(std::min(ratio(spec.height, height), ratio(spec.width, width)));
      break;
  }
  const bool crops = spec.crop == ImageSpec::Crop::center, pads = spec.pad != ImageSpec::Pad::none;
  const auto fits = [&](std::int64_t size, std::int64_t wanted) {
    return size == wanted || (size > wanted ? crops : pads);
  };
  if (!fits(result.height, spec.height) || !fits(result.width, spec.width))
    fail(fmt::format("an image of {} x {} pixels is {} x {} after resizing, which {} the input size {} x {}", width,
                     height, result.width, result.height,
                     crops  ? "cannot be cropped to"
                     : pads ? "cannot be padded to"
                            : "is not",
                     spec.width, spec.height));
  // One of crop and padding is 0 on each side.
  Rect& window = result.window;
  window.height = std::min(result.height, spec.height);
  window.width = std::min(result.width, spec.width);
  window.top = centered(result.height, window.height);
  window.left = centered(result.width, window.width);
  if (spec.pad == ImageSpec::Pad::center) {
    result.top = (spec.height - window.height) / 2;
    result.left = (spec.width - window.width) / 2;
  }
  return result;
}

Tensor normalisation_tables(const ImageSpec& spec, DType dtype) {
  const std::int64_t channels = image_channels(spec);
  Tensor tables(DType::f32, {channels, 256});
  float* to = tables.values<float>().data();
  for (std::int64_t c = 0; c < channels; ++c) {
    const double mean = for_channel(spec.mean, c, channels, "mean");
    const double deviation = for_channel(spec.std, c, channels, "std");
    if (!std::isfinite(spec.scale) || !std::isfinite(mean) || !std::isfinite(deviation) || deviation == 0)
      fail(fmt::format("cannot normalise with scale {}, mean {}, std {}", spec.scale, mean, deviation));
    for (int value = 0; value < 256; ++value) *to++ = static_cast<float>((value * spec.scale - mean) / deviation);
  }
  return tables.to_dtype(dtype);
}

void check_image_input(const ImageSpec& spec, const Tensor& input, std::int64_t index) {
  check(spec);
  const std::int64_t channels = image_channels(spec);
  const Shape& shape = input.shape();
  if (input.empty() || shape.rank() != 4 || !dtypes<Types<float, double, Float16, BFloat16>>.contains(input.dtype()))
    fail(fmt::format("an image goes into a tensor of floats of 4 dimensions, not {} {}", to_string(input.dtype()),
                     shape.str()));
  if (spec.nhwc && input.format() != formats::nchw) fail("the tensor of an [N,H,W,C] input has to have layout nchw");
  const Shape wanted = spec.nhwc ? Shape{shape[0], spec.height, spec.width, channels}
                                 : Shape{shape[0], channels, spec.height, spec.width};
  if (shape != wanted) fail(fmt::format("the input is {}, the image gives {}", shape.str(), wanted.with(0, 1).str()));
  if (index < 0 || index >= shape[0]) fail(fmt::format("there is no image {} in a batch of {}", index, shape[0]));
}

}  // namespace lenslet

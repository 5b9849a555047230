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
constexpr std::int64_t max_side = std::int64_t{1} << 24;

[[noreturn]] void fail(std::string message) { throw Error(ErrorKind::invalid_argument, std::move(message)); }

void check(const ImageView& image) {
  if (image.pixels == nullptr) fail("the image has no pixels");
  if (image.channels != 1 && image.channels != 3)
    fail(fmt::format("the image has {} channels; 1 (gray) or 3 (RGB) are taken", image.channels));
  if (image.height < 1 || image.width < 1 || image.height > max_side || image.width > max_side)
    fail(fmt::format("the image is {} x {} pixels; each side may be 1 to {}", image.width, image.height, max_side));
}

template <typename Enum>
void check_known(Enum value, Enum last, const char* what) {
  if (value < Enum{} || value > last) fail(fmt::format("{} has no value {}", what, static_cast<int>(value)));
}

void check(const ImageSpec& spec) {
  check_known(spec.channels, ImageSpec::Channels::gray, "ImageSpec::channels");
  check_known(spec.resize, ImageSpec::Resize::stretch, "ImageSpec::resize");
  check_known(spec.filter, ImageSpec::Filter::bicubic, "ImageSpec::filter");
  check_known(spec.crop, ImageSpec::Crop::center, "ImageSpec::crop");
  if (spec.height < 1 || spec.width < 1 || spec.height > max_side || spec.width > max_side)
    fail(fmt::format("the input size {} x {} makes no sense", spec.height, spec.width));
  if (spec.resize == ImageSpec::Resize::shorter_side && (spec.resize_size < 1 || spec.resize_size > max_side))
    fail(fmt::format("the shorter side cannot be resized to {}", spec.resize_size));
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

ResizePlan plan_resize(const ImageView& image, const ImageSpec& spec) {
  check(image);
  check(spec);
  ResizePlan result{image.height, image.width, {}};
  switch (spec.resize) {
    case ImageSpec::Resize::none:
      break;
    case ImageSpec::Resize::stretch:
      result.height = spec.height;
      result.width = spec.width;
      break;
    case ImageSpec::Resize::shorter_side: {
      const std::int64_t shorter = std::min(image.height, image.width);
      result.height = spec.resize_size * image.height / shorter;
      result.width = spec.resize_size * image.width / shorter;
      break;
    }
  }
  const bool fits = spec.crop == ImageSpec::Crop::center ? result.height >= spec.height && result.width >= spec.width
                                                         : result.height == spec.height && result.width == spec.width;
  if (!fits)
    fail(fmt::format("an image of {} x {} pixels is {} x {} after resizing, which {} the input size {} x {}",
                     image.width, image.height, result.width, result.height,
                     spec.crop == ImageSpec::Crop::center ? "cannot be cropped to" : "is not", spec.width,
                     spec.height));
  result.window = {centered(result.height, spec.height), centered(result.width, spec.width), spec.height, spec.width};
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

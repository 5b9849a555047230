#include "lenslet/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "lenslet/error.h"
#include "runtime/base/resize.h"

namespace lenslet {

namespace {

// Far above any network's input, far below what would overflow: 2^24 keeps every product here under 2^62.
constexpr std::int64_t max_side = std::int64_t{1} << 24;

[[noreturn]] void fail(std::string message) { throw Error(ErrorKind::invalid_argument, std::move(message)); }

void check(const ImageView& image) {
  if (image.pixels == nullptr) fail("the image has no pixels");
  if (image.channels != 1 && image.channels != 3)
    fail(fmt::format("the image has {} channels; 1 (gray) or 3 (RGB) are taken", image.channels));
  if (image.height < 1 || image.width < 1 || image.height > max_side || image.width > max_side)
    fail(fmt::format("the image is {} x {} pixels; each side may be 1 to {}", image.width, image.height, max_side));
}

std::int64_t channel_count(const ImageSpec& spec) { return spec.channels == ImageSpec::Channels::gray ? 1 : 3; }

void check(const ImageSpec& spec) {
  if (spec.height < 1 || spec.width < 1 || spec.height > max_side || spec.width > max_side)
    fail(fmt::format("the input size {} x {} makes no sense", spec.height, spec.width));
  if (spec.resize == ImageSpec::Resize::shorter_side && (spec.resize_size < 1 || spec.resize_size > max_side))
    fail(fmt::format("the shorter side cannot be resized to {}", spec.resize_size));
}

/// (size - part) / 2 with halves going to the even neighbour, as Python's round does: 0.5 -> 0, 1.5 -> 2.
std::int64_t centered(std::int64_t size, std::int64_t part) {
  const std::int64_t difference = size - part;
  const std::int64_t half = difference / 2;
  return half + (difference % 2 != 0 && half % 2 != 0 ? 1 : 0);
}

struct Geometry {
  std::int64_t height = 0, width = 0;  // after resizing
  Window window;                       // of that, what is kept
};

Geometry plan_geometry(const ImageView& image, const ImageSpec& spec) {
  Geometry result{image.height, image.width, {}};
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

/// ITU-R 601-2 luma in Pillow's fixed point.
std::vector<std::uint8_t> to_gray(const ImageView& image) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(image.height * image.width));
  const std::uint8_t* pixel = image.pixels;
  for (std::uint8_t& gray : result) {
    gray = static_cast<std::uint8_t>((pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 0x8000u) >> 16);
    pixel += 3;
  }
  return result;
}

std::vector<std::uint8_t> to_rgb(const std::vector<std::uint8_t>& gray) {
  std::vector<std::uint8_t> result;
  result.reserve(gray.size() * 3);
  for (std::uint8_t value : gray) result.insert(result.end(), 3, value);
  return result;
}

/// Entry c of `values`; one value, or equal ones, serve any number of channels.
double for_channel(const std::vector<double>& values, std::int64_t c, std::int64_t channels, const char* what) {
  const bool all_equal = !values.empty() && std::all_of(values.begin(), values.end(),
                                                        [&](double value) { return value == values.front(); });
  if (all_equal) return values.front();
  if (static_cast<std::int64_t>(values.size()) != channels)
    fail(fmt::format("{} has {} values for {} channels", what, values.size(), channels));
  return values[static_cast<std::size_t>(c)];
}

/// The normalised value of each of the 256 pixel values, computed in double and rounded once.
std::array<float, 256> normalisation_table(const ImageSpec& spec, std::int64_t c) {
  const std::int64_t channels = channel_count(spec);
  const double mean = for_channel(spec.mean, c, channels, "mean");
  const double deviation = for_channel(spec.std, c, channels, "std");
  if (!std::isfinite(spec.scale) || !std::isfinite(mean) || !std::isfinite(deviation) || deviation == 0)
    fail(fmt::format("cannot normalise with scale {}, mean {}, std {}", spec.scale, mean, deviation));
  std::array<float, 256> table;
  for (std::size_t value = 0; value < table.size(); ++value)
    table[value] = static_cast<float>((static_cast<double>(value) * spec.scale - mean) / deviation);
  return table;
}

}  // namespace

std::vector<std::uint8_t> resize_and_crop(const ImageView& image, const ImageSpec& spec) {
  check(image);
  check(spec);
  const Geometry geometry = plan_geometry(image, spec);
  const bool wants_gray = spec.channels == ImageSpec::Channels::gray;
  ImageView source = image;
  std::vector<std::uint8_t> gray;
  if (wants_gray && image.channels == 3) {
    gray = to_gray(image);
    source = {gray.data(), image.height, image.width, 1};
  }
  auto pixels = resize_window(source, geometry.height, geometry.width, geometry.window, spec.filter, spec.antialias);
  return !wants_gray && image.channels == 1 ? to_rgb(pixels) : pixels;
}

void to_input(const ImageView& image, const ImageSpec& spec, Tensor& input, std::int64_t index) {
  check(spec);
  const std::int64_t channels = channel_count(spec);
  const Shape& shape = input.shape();
  if (input.empty() || shape.rank() != 4 || input.dtype() != DType::f32)
    fail(fmt::format("an image goes into a float32 tensor of 4 dimensions, not {} {}", to_string(input.dtype()),
                     shape.str()));
  if (spec.nhwc && input.layout() != Layout::nchw) fail("the tensor of an [N,H,W,C] input has to have layout nchw");
  const Shape wanted = spec.nhwc ? Shape{shape[0], spec.height, spec.width, channels}
                                 : Shape{shape[0], channels, spec.height, spec.width};
  if (shape != wanted) fail(fmt::format("the input is {}, the image gives {}", shape.str(), wanted.with(0, 1).str()));
  if (index < 0 || index >= shape[0]) fail(fmt::format("there is no image {} in a batch of {}", index, shape[0]));

  const std::vector<std::uint8_t> pixels = resize_and_crop(image, spec);
  const bool interleaved = spec.nhwc || input.layout() == Layout::nhwc;
  const auto area = static_cast<std::size_t>(spec.height * spec.width);
  const auto stride = static_cast<std::size_t>(channels);
  float* target = input.values<float>().data() + static_cast<std::size_t>(index) * area * stride;
  for (std::size_t c = 0; c < stride; ++c) {
    const std::array<float, 256> table = normalisation_table(spec, static_cast<std::int64_t>(c));
    const std::size_t source_channel = spec.channels == ImageSpec::Channels::bgr ? stride - 1 - c : c;
    const std::uint8_t* source = pixels.data() + source_channel;
    float* plane = interleaved ? target + c : target + c * area;
    const std::size_t step = interleaved ? stride : 1;
    for (std::size_t i = 0; i < area; ++i) plane[i * step] = table[source[i * stride]];
  }
}

void softmax(std::span<float> scores) {
  if (scores.empty()) return;
  const double largest = static_cast<double>(*std::max_element(scores.begin(), scores.end()));
  std::vector<double> powers;
  powers.reserve(scores.size());
  double total = 0;
  for (float score : scores) {
    powers.push_back(std::exp(static_cast<double>(score) - largest));
    total += powers.back();
  }
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(powers[i] / total);
}

std::vector<ClassScore> top_k(std::span<const float> scores, std::size_t count) {
  count = std::min(count, scores.size());
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto better = [&](std::int64_t a, std::int64_t b) {
    const float score_a = scores[static_cast<std::size_t>(a)], score_b = scores[static_cast<std::size_t>(b)];
    if (std::isnan(score_a) != std::isnan(score_b)) return std::isnan(score_b);
    if (!std::isnan(score_a) && score_a != score_b) return score_a > score_b;
    return a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), better);
  std::vector<ClassScore> best;
  best.reserve(count);
  for (std::size_t i = 0; i < count; ++i) best.push_back({order[i], scores[static_cast<std::size_t>(order[i])]});
  return best;
}

}  // namespace lenslet

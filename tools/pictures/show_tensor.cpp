#include "tools/pictures/show_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

struct Layout {
  std::int64_t height = 0, width = 0, channels = 0;  // 0 channels: not a picture
  bool channels_last = false, classes = false;
};

Layout layout_of(DType dtype, const Shape& shape) {
  const bool floating = dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
  const int rank = shape.rank();
  if (rank > 2 && shape[0] != 1) return {};
  if (rank != 4) {
    if (floating || (rank != 2 && rank != 3)) return {};
    return {.height = shape[rank - 2], .width = shape[rank - 1], .channels = 1, .classes = true};
  }
  const bool classes = !floating && dtype != DType::u8;
  const auto fits = [&](std::int64_t channels) {
    return channels == 1 || (!classes && (channels == 3 || channels == 4));
  };
  if (fits(shape[1])) return {shape[2], shape[3], shape[1], false, classes};
  if (fits(shape[3])) return {shape[1], shape[2], shape[3], true, classes};
  return {};
}

ShownTensor show_classes(const Tensor& tensor, const Layout& layout) {
  ShownTensor shown{.picture = {{}, layout.height, layout.width, 3}, .classes = true};
  const Tensor numbers = tensor.to_dtype(DType::i64);
  for (const std::int64_t number : numbers.values<std::int64_t>()) {
    const auto colour = class_colour(static_cast<std::uint64_t>(number));
    shown.picture.pixels.insert(shown.picture.pixels.end(), colour.begin(), colour.end());
  }
  return shown;
}

}  // namespace

// Triples of the class's bits set red, green and blue from the highest bit down.
std::array<std::uint8_t, 3> class_colour(std::uint64_t number) {
  std::array<unsigned, 3> colour{};
  for (int bit = 7; bit >= 0; --bit)
    for (unsigned& channel : colour) {
      channel |= static_cast<unsigned>(number & 1) << bit;
      number >>= 1;
    }
  return {static_cast<std::uint8_t>(colour[0]), static_cast<std::uint8_t>(colour[1]),
          static_cast<std::uint8_t>(colour[2])};
}

bool shows_picture(DType dtype, const Shape& shape) {
  const Layout layout = layout_of(dtype, shape);
  return layout.channels * layout.height * layout.width > 0;
}

ShownTensor show_tensor(const Tensor& tensor, std::optional<double> scale) {
  if (!shows_picture(tensor.dtype(), tensor.shape()))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} {} shows no picture: wanted one of 1, 3 or 4 channels, or one of classes",
                            to_string(tensor.dtype()), tensor.shape().str()));
  const Layout layout = layout_of(tensor.dtype(), tensor.shape());
  if (layout.classes && scale)
    throw Error(ErrorKind::invalid_argument, "--output-scale: these are classes, which colours stand for");
  check_image_size(layout.width, layout.height);
  if (layout.classes) return show_classes(tensor, layout);
  ShownTensor shown{.picture = {{}, layout.height, layout.width, layout.channels}};
  shown.picture.pixels.resize(static_cast<std::size_t>(tensor.elems()));
  const double factor = scale.value_or(tensor.dtype() == DType::u8 ? 1 : 255);
  const Tensor floats = tensor.to_dtype(DType::f64);
  const auto values = floats.values<double>();
  const auto channels = static_cast<std::size_t>(layout.channels), pixels = values.size() / channels;
  for (std::size_t pixel = 0; pixel < pixels; ++pixel)
    for (std::size_t c = 0; c < channels; ++c) {
      const double value = factor * values[layout.channels_last ? pixel * channels + c : c * pixels + pixel];
      const bool number = !std::isnan(value);
      shown.outside += !number || value < -0.5 || value >= 255.5 ? 1 : 0;
      shown.picture.pixels[pixel * channels + c] =
          static_cast<std::uint8_t>(number ? std::nearbyint(std::clamp(value, 0.0, 255.0)) : 0);
    }
  return shown;
}

}  // namespace lenslet::tool

#include "lenslet/image.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/boundary.h"
#include "base/dtypes.h"
#include "base/image_plan.h"
#include "base/resize.h"

namespace lenslet {

namespace {

std::vector<std::uint8_t> to_gray(const ImageView& image) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(image.height * image.width));
  std::uint8_t* gray = result.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* const row = image.pixels + y * image.pitch();
    for (std::int64_t x = 0; x < image.width; ++x) *gray++ = luma(row + 3 * x);
  }
  return result;
}

std::vector<std::uint8_t> to_rgb(const std::vector<std::uint8_t>& gray) {
  std::vector<std::uint8_t> result;
  result.reserve(gray.size() * 3);
  for (std::uint8_t value : gray) result.insert(result.end(), 3, value);
  return result;
}

std::vector<std::uint8_t> padded(const std::vector<std::uint8_t>& pixels, const ResizePlan& plan,
                                 const ImageSpec& spec) {
  const std::int64_t channels = image_channels(spec), row = plan.window.width * channels;
  const std::array<std::uint8_t, 3> color = pad_pixel(spec);
  std::vector<std::uint8_t> line(static_cast<std::size_t>(spec.width * channels)), result;
  for (std::size_t i = 0; i < line.size(); ++i) line[i] = color[i % 3];
  result.reserve(line.size() * static_cast<std::size_t>(spec.height));
  for (std::int64_t y = 0; y < spec.height; ++y) result.insert(result.end(), line.begin(), line.end());
  for (std::int64_t y = 0; y < plan.window.height; ++y)
    std::copy_n(pixels.begin() + y * row, row, result.begin() + ((plan.top + y) * spec.width + plan.left) * channels);
  return result;
}

}  // namespace

std::vector<std::uint8_t> resize_and_crop(const ImageView& image, const ImageSpec& spec) {
  return at_boundary([&] {
    if (image.on_cuda)
      throw Error(ErrorKind::invalid_argument, "the image lies on a CUDA device, where no CPU reads it");
    const ResizePlan plan = plan_resize(image, spec);
    const bool wants_gray = spec.channels == ImageSpec::Channels::gray;
    ImageView source = image;
    std::vector<std::uint8_t> gray;
    if (wants_gray && image.channels == 3) {
      gray = to_gray(image);
      source = {gray.data(), image.height, image.width, 1};
    }
    auto pixels = resize_window(source, plan.height, plan.width, plan.window, spec.filter, spec.antialias);
    if (!wants_gray && image.channels == 1) pixels = to_rgb(pixels);
    return plan.window.height == spec.height && plan.window.width == spec.width ? pixels : padded(pixels, plan, spec);
  });
}

void to_input(const ImageView& image, const ImageSpec& spec, Tensor& input, std::int64_t index) {
  at_boundary([&] {
    check_image_input(spec, input, index);
    const std::int64_t channels = image_channels(spec);
    const Tensor tables = normalisation_tables(spec, input.dtype());
    const std::vector<std::uint8_t> pixels = resize_and_crop(image, spec);
    // Nothing fails from here on: a refused image leaves the input unchanged.
    const bool interleaved = spec.nhwc || input.format() == formats::nhwc;
    const auto area = static_cast<std::size_t>(spec.height * spec.width);
    const auto stride = static_cast<std::size_t>(channels);
    dispatch_bytes(dtype_bytes(input.dtype()), [&]<typename T>(std::type_identity<T>) {
      T* target = static_cast<T*>(input.data()) + static_cast<std::size_t>(index) * area * stride;
      for (std::size_t c = 0; c < stride; ++c) {
        const T* table = static_cast<const T*>(tables.data()) + c * 256;
        const std::size_t source_channel = spec.channels == ImageSpec::Channels::bgr ? stride - 1 - c : c;
        const std::uint8_t* source = pixels.data() + source_channel;
        T* plane = interleaved ? target + c : target + c * area;
        const std::size_t step = interleaved ? stride : 1;
        for (std::size_t i = 0; i < area; ++i) plane[i * step] = table[source[i * stride]];
      }
    });
  });
}

void softmax(std::span<float> scores) {
  at_boundary([&] {
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
  });
}

std::vector<ClassScore> top_k(std::span<const float> scores, std::size_t count) {
  return at_boundary([&] {
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
  });
}

}  // namespace lenslet

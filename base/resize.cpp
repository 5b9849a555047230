#include "base/resize.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

namespace lenslet {

namespace {

std::uint8_t to_pixel(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp<std::int32_t>(sum >> tap_bits, 0, 255));
}

double triangle(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Keys' cubic with a = -0.5, in Pillow's order of operations.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
  return 0.0;
}

Taps filter_taps(std::int64_t old_size, std::int64_t new_size, std::int64_t begin, std::int64_t size,
                 ImageSpec::Filter filter, bool antialias) {
  const auto kernel = filter == ImageSpec::Filter::bicubic ? cubic : triangle;
  const double scale = static_cast<double>(old_size) / static_cast<double>(new_size);
  const double filter_scale = antialias ? std::max(scale, 1.0) : 1.0;
  const double support = (filter == ImageSpec::Filter::bicubic ? 2.0 : 1.0) * filter_scale;
  Taps result;
  result.taps = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  result.first.resize(static_cast<std::size_t>(size));
  result.count.resize(static_cast<std::size_t>(size));
  result.weights.assign(static_cast<std::size_t>(size * result.taps), 0);
  std::vector<double> exact(static_cast<std::size_t>(result.taps));
  for (std::int64_t i = 0; i < size; ++i) {
    const double center = (static_cast<double>(begin + i) + 0.5) * scale;
    const auto low = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
    const auto high = std::min(static_cast<std::int64_t>(center + support + 0.5), old_size);
    const auto count = static_cast<std::size_t>(high - low);
    assert(count >= 1 && count <= exact.size());
    double total = 0;
    for (std::size_t t = 0; t < count; ++t) {
      const double source = static_cast<double>(low) + static_cast<double>(t);
      exact[t] = kernel((source - center + 0.5) * (1.0 / filter_scale));
      total += exact[t];
    }
    std::int32_t* weights = &result.weights[static_cast<std::size_t>(i * result.taps)];
    for (std::size_t t = 0; t < count; ++t) {
      const double weight = (total != 0.0 ? exact[t] / total : exact[t]) * (1 << tap_bits);
      weights[t] = static_cast<std::int32_t>(weight + (weight < 0 ? -0.5 : 0.5));
    }
    result.first[static_cast<std::size_t>(i)] = low;
    result.count[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(count);
  }
  return result;
}

/// Resizes one row: `source` is a row of the image, `target` receives taps.first.size() pixels of C channels.
template <int C>
void resize_row(const std::uint8_t* source, const Taps& taps, std::uint8_t* target) {
  for (std::size_t i = 0; i < taps.first.size(); ++i) {
    const std::int32_t* weights = &taps.weights[i * static_cast<std::size_t>(taps.taps)];
    const std::uint8_t* pixel = source + taps.first[i] * C;
    std::int32_t sums[C];
    for (int c = 0; c < C; ++c) sums[c] = 1 << (tap_bits - 1);
    for (std::int64_t t = 0; t < taps.count[i]; ++t, pixel += C)
      for (int c = 0; c < C; ++c) sums[c] += pixel[c] * weights[t];
    for (int c = 0; c < C; ++c) *target++ = to_pixel(sums[c]);
  }
}

std::vector<std::uint8_t> resample(const ImageView& image, std::int64_t new_height, std::int64_t new_width,
                                   const Rect& window, ImageSpec::Filter filter, bool antialias) {
  const Taps rows = filter_taps(image.height, new_height, window.top, window.height, filter, antialias);
  const Taps columns = filter_taps(image.width, new_width, window.left, window.width, filter, antialias);
  const std::int64_t row_elems = window.width * image.channels;

  // Each source row is resized horizontally, rounded to 8 bits and accumulated into the result rows that use it: memory
  // does not depend on the image's height.
  const auto length = static_cast<std::size_t>(row_elems);
  std::vector<std::uint8_t> narrow(length), result(static_cast<std::size_t>(window.height) * length);
  std::vector<std::int32_t> sums(result.size(), 1 << (tap_bits - 1));
  std::size_t done = 0, begun = 0;  // result rows: [done, begun) take the source row
  for (std::int64_t y = 0; done < rows.first.size(); ++y) {
    if (done == begun) y = rows.first[begun];  // without antialias rows between the windows are not read
    const std::uint8_t* source = image.pixels + y * image.pitch();
    if (image.channels == 3)
      resize_row<3>(source, columns, narrow.data());
    else
      resize_row<1>(source, columns, narrow.data());
    while (begun < rows.first.size() && rows.first[begun] <= y) ++begun;
    for (std::size_t i = done; i < begun; ++i) {
      const std::int64_t tap = y - rows.first[i];
      if (tap >= rows.count[i]) continue;
      const std::int32_t weight = rows.weights[i * static_cast<std::size_t>(rows.taps) + static_cast<std::size_t>(tap)];
      std::int32_t* sum = sums.data() + i * length;
      for (std::size_t x = 0; x < length; ++x) sum[x] += narrow[x] * weight;
    }
    while (done < begun && y + 1 >= rows.first[done] + rows.count[done]) ++done;
  }
  std::transform(sums.begin(), sums.end(), result.begin(), to_pixel);
  return result;
}

/// Source index of each result pixel. The step is accumulated instead of multiplied, as in Pillow: the last bit decides
/// which neighbour is taken.
std::vector<std::int64_t> nearest_indices(std::int64_t old_size, std::int64_t new_size, std::int64_t begin,
                                          std::int64_t size) {
  const double scale = static_cast<double>(old_size) / static_cast<double>(new_size);
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(size));
  double position = scale * 0.5;
  for (std::int64_t i = 0; i < begin + size; ++i, position += scale)
    if (i >= begin) indices.push_back(std::min(static_cast<std::int64_t>(position), old_size - 1));
  return indices;
}

std::vector<std::uint8_t> pick_nearest(const ImageView& image, std::int64_t new_height, std::int64_t new_width,
                                       const Rect& window) {
  const auto rows = nearest_indices(image.height, new_height, window.top, window.height);
  const auto columns = nearest_indices(image.width, new_width, window.left, window.width);
  std::vector<std::uint8_t> result;
  result.reserve(static_cast<std::size_t>(window.height * window.width * image.channels));
  for (std::int64_t y : rows)
    for (std::int64_t x : columns) {
      const std::uint8_t* pixel = image.pixels + y * image.pitch() + x * image.channels;
      result.insert(result.end(), pixel, pixel + image.channels);
    }
  return result;
}

}  // namespace

Taps resize_taps(std::int64_t old_size, std::int64_t new_size, std::int64_t begin, std::int64_t size,
                 ImageSpec::Filter filter, bool antialias, bool same_size) {
  if (!same_size && filter != ImageSpec::Filter::nearest)
    return filter_taps(old_size, new_size, begin, size, filter, antialias);
  Taps taps;
  taps.taps = 1;
  taps.first = nearest_indices(old_size, new_size, begin, size);
  taps.count.assign(taps.first.size(), 1);
  taps.weights.assign(taps.first.size(), 1 << tap_bits);
  return taps;
}

std::vector<std::uint8_t> resize_window(const ImageView& image, std::int64_t new_height, std::int64_t new_width,
                                        const Rect& window, ImageSpec::Filter filter, bool antialias) {
  assert(window.top >= 0 && window.left >= 0 && window.height > 0 && window.width > 0);
  assert(window.top + window.height <= new_height && window.left + window.width <= new_width);
  const bool same_size = new_height == image.height && new_width == image.width;
  if (same_size || filter == ImageSpec::Filter::nearest) return pick_nearest(image, new_height, new_width, window);
  return resample(image, new_height, new_width, window, filter, antialias);
}

}  // namespace lenslet

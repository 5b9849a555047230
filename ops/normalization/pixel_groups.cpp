#include "ops/normalization/pixel_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/normalization/pixel_groups.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/over_channels-inl.h"
// clang-format on

#include <algorithm>
#include <array>

#include "base/dtypes.h"
#include "ops/core/grain.h"
#include "ops/normalization/normalize_rows.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Channels at a time, whose sums or maps lie on the stack.
constexpr std::int64_t piece = 64;

/// sums[c] of the elements of channel c, for `vectors` vectors of channels; with `center`, of the squares of their
/// distances from center[c].
template <bool squares, int vectors, class D>
HWY_INLINE void sum_columns(D d, const float* x, std::int64_t pixel, std::int64_t pixels, const double* center,
                            double* sums) {
  const hn::Rebind<float, D> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> totals[vectors], centers[vectors];
  for (int v = 0; v < vectors; ++v) {
    totals[v] = hn::Zero(d);
    centers[v] = squares ? hn::LoadU(d, center + v * lanes) : hn::Zero(d);
  }
  for (std::int64_t p = 0; p < pixels; ++p, x += pixel)
    for (int v = 0; v < vectors; ++v) {
      auto value = hn::PromoteTo(d, hn::LoadU(narrow, x + v * lanes));
      if constexpr (squares) {
        value = hn::Sub(value, centers[v]);
        value = hn::Mul(value, value);
      }
      totals[v] = hn::Add(totals[v], value);
    }
  for (int v = 0; v < vectors; ++v) hn::StoreU(totals[v], d, sums + v * lanes);
}

template <bool squares>
void sum_channels(const float* x, std::int64_t pixel, std::int64_t pixels, std::int64_t channels, const double* center,
                  double* sums) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes)
    sum_columns<squares, 4>(d, x + c, pixel, pixels, center + c, sums + c);
  for (; c + lanes <= channels; c += lanes) sum_columns<squares, 1>(d, x + c, pixel, pixels, center + c, sums + c);
  for (; c < channels; ++c)
    sum_columns<squares, 1>(hn::CappedTag<double, 1>(), x + c, pixel, pixels, center + c, sums + c);
}

/// A slab of at most `most_groups` groups of an image, from group `first` to `end`.
constexpr std::int64_t most_groups = 16;

void normalize_slab_kernel(const PixelGroups& of, const float* scale, const float* bias, std::int64_t first,
                           std::int64_t end, const float* x, float* y) {
  const std::int64_t begin = first * of.parts, channels = end * of.parts;
  const auto length = static_cast<double>(of.parts * of.pixels);
  std::array<double, most_groups> means{}, deviations{};
  std::array<double, piece> centers{}, sums{};
  const auto group_of = [&](std::int64_t c) { return static_cast<std::size_t>(c / of.parts - first); };
  for (std::int64_t c = begin; c < channels; c += piece) {
    const std::int64_t count = std::min(piece, channels - c);
    sum_channels<false>(x + c, of.x_pixel, of.pixels, count, centers.data(), sums.data());
    for (std::int64_t i = 0; i < count; ++i) means[group_of(c + i)] += sums[static_cast<std::size_t>(i)];
  }
  for (double& mean : means) mean /= length;
  for (std::int64_t c = begin; c < channels; c += piece) {
    const std::int64_t count = std::min(piece, channels - c);
    for (std::int64_t i = 0; i < count; ++i) centers[static_cast<std::size_t>(i)] = means[group_of(c + i)];
    sum_channels<true>(x + c, of.x_pixel, of.pixels, count, centers.data(), sums.data());
    for (std::int64_t i = 0; i < count; ++i) deviations[group_of(c + i)] += sums[static_cast<std::size_t>(i)];
  }
  for (double& deviation : deviations) deviation = row_deviation(deviation, length, of.epsilon);
  for (std::int64_t c = begin; c < channels; c += piece) {
    const std::int64_t count = std::min(piece, channels - c);
    std::array<float, piece> center, gain, rest;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t group = group_of(c + i), at = static_cast<std::size_t>(i);
      const std::int64_t parameter = of.affine_of_group ? (c + i) / of.parts : c + i;
      const RowMap map(means[group], deviations[group], {scale[parameter], bias[parameter]});
      center[at] = map.center;
      gain[at] = map.gain;
      rest[at] = map.rest;
    }
    const float *const centers_of = center.data(), *const gains = gain.data(), *const rests = rest.data();
    with_activation(of.activation, [&](auto act) HWY_ATTR {
      for (std::int64_t p = 0; p < of.pixels; ++p) {
        const float* from = x + p * of.x_pixel + c;
        float* to = y + p * of.y_pixel + c;
        over_channels(hn::ScalableTag<float>(), 0, count, [=](auto d, std::int64_t i) HWY_ATTR {
          const auto distance = hn::Sub(hn::LoadU(d, from + i), hn::LoadU(d, centers_of + i));
          const auto mapped = hn::Add(hn::Mul(distance, hn::LoadU(d, gains + i)), hn::LoadU(d, rests + i));
          hn::StoreU(act(d, mapped), d, to + i);
        });
      }
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(normalize_slab_kernel);

void normalize_pixels(const PixelGroups& of, const float* scale, const float* bias, const float* x, float* y,
                      ThreadPool& pool) {
  if (of.empty()) return;
  constexpr std::int64_t line = 16;  // floats: a task's channels share no line of the cache, mostly
  const std::int64_t slab = std::min(of.groups, (line + of.parts - 1) / of.parts);
  const std::int64_t slabs = (of.groups + slab - 1) / slab;
  pool.parallel_for(of.images * slabs, std::max<std::int64_t>(1, elementwise_grain / (slab * of.parts * of.pixels)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t image = i / slabs, first = i % slabs * slab;
                        HWY_DYNAMIC_DISPATCH(normalize_slab_kernel)
                        (of, scale, bias, first, std::min(of.groups, first + slab), x + image * of.pixels * of.x_pixel,
                         y + image * of.pixels * of.y_pixel);
                      }
                    });
}

namespace cuda {

PixelBlocks::PixelBlocks(const PixelGroups& of, DType dtype) {
  constexpr std::int64_t line = 128;  // bytes of a pixel that a block reads at least, where there are as many
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(dtype));
  const std::int64_t vector = 16 / bytes;
  if (of.groups * of.parts % vector == 0 && of.x_pixel % vector == 0 && of.y_pixel % vector == 0)
    pack = static_cast<int>(vector);
  // Whole packs: all groups together are, and may yet be too many.
  const auto fits = [&](std::int64_t groups) {
    return of.groups % groups == 0 && groups * of.parts % pack == 0 &&
           (groups == 1 || (groups <= threads && groups * of.parts <= std::int64_t{threads} * pack));
  };
  const auto find = [&] {
    std::int64_t found = 0;
    for (std::int64_t groups = 1; groups <= std::min<std::int64_t>(of.groups, threads); ++groups)
      if (fits(groups) && found * of.parts * bytes < line) found = groups;
    return found;
  };
  std::int64_t found = find();
  if (found == 0) {
    pack = 1;
    found = find();
  }
  slab = static_cast<int>(found);
  columns = found * of.parts / pack;
  rows = static_cast<int>(std::max<std::int64_t>(1, threads / std::max<std::int64_t>(1, columns)));
  constexpr std::int64_t blocks_wanted = 1056, least_turns = 4;  // enough for an H200, and pixels of a thread
  const std::int64_t blocks = std::max<std::int64_t>(1, of.images * of.groups / found);
  const std::int64_t wanted = std::clamp<std::int64_t>(
      blocks_wanted / blocks, 1, std::min<std::int64_t>(most_chunks, 1 + of.pixels / (rows * least_turns)));
  chunk = std::max<std::int64_t>(1, (of.pixels + wanted - 1) / wanted);
  chunks = static_cast<int>(std::max<std::int64_t>(1, (of.pixels + chunk - 1) / chunk));
}

std::size_t normalize_pixels_workspace_bytes(const PixelGroups& of, DType dtype) {
  if (of.empty()) return 0;
  return 2 * sizeof(double) * static_cast<std::size_t>(of.images * of.groups * PixelBlocks(of, dtype).chunks);
}

}  // namespace cuda
}  // namespace lenslet
#endif

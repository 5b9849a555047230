#pragma once
// RoiAlign at one element, for host and device. Source: ONNX, RoiAlign-22, and its reference.

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/cuda/host_device.h"

namespace lenslet {

inline constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

/// Y [rois,C,P,Q] of X [N,C,H,W], boxes [rois,4] of x1, y1, x2, y2, and each box's image. Strides per axis in elements,
/// for any format.
struct RoiAlignShape {
  std::int64_t rois = 0, n = 0, c = 0, h = 0, w = 0, p = 1, q = 1;
  std::int64_t x_n = 0, x_c = 0, x_h = 0, x_w = 0;
  std::int64_t y_n = 0, y_c = 0, y_p = 0, y_q = 0;
  double scale = 1;          ///< from the boxes' coordinates to those of X
  double offset = 0;         ///< subtracted after scaling: the centre of an element
  double least_size = 0;     ///< of a box
  std::int64_t samples = 0;  ///< a bin, along each axis; 0: about one an element of X
  bool largest = false;      ///< maximum of the samples' terms, else their mean
};

/// The samples of a bin along one axis: sample i is at origin + (i + 0.5) * step. Only [begin, end) are in the image,
/// so that a box of any size costs at most the image.
struct RoiSamples {
  double origin, step, count;
  double begin, end;
};

LENSLET_HOST_DEVICE inline RoiSamples roi_samples(const RoiAlignShape& s, float low, float high, std::int64_t bins,
                                                  std::int64_t bin, std::int64_t size) {
  const double start = static_cast<double>(low) * s.scale - s.offset;
  double length = static_cast<double>(high) * s.scale - s.offset - start;
  if (length < s.least_size) length = s.least_size;  // NaN stays
  const double each = length / static_cast<double>(bins);
  RoiSamples samples{};
  samples.count = s.samples > 0 ? static_cast<double>(s.samples) : std::fmax(std::ceil(each), 0.0);
  samples.origin = start + static_cast<double>(bin) * each;
  samples.step = samples.count > 0 ? each / samples.count : 0;
  samples.end = samples.count;
  if (samples.step != 0) {
    const double a = (-1 - samples.origin) / samples.step,
                 b = (static_cast<double>(size) - samples.origin) / samples.step;
    samples.begin = std::fmax(std::floor(std::fmin(a, b)) - 1, 0.0);
    samples.end = std::fmin(std::ceil(std::fmax(a, b)) + 1, samples.count);
  }
  return samples;
}

/// A position between two elements of an axis.
struct RoiPlace {
  std::int64_t low, high;
  float of_low, of_high;
};
/// False outside of the image, which is 0 there.
LENSLET_HOST_DEVICE inline bool roi_place(double x, std::int64_t size, RoiPlace& place) {
  const auto last = static_cast<double>(size - 1);
  if (!(x >= -1 && x <= last + 1)) return false;
  x = std::fmin(std::fmax(x, 0.0), last);
  const double below = std::floor(x);
  place.low = static_cast<std::int64_t>(below);
  place.high = place.low + 1 < size ? place.low + 1 : place.low;
  place.of_high = static_cast<float>(x - below);
  place.of_low = static_cast<float>(1 - (x - below));
  return true;
}

/// The larger of two; NaN if one is.
LENSLET_HOST_DEVICE inline float larger(float a, float b) { return a > b || a != a ? a : b; }

/// The samples of a bin in one channel.
struct RoiSum {
  float sum = 0, most = 0;
  double met = 0;

  /// Adds the sample at this row and column of the channel at `x`.
  LENSLET_HOST_DEVICE void add(const RoiAlignShape& s, const RoiPlace& row, const RoiPlace& column, const float* x) {
    const float* const upper = x + row.low * s.x_h;
    const float* const lower = x + row.high * s.x_h;
    const float a = row.of_low * column.of_low * upper[column.low * s.x_w];
    const float b = row.of_low * column.of_high * upper[column.high * s.x_w];
    const float c = row.of_high * column.of_low * lower[column.low * s.x_w];
    const float d = row.of_high * column.of_high * lower[column.high * s.x_w];
    sum += a + b + c + d;
    const float term = larger(larger(a, b), larger(c, d));
    most = met == 0 ? term : larger(most, term);
    ++met;
  }
  /// The result of `count` samples; those not added are outside of the image, with a term of 0.
  LENSLET_HOST_DEVICE float value(const RoiAlignShape& s, double count) const {
    if (!s.largest) return count > 1 ? sum / static_cast<float>(count) : sum;
    return met < count && met > 0 ? larger(most, 0) : most;
  }
};

/// Bin (p, q) of a box.
struct RoiBin {
  RoiSamples down, along;
  double count;  ///< of samples, those beyond the image included
  bool known;    ///< false: the box is not finite, and its elements are NaN

  LENSLET_HOST_DEVICE RoiBin(const RoiAlignShape& s, const float* box, std::int64_t p, std::int64_t q)
      : down(roi_samples(s, box[1], box[3], s.p, p, s.h)), along(roi_samples(s, box[0], box[2], s.q, q, s.w)) {
    count = down.count * along.count;
    const double sum = count + down.origin + along.origin;
    known = sum - sum == 0;
  }

  /// Calls visit(row, column) for each sample in the image.
  template <typename Visit>
  LENSLET_HOST_DEVICE void each(const RoiAlignShape& s, Visit&& visit) const {
    for (double i = down.begin; i < down.end; ++i) {
      RoiPlace row;
      if (!roi_place(down.origin + (i + 0.5) * down.step, s.h, row)) continue;
      for (double j = along.begin; j < along.end; ++j) {
        RoiPlace column;
        if (roi_place(along.origin + (j + 0.5) * along.step, s.w, column)) visit(row, column);
      }
    }
  }

  /// The bin's element in the channel at `x`.
  LENSLET_HOST_DEVICE float element(const RoiAlignShape& s, const float* x) const {
    if (!known) return no_number;
    RoiSum sum;
    each(s, [&](const RoiPlace& row, const RoiPlace& column) { sum.add(s, row, column, x); });
    return sum.value(s, count);
  }
};

}  // namespace lenslet

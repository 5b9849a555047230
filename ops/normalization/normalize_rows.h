#pragma once
// Rows brought to mean 0 and variance 1, then to a scale and a bias. Operators of this kind differ in their rows, in
// where scale and bias come from and in who wants the statistics, which an Affine says on both devices:
//   of_row(row) -> ScaleAndBias   of all elements of a row
//   of_element(y, row, i)         what becomes of element i of a row after that
//   write(mean, deviation, row, x, n, y)
//                                 all of that to row x of n elements on the CPU, vectorised
//   keep(row, mean, deviation)    told of each row once; the deviation is sqrt(variance + epsilon)
//   centered                      false: the mean counts as 0, and the deviation is the root mean square
//   may_be_held                   CUDA reads a row once if it fits into a block's registers

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/cuda/fast_divider.h"
#include "base/cuda/host_device.h"
#include "base/thread_pool.h"
#include "lenslet/tensor.h"
#include "ops/core/activation.h"
#include "ops/core/grain.h"
#include "ops/normalization/row_map.h"
#include "ops/normalization/row_sums.h"

namespace lenslet {

/// Row i belongs to channel i % channels, with one element of scale and bias each.
struct AffineOfChannel {
  const float *scale, *bias;
  std::int64_t channels;
  LENSLET_HOST_DEVICE ScaleAndBias of_row(std::int64_t row) const {
    const std::int64_t c = row % channels;
    return {scale[c], bias[c]};
  }
  LENSLET_HOST_DEVICE float of_element(float y, std::int64_t, std::int64_t) const { return y; }
  void write(double mean, double deviation, std::int64_t row, const float* x, std::int64_t n, float* y) const {
    map_row(RowMap(mean, deviation, of_row(row)), x, n, y);
  }
  LENSLET_HOST_DEVICE void keep(std::int64_t, double, double) const {}
  static constexpr bool centered = true;
  static constexpr bool may_be_held = false;  // not measured
};

/// Row i is group i % groups: `parts` adjacent channels of `part_length` elements, with one element of scale and bias
/// each.
struct AffineOfGroup {
  const float *scale, *bias;
  std::int64_t groups, parts, part_length;
  bool narrow;  ///< elements of a row are counted in 31 bits
  cuda::FastDivider divider;

  AffineOfGroup(const float* scales, const float* biases, std::int64_t groups_of_image, std::int64_t parts_of_row,
                std::int64_t length)
      : scale(scales),
        bias(biases),
        groups(groups_of_image),
        parts(parts_of_row),
        part_length(length / std::max<std::int64_t>(1, parts)),
        narrow(length < std::int64_t{1} << 31),
        divider(narrow ? std::max<std::int64_t>(1, part_length) : 1) {}
  LENSLET_HOST_DEVICE ScaleAndBias of_part(std::int64_t row, std::int64_t part) const {
    const std::int64_t c = row % groups * parts + part;
    return {scale[c], bias[c]};
  }
  LENSLET_HOST_DEVICE ScaleAndBias of_row(std::int64_t) const { return {1, 0}; }
  LENSLET_HOST_DEVICE float of_element(float y, std::int64_t row, std::int64_t i) const {
    const ScaleAndBias affine = of_part(row, narrow ? divider.divide(static_cast<std::uint32_t>(i)) : i / part_length);
    return y * affine.scale + affine.bias;
  }
  void write(double mean, double deviation, std::int64_t row, const float* x, std::int64_t, float* y) const {
    for (std::int64_t part = 0; part < parts; ++part, x += part_length, y += part_length)
      map_row(RowMap(mean, deviation, of_part(row, part)), x, part_length, y);
  }
  LENSLET_HOST_DEVICE void keep(std::int64_t, double, double) const {}
  static constexpr bool centered = true;
  static constexpr bool may_be_held = true;
};

/// Rows are images with channels last: element i belongs to channel i % channels, with one element of scale and bias
/// each.
struct AffineOfPixel {
  const float *scale, *bias;
  std::int64_t channels;
  bool clusters;  ///< DeviceProfile's
  bool narrow;    ///< elements of a row are counted in 31 bits
  cuda::FastDivider divider;

  AffineOfPixel(const float* scales, const float* biases, std::int64_t channels_of_pixel, std::int64_t length,
                bool has_clusters)
      : scale(scales),
        bias(biases),
        channels(channels_of_pixel),
        clusters(has_clusters),
        narrow(std::max(length, channels) < std::int64_t{1} << 31),
        divider(narrow ? std::max<std::int64_t>(1, channels) : 1) {}
  LENSLET_HOST_DEVICE ScaleAndBias of_row(std::int64_t) const { return {1, 0}; }
  LENSLET_HOST_DEVICE float of_element(float y, std::int64_t, std::int64_t i) const {
    const std::int64_t pixel = narrow ? divider.divide(static_cast<std::uint32_t>(i)) : i / channels;
    const std::int64_t c = i - pixel * channels;
    return y * scale[c] + bias[c];
  }
  void write(double mean, double deviation, std::int64_t row, const float* x, std::int64_t n, float* y) const {
    const RowMap map(mean, deviation, of_row(row));
    for (std::int64_t i = 0; i < n; i += channels) map_row(map, scale, bias, x + i, channels, y + i);
  }
  LENSLET_HOST_DEVICE void keep(std::int64_t, double, double) const {}
  static constexpr bool centered = true;
  static constexpr bool may_be_held = true;
};

/// Element i of every row has scale[i] and bias[i]; a null bias is 0. mean and inverse_deviation have one element per
/// row, or are null.
struct AffineOfElement {
  const float *scale, *bias;
  float *mean, *inverse_deviation;
  LENSLET_HOST_DEVICE ScaleAndBias of_row(std::int64_t) const { return {1, 0}; }
  LENSLET_HOST_DEVICE float of_element(float y, std::int64_t, std::int64_t i) const {
    return y * scale[i] + (bias != nullptr ? bias[i] : 0);
  }
  void write(double row_mean, double deviation, std::int64_t row, const float* x, std::int64_t n, float* y) const {
    map_row(RowMap(row_mean, deviation, of_row(row)), scale, bias, x, n, y);
  }
  LENSLET_HOST_DEVICE void keep(std::int64_t row, double row_mean, double deviation) const {
    if (mean != nullptr) mean[row] = static_cast<float>(row_mean);
    if (inverse_deviation != nullptr) inverse_deviation[row] = static_cast<float>(1 / deviation);
  }
  static constexpr bool centered = true;
  static constexpr bool may_be_held = true;
};

/// The same for rows divided by their root mean square.
struct RmsAffineOfElement : AffineOfElement {
  static constexpr bool centered = false;
};

/// sqrt(variance + epsilon) of `length` elements, given the sum of their squared distances from the mean.
LENSLET_HOST_DEVICE inline double row_deviation(double squares, double length, float epsilon) {
  return std::sqrt(squares / length + static_cast<double>(epsilon));
}

/// x and y [rows, length]; y may be x. Statistics are computed in double; those of empty rows are NaN.
template <typename Affine>
void normalize_rows(const Affine& affine, float epsilon, std::int64_t rows, std::int64_t length, const float* x,
                    float* y, ThreadPool& pool) {
  pool.parallel_for(rows, std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(1, length)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t row = begin; row < end; ++row) {
                        const float* from = x + row * length;
                        float* to = y + row * length;
                        const double mean = Affine::centered ? row_sum(from, length) / static_cast<double>(length) : 0;
                        const double deviation =
                            row_deviation(row_squares(from, length, mean), static_cast<double>(length), epsilon);
                        affine.keep(row, mean, deviation);
                        affine.write(mean, deviation, row, from, length, to);
                      }
                    });
}

namespace cuda {

struct Context;

/// Bytes of device memory that normalize_rows needs for x [rows, length].
template <typename Affine>
std::size_t normalize_rows_workspace_bytes(std::int64_t rows, std::int64_t length);

/// The same on device addresses, for the Affines above; x and y are 16-byte aligned, of float32 or both of a 16-bit
/// type, which is rounded once. At most 2^31 - 1 rows, unless held in registers. An activation may follow
/// AffineOfChannel and AffineOfGroup, a residual AffineOfElement and RmsAffineOfElement: null, or like x.
template <typename Affine>
void normalize_rows(const Context& context, const Affine& affine, float epsilon, std::int64_t rows, std::int64_t length,
                    DType dtype, const void* x, void* y, std::byte* workspace, const Activation& activation = {},
                    const void* residual = nullptr);

/// y[i] = x[i], elements of a 16-bit type; device addresses.
void widen(const Context& context, DType dtype, const void* x, float* y, std::int64_t count);

}  // namespace cuda
}  // namespace lenslet

#pragma once
// Rows brought to mean 0 and variance 1, then to a scale and a bias. Operators of this kind differ in their rows and in
// where scale and bias come from, which an Affine says on both devices:
//   of_row(row) -> ScaleAndBias  of all elements of a row
//   of_element(y, i) -> float    what becomes of element i of any row after that

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "base/thread_pool.h"
#include "ops/core/grain.h"

namespace lenslet {

struct ScaleAndBias {
  float scale, bias;
};

/// Row i belongs to channel i % channels, for whose scale and bias there is one element each.
struct AffineOfChannel {
  const float *scale, *bias;
  std::int64_t channels;
  LENSLET_HOST_DEVICE ScaleAndBias of_row(std::int64_t row) const {
    const std::int64_t c = row % channels;
    return {scale[c], bias[c]};
  }
  LENSLET_HOST_DEVICE float of_element(float y, std::int64_t) const { return y; }
};

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias. As x * factor - mean * factor it would cancel for a large
/// mean: the subtraction comes first.
struct RowMap {
  float center, gain, rest;
  RowMap() = default;
  LENSLET_HOST_DEVICE RowMap(double mean, double variance, float epsilon, ScaleAndBias affine)
      : center(static_cast<float>(mean)) {
    const double factor = static_cast<double>(affine.scale) / std::sqrt(variance + static_cast<double>(epsilon));
    gain = static_cast<float>(factor);
    rest = static_cast<float>(static_cast<double>(affine.bias) - (mean - static_cast<double>(center)) * factor);
  }
  LENSLET_HOST_DEVICE float operator()(float x) const { return (x - center) * gain + rest; }
};

/// x and y [rows, length]; y may be x. Statistics are taken in double.
template <typename Affine>
void normalize_rows(const Affine& affine, float epsilon, std::int64_t rows, std::int64_t length, const float* x,
                    float* y, ThreadPool& pool) {
  if (length == 0) return;
  pool.parallel_for(rows, std::max<std::int64_t>(1, elementwise_grain / length),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t row = begin; row < end; ++row) {
                        const float* from = x + row * length;
                        float* to = y + row * length;
                        double sum = 0, squares = 0;
                        for (std::int64_t i = 0; i < length; ++i) sum += static_cast<double>(from[i]);
                        const double mean = sum / static_cast<double>(length);
                        for (std::int64_t i = 0; i < length; ++i) {
                          const double distance = static_cast<double>(from[i]) - mean;
                          squares += distance * distance;
                        }
                        const RowMap map(mean, squares / static_cast<double>(length), epsilon, affine.of_row(row));
                        for (std::int64_t i = 0; i < length; ++i) to[i] = affine.of_element(map(from[i]), i);
                      }
                    });
}

namespace cuda {

struct Context;

/// Device memory that normalize_rows needs for x [rows, length].
std::size_t normalize_rows_workspace_bytes(std::int64_t rows, std::int64_t length);

/// The same with device addresses. At most 2^31 - 1 rows.
void normalize_rows(const Context& context, const AffineOfChannel& affine, float epsilon, std::int64_t rows,
                    std::int64_t length, const float* x, float* y, std::byte* workspace);

}  // namespace cuda
}  // namespace lenslet

#pragma once
// Filters on the device, as CUDA algorithms prepare them.

#include <vector>

#include "base/cuda/upload.h"
#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// Filters in the order their algorithm reads them.
struct DeviceFilter final : PreparedFilter {
  DeviceBuffer<float> w;
  explicit DeviceFilter(const std::vector<float>& host) : w(upload(host)) {}
  std::size_t bytes() const override { return w.bytes(); }
};

/// w[k][i] * scale[k], i counting c, r, s: the effective weight of a filter, multiplied in double.
inline float scaled_weight(const ConvFilter& filter, std::size_t k, std::size_t i, std::size_t terms) {
  const double scale = filter.scale == nullptr ? 1.0 : static_cast<double>(filter.scale[k]);
  return static_cast<float>(static_cast<double>(filter.w[k * terms + i]) * scale);
}

}  // namespace lenslet::cuda

#pragma once
// The affine map that normalises a row's elements.

#include <cstdint>

#include "base/cuda/host_device.h"
#include "ops/core/activation.h"

namespace lenslet {

struct ScaleAndBias {
  float scale, bias;
};

/// y = (x - mean) / deviation * scale + bias. The subtraction comes first: x * factor - mean * factor would cancel for
/// a large mean.
struct RowMap {
  float center, gain, rest;
  RowMap() = default;
  LENSLET_HOST_DEVICE RowMap(double mean, double deviation, ScaleAndBias affine) : center(static_cast<float>(mean)) {
    const double factor = static_cast<double>(affine.scale) / deviation;
    gain = static_cast<float>(factor);
    rest = static_cast<float>(static_cast<double>(affine.bias) - (mean - static_cast<double>(center)) * factor);
  }
  LENSLET_HOST_DEVICE float operator()(float x) const { return (x - center) * gain + rest; }
};

/// y[i] = map(x[i]), vectorised, bit-identical; y may be x.
void map_row(const RowMap& map, const float* x, std::int64_t count, float* y);
/// y[i] = map(x[i]) * scale[i] + bias[i], likewise; a null bias is 0.
void map_row(const RowMap& map, const float* scale, const float* bias, const float* x, std::int64_t count, float* y);
/// y[i] = activation(y[i]), vectorised.
void activate_row(const Activation& activation, float* y, std::int64_t count);

}  // namespace lenslet

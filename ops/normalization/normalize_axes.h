#pragma once
// Normalises x by a statistic over some axes: for MeanVarianceNormalization and LpNormalization.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "ops/core/broadcast.h"
#include "ops/reduce/reduce_kernels.h"

namespace lenslet {

/// (x - mean) / (deviation + 1e-9), as in ONNX's function, x / sum |x|, x / sqrt(sum x^2); 0 for a norm of 0.
enum class AxesNorm : std::uint8_t { mean_variance, l1, l2 };

/// The map of elements that are normalised together. Divides instead of multiplying: a norm may be too small for its
/// inverse.
struct AxesMap {
  float center = 0, divisor = 1, rest = 0;
  LENSLET_HOST_DEVICE float operator()(float x) const { return (x - center) / divisor - rest; }
};
struct ApplyAxesMap {
  LENSLET_HOST_DEVICE float operator()(float x, const AxesMap& map) const { return map(x); }
};

/// A fold (ops/reduce/fold.h) that computes the map. The variance is a difference of two means: exact enough in double
/// for means up to 10^5 deviations, beyond which float has no digits left.
struct AxesNormFold {
  using In = float;
  using Out = AxesMap;
  using Rule = AxesNorm;
  LENSLET_HOST_DEVICE static constexpr float neutral(Rule) { return 0; }
  double sum = 0, squares = 0;

  LENSLET_HOST_DEVICE explicit AxesNormFold(Rule = {}) {}
  LENSLET_HOST_DEVICE void add(float x, std::int64_t, Rule rule) {
    const auto wide = static_cast<double>(x);
    sum += rule == AxesNorm::l1 ? std::fabs(wide) : wide;
    squares += wide * wide;
  }
  LENSLET_HOST_DEVICE void merge(const AxesNormFold& other, Rule) {
    sum += other.sum;
    squares += other.squares;
  }
  LENSLET_HOST_DEVICE AxesMap result(std::int64_t count, Rule rule) const {
    AxesMap map;
    double norm = rule == AxesNorm::l1 ? sum : std::sqrt(squares);
    if (rule == AxesNorm::mean_variance) {
      const double mean = sum / static_cast<double>(count);
      const double variance = squares / static_cast<double>(count) - mean * mean;
      map.center = static_cast<float>(mean);
      norm = std::sqrt(variance < 0 ? 0 : variance) + 1e-9;
      map.rest = static_cast<float>((mean - static_cast<double>(map.center)) / norm);
    }
    if (norm != 0) map.divisor = static_cast<float>(norm);
    return map;
  }
};

namespace cuda {

struct Context;

/// y = map(x), with each element's map found by `statistics` over x and applied by `map`, whose operands are y, x and
/// maps. Device addresses; y may be x. `workspace` has a map for each of statistics.kept at its start, and
/// reduce_workspace_bytes(statistics) from `partials` on, a multiple of 256 bytes.
void normalize_axes(const Context& context, AxesNorm norm, const reduce::Loops& statistics, const BroadcastLoops& map,
                    const float* x, float* y, std::byte* workspace, std::size_t partials);

}  // namespace cuda
}  // namespace lenslet

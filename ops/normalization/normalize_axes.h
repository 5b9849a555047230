#pragma once
// Normalises x by a statistic over some axes: for MeanVarianceNormalization and LpNormalization.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/convert.h"
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
  template <typename Half>
  LENSLET_HOST_DEVICE Half operator()(Half x, const AxesMap& map) const {
    return narrowed<Half>(map(widened(x)));
  }
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

/// The same of halves.
template <typename Half>
struct HalfAxesNormFold : AxesNormFold {
  using In = Half;
  LENSLET_HOST_DEVICE static constexpr Half neutral(Rule) { return {}; }
  using AxesNormFold::AxesNormFold;
  LENSLET_HOST_DEVICE void add(Half x, std::int64_t i, Rule rule) { AxesNormFold::add(widened(x), i, rule); }
};

namespace cuda {

struct Context;

/// y = map(x), with each element's map found by `statistics` over x and applied by `map`, whose operands are y, x and
/// maps. Device addresses, x and y of float32 or both of a 16-bit type; y may be x. `workspace` has a map for each of
/// statistics.kept at its start, and reduce_workspace_bytes(statistics, dtype) from `partials` on, a multiple of 256
/// bytes.
void normalize_axes(const Context& context, AxesNorm norm, const reduce::Loops& statistics, const BroadcastLoops& map,
                    DType dtype, const void* x, void* y, std::byte* workspace, std::size_t partials);

}  // namespace cuda
}  // namespace lenslet

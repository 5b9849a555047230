#pragma once
// The last step of an epilogue, on host and device: an accumulator becomes an element of y.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/convert.h"
#include "base/cuda/host_device.h"
#include "base/saturate.h"

namespace lenslet {

/// round(acc * multiplier) + zero_point, ties to even; saturated to T, NaN gives 0. As ONNX QuantizeLinear.
template <typename T>
LENSLET_HOST_DEVICE T requantized(float acc, float multiplier, std::int32_t zero_point) {
  return saturate<T>(static_cast<double>(std::rint(acc * multiplier)) + zero_point);
}

/// How a convolution stores its results; passed by value to kernels.
struct Requantization {
  const float* multipliers = nullptr;  ///< [K], in host or device memory; null: results are converted
  std::int32_t zero_point = 0;

  /// `acc` has bias and activation. 8-bit Y: requantized by the multiplier of filter k. Else rounded to Y.
  template <typename Y, typename Acc>
  LENSLET_HOST_DEVICE Y stored(Acc acc, std::int64_t k) const {
    if constexpr (std::is_integral_v<Y> && sizeof(Y) == 1)
      return requantized<Y>(static_cast<float>(acc), multipliers[k], zero_point);
    else
      return convert<Y>(acc);
  }
};

/// Bytes of the multipliers of k filters at the begin of a blob, so that what follows is aligned as on CUDA.
constexpr std::size_t multiplier_bytes(std::int64_t k) {
  return (static_cast<std::size_t>(k) * sizeof(float) + 255) / 256 * 256;
}

}  // namespace lenslet

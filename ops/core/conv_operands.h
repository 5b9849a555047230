#pragma once
// What a convolution reads and writes, dense or sparse. T is the element type that the problem states.

#include "ops/core/requantization.h"

namespace lenslet {

struct ConvOperands {
  const void *x_data = nullptr, *filter_data = nullptr, *bias_data = nullptr, *residual_data = nullptr;
  void* y_data = nullptr;
  Requantization requantization = {};

  /// Padded, if the algorithm wants explicit padding.
  template <typename T>
  const T* x() const {
    return static_cast<const T*>(x_data);
  }
  /// As the kernel packed them; computed filters: [K][C/groups][R][S].
  template <typename T>
  const T* filter() const {
    return static_cast<const T*>(filter_data);
  }
  /// [K], of the accumulators' type; null if the problem has none.
  template <typename T>
  const T* bias() const {
    return static_cast<const T*>(bias_data);
  }
  /// Like y; null if the problem has none; may be y (in place).
  template <typename T>
  const T* residual() const {
    return static_cast<const T*>(residual_data);
  }
  template <typename T>
  T* y() const {
    return static_cast<T*>(y_data);
  }
};

}  // namespace lenslet

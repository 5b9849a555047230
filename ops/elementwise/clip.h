#pragma once
// Clip's function.

#include "base/cuda/host_device.h"

namespace lenslet {

/// min(max(x, low), high); NaN stays NaN.
template <typename T>
struct ClipTo {
  T low, high;
  LENSLET_HOST_DEVICE T operator()(T x) const {
    const T raised = x < low ? low : x;
    return high < raised ? high : raised;
  }
};

}  // namespace lenslet

#pragma once
// A pooling problem: window geometry resolved for one input, shared by the operator and its kernels.

#include <cstdint>
#include <vector>

#include "base/cuda/host_device.h"
#include "lenslet/tensor.h"
#include "ops/core/window.h"

namespace lenslet {

/// Attributes as ONNX has them; lists are empty (defaults) or have one entry per spatial dimension (pads: two).
struct PoolGeometry {
  std::vector<std::int64_t> kernel, strides, dilations, pads;
  AutoPad auto_pad = AutoPad::notset;
  bool ceil_mode = false;
  std::int64_t norm = 0;      ///< p of an Lp norm
  bool column_major = false;  ///< indices of maxima count along the first spatial axis first
};

/// The taps inside the image of one output position along one axis.
struct PoolTaps {
  std::int64_t first = 0;  ///< index in the input of the first one
  std::int64_t count = 0;
  std::int64_t padded = 0;  ///< taps on the image or its pads: what count_include_pad divides by
};

struct PoolAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;

  LENSLET_HOST_DEVICE PoolTaps taps(std::int64_t output) const {
    const std::int64_t begin = output * stride - pad_begin;
    const std::int64_t skipped = begin < 0 ? steps(-begin) : 0, inside = reach(in - begin) - skipped;
    return {begin + skipped * dilation, inside > 0 ? inside : 0, reach(in + pad_end - begin)};
  }

 private:
  /// The dilation steps that cover `length`. Divisions are slow on a GPU.
  LENSLET_HOST_DEVICE std::int64_t steps(std::int64_t length) const {
    return dilation == 1 ? length : (length + dilation - 1) / dilation;
  }
  /// Taps of a window that begin within `length` of its first.
  LENSLET_HOST_DEVICE std::int64_t reach(std::int64_t length) const {
    if (length <= 0) return 0;
    const std::int64_t most = steps(length);
    return kernel < most ? kernel : most;
  }
};

/// x [n,c,in...] to y [n,c,out...]; fewer than three spatial dimensions have leading ones of length 1.
struct PoolProblem {
  std::int64_t n = 1, c = 1;
  PoolAxis axes[3];
  std::int64_t norm = 0;      ///< p of an Lp norm
  bool column_major = false;  ///< as PoolGeometry has it

  LENSLET_HOST_DEVICE std::int64_t in() const {
    return axes[0].in * axes[1].in * axes[2].in;
  }                                                                             ///< elements of a plane of x
  std::int64_t out() const { return axes[0].out * axes[1].out * axes[2].out; }  ///< and of y
  /// The index, within a plane, that ONNX gives its element `at`.
  LENSLET_HOST_DEVICE std::int64_t numbered(std::int64_t at) const {
    if (!column_major) return at;
    const std::int64_t line = at / axes[2].in;
    return at % axes[2].in * axes[1].in * axes[0].in + line % axes[1].in * axes[0].in + line / axes[1].in;
  }
};

/// Resolves pads and sizes as onnxruntime does: with ceil_mode, the last window must begin on the image or its leading
/// pad. Error(invalid_model | unsupported) names a contradiction.
PoolProblem resolve_pool(const Shape& x, const PoolGeometry& geometry);
/// [n,c,out...] with x's number of spatial dimensions.
Shape pool_output(const Shape& x, const PoolProblem& problem);

}  // namespace lenslet

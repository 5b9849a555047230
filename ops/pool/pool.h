#pragma once
// A pooling in numbers: window geometry resolved for one input, shared by the operator and its kernels.

#include <array>
#include <cstdint>
#include <vector>

#include "lenslet/tensor.h"
#include "ops/conv/problem.h"

namespace lenslet {

/// Attributes as ONNX has them; lists are empty (defaults) or have one entry per spatial dimension (pads: two).
struct PoolGeometry {
  std::vector<std::int64_t> kernel, strides, dilations, pads;
  AutoPad auto_pad = AutoPad::notset;
  bool ceil_mode = false;
};

/// x [n,c,in[0],in[1],in[2]] to y [n,c,out[0],out[1],out[2]]; fewer spatial dimensions have leading ones of length 1.
struct PoolProblem {
  std::int64_t n = 1, c = 1;
  std::array<std::int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
  std::array<std::int64_t, 3> pad_begin{0, 0, 0}, pad_end{0, 0, 0};
};

/// The taps of one output position along one dimension that fall on the image.
struct PoolTaps {
  std::int64_t first = 0;  ///< index in the input of the first one
  std::int64_t count = 0;
  std::int64_t padded = 0;  ///< taps on the image or its pads: what count_include_pad divides by
};

PoolTaps pool_taps(const PoolProblem& problem, int dim, std::int64_t out);

/// Pads resolved and sizes computed as onnxruntime does: with ceil_mode, the last window must begin on the image or its
/// leading pad. Error(invalid_model | unsupported) names what contradicts.
PoolProblem resolve_pool(const Shape& x, const PoolGeometry& geometry);
/// [n,c,out...] with as many spatial dimensions as x has.
Shape pool_output(const Shape& x, const PoolProblem& problem);

}  // namespace lenslet

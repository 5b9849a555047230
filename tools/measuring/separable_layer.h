#pragma once
// Layers of MobileNetV2, for the test and the bench of separable.

#include "ops/conv/separable.h"

namespace lenslet {

inline SeparableProblem stored(SeparableProblem problem, DType storage) {
  for (ConvProblem* half : {&problem.depthwise, &problem.pointwise}) half->storage = half->x_storage = storage;
  return problem;
}

struct SeparableLayer {
  std::int64_t c, size, stride, k;  ///< size: height and width of the input
  bool residual = false;

  /// For n images in float32: 3x3 with pads of 1 and a clip to [0, 6], then 1x1, both with bias.
  SeparableProblem problem(std::int64_t n) const {
    ConvGeometry geometry;
    geometry.stride = {stride, stride};
    geometry.pads.fill(1);
    geometry.groups = c;
    SeparableProblem problem;
    ConvProblem &d = problem.depthwise, &p = problem.pointwise;
    d = resolve_conv({n, c, size, size}, {c, 1, 3, 3}, geometry);
    d.activation = {Activation::Kind::clip, 0, 6};
    p = resolve_conv({n, c, d.p, d.q}, {k, c, 1, 1}, {});
    p.residual = residual;
    d.bias = p.bias = true;
    return problem;
  }
};

}  // namespace lenslet

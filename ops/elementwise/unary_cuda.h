#pragma once
// Launchers of elementwise kernels of one input. x and y lie on the device; y may be x; types as in UnaryOp and ClipOp.

#include <optional>

#include "lenslet/tensor.h"
#include "ops/elementwise/unary_kernels.h"

namespace lenslet::cuda {

struct Context;

/// y = f(x), same shape, type and layout. f32: every kind; f64 and signed integers: abs, neg and relu. NaN stays NaN.
/// Errors: 2 units of the last place for what the device's library computes, a few for compositions; the others are
/// exact or rounded once.
void unary(const Context& context, const UnaryFunction& f, const Tensor& x, Tensor& y);

/// y = min(max(x, low), high) for every type of ClipOp; with low > high everything becomes high. A bound is a tensor of
/// one element, empty() when there is none: in `low` and `high` on the device, or in `host_low` and `host_high`, which
/// win, on the host. `fallback` is ClipOp's attribute form.
struct ClipBounds {
  const Tensor &low, &high, &host_low, &host_high;
  std::optional<float> min, max;
};
void clip(const Context& context, const ClipBounds& bounds, const Tensor& x, Tensor& y);

}  // namespace lenslet::cuda

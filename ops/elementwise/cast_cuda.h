#pragma once
// Launcher of Cast.

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

/// to = from, element by element, with the rules of ops/elementwise/cast.cpp (a NaN's payload may change). Device
/// memory of one shape and layout, any two types; `to` may be `from` when the types are equal.
void cast(const Context& context, const Tensor& from, Tensor& to);

}  // namespace lenslet::cuda

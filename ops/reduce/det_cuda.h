#pragma once
// Launcher of determinants.

#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// y[i] = det(x[i]) of `count` matrices [n,n], computed in double; `scratch` has count*n*n elements. Device addresses.
void det(const Context& context, const float* x, float* y, double* scratch, std::int64_t count, std::int64_t n);

}  // namespace lenslet::cuda

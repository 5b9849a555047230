#pragma once
// Vectorised QuantizeLinear with a single scale and zero point.

#include <cstdint>

namespace lenslet {

/// y[i] = Quantize<T>()(x[i], scale, zero_point) (quantize.h) for i < n, bit-identical; T int8, uint8, int16, uint16.
template <typename T>
void quantize_run(const float* x, float scale, T zero_point, std::int64_t n, T* y);

}  // namespace lenslet

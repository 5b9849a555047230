#pragma once
// Makes and compares tensors for tests.

#include <cstring>
#include <random>

#include "lenslet/tensor.h"

namespace lenslet::test {

/// Normal random f32 with a deviation of 1.0 around `mean`, in a fixed order for a seed.
inline Tensor random_f32(const Shape& shape, unsigned seed, double mean = 0, double deviation = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(mean, deviation);
  Tensor tensor(DType::f32, shape);
  for (float& value : tensor.values<float>()) value = static_cast<float>(normal(generator));
  return tensor;
}

/// Same type, shape and format, and equal bits.
inline bool equal(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.format() == b.format() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

}  // namespace lenslet::test

#pragma once
// Einsum's numeric description, its elements, and the launcher.

#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "base/dtypes.h"

namespace lenslet {

class BoundKernel;

using EinsumTypes = Types<float, double, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;

/// y[i...] = sum over the summed axes of the product of the operands. Each operand has a stride per axis: 0 for axes it
/// lacks, the sum of two strides along a diagonal.
struct EinsumWalk {
  static constexpr int most_operands = 4, most_axes = 8;

  int operands = 1, axes = 0, sums = 0;
  std::int64_t elems = 1, gemm_k = 1;  ///< elements of the result, and terms of each sum
  std::int64_t dims[most_axes] = {}, sum_dims[most_axes] = {};
  std::int64_t strides[most_operands][most_axes] = {}, sum_strides[most_operands][most_axes] = {};

  /// Element `index` of the result. Integers wrap around.
  template <typename T>
  LENSLET_HOST_DEVICE T element(std::int64_t index, const T* const (&inputs)[most_operands]) const {
    const T* x[most_operands] = {inputs[0], inputs[1], inputs[2], inputs[3]};
    for (int d = axes - 1; d >= 0; --d) {
      const std::int64_t at = index % dims[d];
      index /= dims[d];
      for (int o = 0; o < operands; ++o) x[o] += at * strides[o][d];
    }
    T sum = 0;
    std::int64_t place[most_axes] = {};
    for (std::int64_t k_index = 0; k_index < gemm_k; ++k_index) {
      T product = *x[0];
      for (int o = 1; o < operands; ++o) product = wrapped(product, *x[o], [](auto a, auto b) { return a * b; });
      sum = wrapped(sum, product, [](auto a, auto b) { return a + b; });
      for (int d = sums - 1; d >= 0; --d) {
        const bool carry = ++place[d] == sum_dims[d];
        for (int o = 0; o < operands; ++o) x[o] += (carry ? 1 - sum_dims[d] : 1) * sum_strides[o][d];
        if (!carry) break;
        place[d] = 0;
      }
    }
    return sum;
  }

 private:
  template <typename T, typename F>
  LENSLET_HOST_DEVICE static T wrapped(T a, T b, const F& f) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
    } else {
      return f(a, b);
    }
  }
};

/// The bound kernel of a walk on either device; elements have the output's type.
std::unique_ptr<const BoundKernel> bind_walk(const EinsumWalk& walk);

namespace cuda {

struct Context;

/// Device addresses; unused operands are null. One thread per element.
void einsum(const Context& context, const EinsumWalk& walk, DType dtype,
            const void* const (&inputs)[EinsumWalk::most_operands], void* y);

}  // namespace cuda
}  // namespace lenslet

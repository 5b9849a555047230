#pragma once
// Products of random matrices on the device, with NaNs between the operands' rows, around them and in y. The reference
// sums the same rounded operands in double.

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/context.h"
#include "lenslet/tensor.h"
#include "ops/core/activation.h"

namespace lenslet::test {

/// y = activation(alpha * A * B + beta * c + residual_by * residual).
struct ProductCase {
  std::int64_t m, n, k;
  bool trans_a = false, trans_b = true;  ///< A is [k,m], B is [n,k]
  std::int64_t batch = 1;
  bool one_b = false;                                       ///< one B for the whole batch
  std::int64_t between = 0, between_y = 0;                  ///< elements between rows of A and B, and of y
  bool row_of_c = false, full_c = false, residual = false;  ///< row_of_c: c is the same for the whole batch
  float alpha = 1, beta = 1;
  Activation activation = {};
  bool in_place = false;  ///< the residual is y
  float residual_by = 1;
  std::int64_t operands_shift = 0, y_shift = 0;  ///< offset in elements from an address aligned to 128 bytes

  bool has_c() const { return row_of_c || full_c; }
  bool has_residual() const { return residual || in_place; }
  std::string str() const;
};

class DrawnProduct {
 public:
  /// Rows of random values of one type, with leading dimension `ld`.
  class Matrix {
   public:
    Matrix(std::mt19937& random, DType type, std::int64_t rows, std::int64_t columns, std::int64_t ld,
           std::int64_t shift = 0);
    const std::byte* data() const { return memory_.data() + begin_; }
    const float* floats() const { return reinterpret_cast<const float*>(data()); }

    std::int64_t ld, elems;
    std::vector<double> values;  ///< after rounding, without the gaps between rows

   private:
    std::int64_t begin_;
    cuda::DeviceBuffer<std::byte> memory_;
  };

  /// Factors have type x, residual and y type y, c is float32. `activate` computes t.activation.
  DrawnProduct(const cuda::Context& context, const ProductCase& product, DType x, DType y, unsigned seed,
               const std::function<double(double)>& activate = {});

  const Matrix& a() const { return a_; }
  const Matrix& b() const { return b_; }
  std::int64_t b_step() const { return t_.one_b ? 0 : b_.elems / t_.batch; }  ///< from one product to the next
  const float* c() const { return t_.has_c() ? c_.floats() : nullptr; }
  const std::byte* residual() { return t_.in_place ? y() : t_.residual ? residual_.data() : nullptr; }
  std::byte* y() { return y_.data() + bytes(before()); }
  std::int64_t y_ld() const { return t_.n + t_.between_y; }

  /// Runs what `queue` queues twice, over NaNs. Fails the current check if y's error exceeds `acc` times the rms of the
  /// terms plus `last` times y itself, if anything else is written, or if the bits differ. Returns the largest error.
  double check(const std::string& name, double acc, double last, const std::function<void()>& queue);

 private:
  std::int64_t before() const;
  std::int64_t bytes(std::int64_t count) const { return count * static_cast<std::int64_t>(dtype_bytes(y_type_)); }
  std::vector<std::byte> run(const std::function<void()>& queue);

  const cuda::Context& context_;
  const ProductCase t_;
  const DType y_type_;
  std::mt19937 random_;
  const Matrix a_, b_, c_, residual_;
  cuda::DeviceBuffer<std::byte> y_;
  std::vector<double> exact_;
  double rms_;  ///< of the terms
};

}  // namespace lenslet::test

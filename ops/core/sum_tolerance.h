#pragma once

#include <cmath>
#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// Bound on |y - exact| for a sum of `terms` independent fp32 products in any order, relative to the root of the sum of
/// their squares, or to the sum where that is larger. Each rounding is about 2^-24 of a partial sum that grows to it;
/// roundings are independent, so the error's rms is about 2^-24 * sqrt(terms) / 2 of it. The worst of 1e7 outputs lies
/// 5.3 deviations out, dependent terms cost a factor: 8 in all, plus 16 roundings for the epilogue.
inline double sum_tolerance(std::int64_t terms) {
  return std::ldexp(8 * (std::sqrt(static_cast<double>(terms)) + 2), -24);
}

/// The same for TF32 operands with fp32 products and sums. Rounding to 10 mantissa bits errs by at most 2^-11 of an
/// operand, 0.42 * 2^-11 rms; two operands by 0.6 * 2^-11 of a product, and of that root for any number of terms.
/// Factor 16 as above. cuBLAS on an H200: 0.60 rms; worst 4.4 among 1e6 sums of 16 terms, 3.2 of 256 or more.
inline double tf32_sum_tolerance(std::int64_t terms) { return std::ldexp(10.0, -11) + sum_tolerance(terms); }

/// Largest relative error of rounding to nearest: half the relative distance of neighbouring numbers.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
}

/// The same where x is of a 16-bit type, the other operand was rounded to it once, and products and sums are fp32: 0.42
/// roundoffs rms of a product, and so of that root. Factor 16 as above. Rounding the result to its stored type is
/// judged separately.
inline double half_sum_tolerance(DType dtype, std::int64_t terms) {
  return 6.7 * unit_roundoff(dtype) + 2 * sum_tolerance(terms);
}

}  // namespace lenslet

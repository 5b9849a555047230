#pragma once

#include <cmath>
#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// Bound on |y - exact| for a sum of `terms` independent fp32 products, in whatever order, by the root of the sum of
/// their squares, or by the sum where that is larger: each rounding is about 2^-24 of a partial sum that grows to it,
/// and roundings are independent, so the error's rms is about 2^-24 * sqrt(terms) / 2 of it; the worst of up to 1e7
/// outputs lies 5.3 deviations out, and terms that are not independent cost a factor. Factor 8 in all, beside 16
/// roundings for scale, bias, residual and activation.
inline double sum_tolerance(std::int64_t terms) {
  return std::ldexp(8 * (std::sqrt(static_cast<double>(terms)) + 2), -24);
}

/// The same where the operands are TF32 and their products and sums fp32. Rounding to 10 mantissa bits errs by up to
/// 2^-11 of an operand, 0.42 * 2^-11 rms over all mantissas; two of them by 0.6 * 2^-11 of a product, and of that
/// root, however many terms there are: errors add up as the products do. 16 times that, as above. cuBLAS on an
/// H200: 0.60 rms, 4.4 at worst among 1e6 sums of 16 terms and 3.2 of 256 or more.
inline double tf32_sum_tolerance(std::int64_t terms) { return std::ldexp(10.0, -11) + sum_tolerance(terms); }

/// Half the distance of neighbouring numbers, relative to them: what rounding to nearest changes at most.
inline double unit_roundoff(DType dtype) {
  return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
}

/// The same where one operand, x, is of a 16-bit type, the other was rounded to it once, and products and sums are
/// fp32: 0.42 roundoffs rms of a product, and so of that root; 16 times that, as above. That the result is
/// rounded to the type it is stored in is no error of the product's, and judged apart.
inline double half_sum_tolerance(DType dtype, std::int64_t terms) {
  return 6.7 * unit_roundoff(dtype) + 2 * sum_tolerance(terms);
}

}  // namespace lenslet

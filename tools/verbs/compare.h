#pragma once
// Compares a result with the expected one, by the rule of `lenslet check`.

#include <string>

#include "lenslet/tensor.h"

namespace lenslet::tool {

struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-5;  ///< relative to the rms of the expected tensor's finite elements; absolute when that is 0
};

/// Empty when `actual` equals `expected`: same type, same shape, and all elements equal (integers, bool, infinities,
/// NaN to NaN) or within atol * rms + rtol * |expected| (floats). Otherwise one line with the worst element's index,
/// both values and the number of differing elements. Both in layout nchw.
std::string difference(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance);

/// "[0,2,5]" of the flat row-major index.
std::string index_text(const Shape& shape, std::int64_t flat);

/// 16 hexadecimal digits (FNV-1a, 64 bits) of the tensor's bytes in the order of its shape: a digest of the bits.
std::string digest(const Tensor& tensor);

}  // namespace lenslet::tool

#pragma once
// Compares a result with the expected one, by the rule of `lenslet check`.

#include <string>

#include "lenslet/tensor.h"

namespace lenslet::tool {

struct Tolerance {
  double rtol = 1e-3;
  double atol = 1e-5;  ///< relative to the rms of the expected tensor's finite elements; absolute when that is 0
};

/// Empty when `actual` equals `expected`: same type, same shape, and element by element equal (integers, bool,
/// infinities, NaN to NaN) or within atol * rms + rtol * |expected| (floats). Otherwise one line with the worst
/// element's index, both values and how many differ. Both in layout nchw.
std::string difference(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance);

/// "[0,2,5]" of the flat row-major index.
std::string index_text(const Shape& shape, std::int64_t flat);

/// The tensor's bytes in the order of its shape as 16 hexadecimal digits (FNV-1a, 64 bits): equal bits, equal digests.
std::string digest(const Tensor& tensor);

}  // namespace lenslet::tool

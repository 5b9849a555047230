#pragma once
// The header of NumPy's .npy format (numpy/lib/format.py, versions 1.0 and 2.0).

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lenslet/tensor.h"

namespace lenslet {

struct NpyHeader {
  DType dtype = DType::f32;
  bool fortran_order = false;
  Shape shape;
  std::size_t data_offset = 0;  ///< of the first element in the file
};

/// Error(io) for what is no .npy file, Error(unsupported) for element types lenslet has none for, Error(limit).
NpyHeader parse_npy_header(std::span<const std::byte> file);

/// Everything before the elements, version 1.0, padded so that they start at a multiple of 64. Error(unsupported):
/// bf16.
std::string npy_header(DType dtype, const Shape& shape);

}  // namespace lenslet

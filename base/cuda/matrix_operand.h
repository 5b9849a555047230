#pragma once
// How a matrix lies in device memory. Plain C++: included where there is no CUDA, too.

#include <cstdint>

namespace lenslet::cuda {

/// An operand of a product as it lies in device memory: row-major, rows `ld` floats apart. `transposed`: what lies
/// there is the transpose of the operand.
struct MatrixOperand {
  const float* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
  std::int64_t stride = 0;  ///< floats from one matrix of a batch to the next; 0: the same for all
};

}  // namespace lenslet::cuda

#pragma once
// A matrix in device memory. Plain C++: also included without CUDA.

#include <cstdint>

namespace lenslet::cuda {

/// An operand of a matrix product in device memory: row-major, rows `ld` floats apart. `transposed`: the memory holds
/// the operand's transpose.
struct MatrixOperand {
  const float* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
  std::int64_t stride = 0;  ///< floats from one matrix of a batch to the next; 0: the same for all
};

}  // namespace lenslet::cuda

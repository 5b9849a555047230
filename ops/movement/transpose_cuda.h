#pragma once
// Matrix transposes on the device: through shared memory (transpose.cu), or in registers for few rows or columns
// (interleave.cu).

#include <cstddef>

#include "ops/core/strided_copy.h"

namespace lenslet::cuda {

struct Context;

/// With fewer rows or columns most threads of a tile would idle: other copies are faster.
inline constexpr std::int64_t least_transposed_dim = 16;

/// to[j*to_stride + i] = from[i*from_stride + j] for i < rows, j < columns, at every position of the outer loops.
/// Strides in elements. At most 2^31 - 1 elements in all.
struct Transposition {
  std::int64_t rows = 1, columns = 1;
  std::int64_t from_stride = 1, to_stride = 1;
  StridedLoops outer;
};

/// Elements of 1, 2, 4 or 8 bytes; device addresses of the elements at index 0, which must not overlap.
void transpose(const Context& context, std::size_t element_bytes, const Transposition& transposition, const void* from,
               void* to);

/// True if 2 or 4 rows become contiguous columns (or the inverse) in whole vectors: 16 bytes on the contiguous side, 16
/// bytes / rows on the other.
bool interleaves(std::size_t element_bytes, const Transposition& transposition, const void* from, const void* to);

/// As transpose(), if interleaves(). Strides fit 32 bits.
void interleave(const Context& context, std::size_t element_bytes, const Transposition& transposition, const void* from,
                void* to);

}  // namespace lenslet::cuda

#pragma once
// Transposing matrices of 2 or 4 rows, or as many columns, on the device: DepthToSpace and SpaceToDepth in NCHW,
// channel shuffles of few groups in NHWC.

#include <cstddef>

#include "ops/movement/transpose_cuda.h"

namespace lenslet::cuda {

/// Is it 2 or 4 rows that become contiguous columns (or the inverse) and whole vectors: 16 bytes on the contiguous
/// side, 16 bytes / rows on the other?
bool interleaves(std::size_t element_bytes, const Transposition& transposition, const void* from, const void* to);

/// As transpose(), where interleaves(). Strides fit 32 bits.
void interleave(const Context& context, std::size_t element_bytes, const Transposition& transposition, const void* from,
                void* to);

}  // namespace lenslet::cuda

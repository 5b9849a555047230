#pragma once
// Matrix transposes for any element type: the core of layout conversion.

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"

namespace lenslet {

/// to[b][j][i] = from[b][i][j] for b < batch, i < rows, j < columns; elements of 1, 2, 4 or 8 bytes. [N,C,H,W] to
/// [N,H,W,C]: rows = C, columns = H*W; the reverse: rows = H*W, columns = C.
void transpose_planes(const void* from, void* to, std::size_t elem_bytes, std::int64_t batch, std::int64_t rows,
                      std::int64_t columns, ThreadPool& pool);

}  // namespace lenslet

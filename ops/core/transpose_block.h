#pragma once
// Vectorised CPU transpose of a block of a few cache lines: the unit of larger transposes.

#include <cstddef>
#include <cstdint>

namespace lenslet {

/// to[j * to_step + i] = from[i * from_step + j] for i in [0, rows) and j in [0, columns), elements of 1, 2, 4 or 8
/// bytes.
void transpose_block(std::size_t element_bytes, const void* from, std::int64_t from_step, void* to,
                     std::int64_t to_step, std::int64_t rows, std::int64_t columns);

}  // namespace lenslet

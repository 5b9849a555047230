#pragma once
// Matrices on the device that keep some diagonals.

#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// y [count, rows, cols]: elements with column minus row in [least, most] come from `from`, or if that is null from the
/// low bytes of `value`; all others are 0. Elements of 1, 2, 4 or 8 bytes; y may be `from`.
void diagonals(const Context& context, std::size_t element_bytes, std::int64_t count, std::int64_t rows,
               std::int64_t cols, std::int64_t least, std::int64_t most, const void* from, std::uint64_t value,
               void* y);

}  // namespace lenslet::cuda

#pragma once
// Matrices on the device of which diagonals stay.

#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// y [count, rows, cols]: elements whose column minus row lies in [least, most] are `from`'s, or where that is null the
/// one in the low bytes of `value`; all others are 0. Elements of 1, 2, 4 or 8 bytes; y may be `from`.
void band(const Context& context, std::size_t element_bytes, std::int64_t count, std::int64_t rows, std::int64_t cols,
          std::int64_t least, std::int64_t most, const void* from, std::uint64_t value, void* y);

}  // namespace lenslet::cuda

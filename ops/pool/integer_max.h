#pragma once
// Maxima of 8-bit integers in nchw by lines: the lines of a window are folded into one, vectorised, then its taps.

#include <cstddef>
#include <cstdint>

#include "ops/pool/pool.h"

namespace lenslet {

/// Bytes of scratch memory for a thread; 0: windows reach so far beyond the image that pool_integer_max() is not for
/// them.
std::int64_t integer_max_scratch(const PoolProblem& problem);
/// Output lines [begin, end) of all of y, numbered through, from x: int8 if `is_signed`, else uint8.
void pool_integer_max(const PoolProblem& problem, bool is_signed, const void* x, std::int64_t begin, std::int64_t end,
                      std::byte* scratch, void* y);

}  // namespace lenslet

#pragma once
// How much work one piece of a parallel loop gets.

#include <cstdint>

namespace lenslet {

/// Elements of a loop that does little with each: some microseconds, against the one or two that handing over a piece
/// costs, and 64 KiB of floats, which stay in the nearest caches.
inline constexpr std::int64_t elementwise_grain = 16 << 10;
/// The same for plain copies, in bytes.
inline constexpr std::int64_t copy_grain_bytes = 64 << 10;

}  // namespace lenslet

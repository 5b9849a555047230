#pragma once
// Work per piece of a parallel loop.

#include <cstdint>

namespace lenslet {

/// Elements per piece of a cheap elementwise loop: some microseconds, against one or two to hand a piece over. 64 KiB
/// of floats stay in L1 and L2.
inline constexpr std::int64_t elementwise_grain = 16 << 10;
/// The same for plain copies, in bytes.
inline constexpr std::int64_t copy_grain_bytes = 64 << 10;

}  // namespace lenslet

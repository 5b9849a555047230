#pragma once
// The unit of an access: elements, or as many of them as fit 16 bytes.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "base/dtypes.h"

namespace lenslet::cuda {

/// dispatch_bytes() with uint4 for 16 bytes.
template <typename F>
void dispatch_access(std::size_t bytes, const F& f) {
  if (bytes == 16)
    f(std::type_identity<uint4>());
  else
    dispatch_bytes(bytes, f);
}

/// The largest access size (at most 16 bytes) that divides both addresses and everything in `sizes`: element counts,
/// or'ed.
inline std::size_t access_bytes(std::int64_t sizes, std::size_t element_bytes, const void* from, const void* to) {
  const std::uint64_t all = static_cast<std::uint64_t>(sizes) * element_bytes | reinterpret_cast<std::uintptr_t>(from) |
                            reinterpret_cast<std::uintptr_t>(to) | 16;
  return static_cast<std::size_t>(all & (~all + 1));
}

/// The element in the low bytes of `bits`, repeated to 16 bytes.
inline uint4 repeated(std::uint64_t bits, std::size_t element_bytes) {
  for (std::size_t bytes = element_bytes; bytes < 8; bytes *= 2) {
    const std::uint64_t low = bits & ((std::uint64_t{1} << 8 * bytes) - 1);
    bits = low | low << 8 * bytes;
  }
  const auto low = static_cast<std::uint32_t>(bits), high = static_cast<std::uint32_t>(bits >> 32);
  return make_uint4(low, high, low, high);
}

}  // namespace lenslet::cuda

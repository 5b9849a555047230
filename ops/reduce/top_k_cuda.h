#pragma once
// The order of TopK, and its launcher.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "base/dtypes.h"

namespace lenslet {

using TopKTypes = Types<float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                        std::uint32_t, std::int64_t, std::uint64_t>;

/// A key of sizeof(T) bytes, smaller for what TopK takes earlier. Equal elements have equal keys, zeros of either sign
/// too; NaN has the smallest.
template <typename T>
LENSLET_HOST_DEVICE std::uint64_t top_key(T x, bool largest) {
  using Bits = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
  constexpr Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  Bits bits = 0;
  if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return 0;
    const T zero_is_positive = x == 0 ? T{0} : x;
    std::memcpy(&bits, &zero_is_positive, sizeof(bits));
    // Ascending; no number has key 0 or its complement.
    bits = (bits & sign) != 0 ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | sign);
  } else {
    bits = static_cast<Bits>(x);
    if constexpr (std::is_signed_v<T>) bits = static_cast<Bits>(bits ^ sign);
  }
  return largest ? static_cast<Bits>(~bits) : bits;
}

/// x [outer, length, inner], results [outer, k, inner]; k <= length.
struct TopKShape {
  std::int64_t outer = 1, length = 1, inner = 1, k = 1;
  bool largest = true;
};

namespace cuda {

struct Context;

/// The longest axis that the kernel supports.
inline constexpr std::int64_t max_top_k_length = (std::int64_t{1} << 31) - 1024;

/// Bytes of device memory that top_k() needs: none up to k = 2048.
std::size_t top_k_workspace_bytes(const TopKShape& shape);
/// The first k elements along the middle by top_key(), then by position; and their positions unless `positions` is
/// null. Device addresses.
void top_k(const Context& context, DType dtype, const TopKShape& shape, const void* x, void* values,
           std::int64_t* positions, std::byte* workspace);

}  // namespace cuda
}  // namespace lenslet

#pragma once
// The divider of an index type: 32 bits for kernels with less than 2^31 elements, else 64.

#include <cstdint>
#include <type_traits>

#include "base/cuda/fast_divider.h"

namespace lenslet::cuda {

/// FastDivider's interface with 64-bit indices: a plain division, for tensors of 2^31 elements and more.
class WideDivider {
 public:
  WideDivider() = default;
  explicit WideDivider(std::uint64_t by) : divisor_(by) {}
  LENSLET_HOST_DEVICE std::uint64_t divide(std::uint64_t n) const { return n / divisor_; }
  LENSLET_HOST_DEVICE std::uint64_t divisor() const { return divisor_; }

 private:
  std::uint64_t divisor_ = 1;
};

/// Index is std::uint32_t or std::uint64_t.
template <typename Index>
using DividerOf = std::conditional_t<sizeof(Index) == 4, FastDivider, WideDivider>;

}  // namespace lenslet::cuda

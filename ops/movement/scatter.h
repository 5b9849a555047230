#pragma once
// How ScatterElements and ScatterND combine an element and an update.

#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"

namespace lenslet {

enum class ScatterKind : std::uint8_t { none, add, mul, max, min };

/// Integers wrap; max and min with a NaN are NaN.
template <typename T>
LENSLET_HOST_DEVICE T scattered(ScatterKind kind, T y, T update) {
  switch (kind) {
    case ScatterKind::add:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::uint64_t>(y) + static_cast<std::uint64_t>(update));
      else
        return y + update;
    case ScatterKind::mul:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::uint64_t>(y) * static_cast<std::uint64_t>(update));
      else
        return y * update;
    case ScatterKind::max:
      return y < update || update != update ? update : y;
    case ScatterKind::min:
      return y > update || update != update ? update : y;
    case ScatterKind::none:
      break;
  }
  return update;
}

}  // namespace lenslet

#pragma once
// Functions of the comparison and boolean operators and of Where, on the host and on the device.

#include <cstdint>

#include "base/cuda/host_device.h"

namespace lenslet {

/// l for logical: of booleans, that is of bytes where everything but 0 is true. lnot has one operand, given twice.
enum class LogicKind : std::uint8_t { equal, less, less_or_equal, greater, greater_or_equal, land, lor, lxor, lnot };

/// a KIND b, as 0 or 1.
template <typename T>
struct Logic {
  LogicKind kind;
  LENSLET_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return is_true(a, b) ? 1 : 0; }
  LENSLET_HOST_DEVICE bool is_true(T a, T b) const {
    switch (kind) {
      case LogicKind::equal:
        return a == b;
      case LogicKind::less:
        return a < b;
      case LogicKind::less_or_equal:
        return a <= b;
      case LogicKind::greater:
        return a > b;
      case LogicKind::greater_or_equal:
        return a >= b;
      case LogicKind::land:
        return a != 0 && b != 0;
      case LogicKind::lor:
        return a != 0 || b != 0;
      case LogicKind::lxor:
        return (a != 0) != (b != 0);
      case LogicKind::lnot:
        return a == 0;
    }
    return false;
  }
};

/// One of two elements, of which only the size matters.
template <typename T>
struct Select {
  LENSLET_HOST_DEVICE T operator()(std::uint8_t condition, T a, T b) const { return condition != 0 ? a : b; }
};

}  // namespace lenslet

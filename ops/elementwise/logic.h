#pragma once
// Comparisons and boolean operators, one row each (a new one: a row here and its definition in oracle/elementwise.cpp),
// and Where's function; for host and device.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "ops/elementwise/types.h"

/// KIND(operator, first version read, inputs, element types, function): of two numbers a and b, or of one passed twice.
/// A boolean is a byte, true if nonzero: files may contain bytes other than 0 and 1.
#define LENSLET_LOGIC_KINDS(KIND)                    \
  KIND(Equal, 7, 2, EqualTypes, a == b)              \
  KIND(Less, 7, 2, NumberTypes, a < b)               \
  KIND(LessOrEqual, 12, 2, NumberTypes, a <= b)      \
  KIND(Greater, 7, 2, NumberTypes, a > b)            \
  KIND(GreaterOrEqual, 12, 2, NumberTypes, a >= b)   \
  KIND(And, 7, 2, Types<bool>, a != 0 && b != 0)     \
  KIND(Or, 7, 2, Types<bool>, !(a == 0 && b == 0))   \
  KIND(Xor, 7, 2, Types<bool>, (a != 0) != (b != 0)) \
  KIND(Not, 1, 1, Types<bool>, a == 0)               \
  KIND(IsNaN, 9, 1, RealTypes, a != a)
/// Variants that IsInf's attributes choose; the name is the kind's only.
#define LENSLET_LOGIC_VARIANTS(KIND)                        \
  KIND(IsInf, 10, 1, RealTypes, is_infinite(a))             \
  KIND(IsPositiveInf, 10, 1, RealTypes, infinity_of(a) > 0) \
  KIND(IsNegativeInf, 10, 1, RealTypes, infinity_of(a) < 0) \
  KIND(IsNoInf, 10, 1, RealTypes, false)

namespace lenslet {

#define LENSLET_NAME(NAME, ...) NAME,
enum class LogicKind : std::uint8_t { LENSLET_LOGIC_KINDS(LENSLET_NAME) LENSLET_LOGIC_VARIANTS(LENSLET_NAME) };
#undef LENSLET_NAME

/// The device's kernel dispatches NumberTypes, and booleans as u8.
#define LENSLET_CHECK(NAME, VERSION, INPUTS, TYPES, ...)                          \
  static_assert(dtypes<NumberTypes>.with(DType::boolean).contains(dtypes<TYPES>), \
                "types that CUDA does not dispatch: " #NAME);
LENSLET_LOGIC_KINDS(LENSLET_CHECK)
LENSLET_LOGIC_VARIANTS(LENSLET_CHECK)
#undef LENSLET_CHECK

/// 1 for infinity, -1 for minus infinity, else 0.
template <typename T>
LENSLET_HOST_DEVICE int infinity_of(T a) {
  if constexpr (std::is_floating_point_v<T>)
    return (a == static_cast<T>(INFINITY) ? 1 : 0) - (a == static_cast<T>(-INFINITY) ? 1 : 0);
  return 0;
}

/// Either infinity: one comparison.
template <typename T>
LENSLET_HOST_DEVICE bool is_infinite(T a) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(a) == static_cast<T>(INFINITY);
  return false;
}

/// a KIND b, as 0 or 1.
template <typename T>
struct Logic {
  LogicKind kind;
  LENSLET_HOST_DEVICE std::uint8_t operator()(T a, T b) const { return is_true(a, b) ? 1 : 0; }
  LENSLET_HOST_DEVICE bool is_true(T a, [[maybe_unused]] T b) const {
    switch (kind) {
#define LENSLET_CASE(NAME, VERSION, INPUTS, TYPES, ...) \
  case LogicKind::NAME:                                 \
    return __VA_ARGS__;
      LENSLET_LOGIC_KINDS(LENSLET_CASE)
      LENSLET_LOGIC_VARIANTS(LENSLET_CASE)
#undef LENSLET_CASE
    }
    return false;
  }
};

/// The same with a compile-time kind.
template <LogicKind kind, typename T>
struct LogicOf {
  std::uint8_t operator()(T a, T b) const { return Logic<T>{kind}(a, b); }
};

/// Calls f(LogicOf<kind, T>), T the storage type, if the operator supports the element type.
template <typename Element, typename F>
void with_logic(LogicKind kind, const F& f) {
  using T = std::conditional_t<std::is_same_v<Element, bool>, std::uint8_t, Element>;
  switch (kind) {
#define LENSLET_CASE(NAME, VERSION, INPUTS, TYPES, ...)                                               \
  case LogicKind::NAME:                                                                               \
    if constexpr (dtypes<TYPES>.contains(dtype_of<Element>::value)) f(LogicOf<LogicKind::NAME, T>()); \
    return;
    LENSLET_LOGIC_KINDS(LENSLET_CASE)
    LENSLET_LOGIC_VARIANTS(LENSLET_CASE)
#undef LENSLET_CASE
  }
}

/// Selects one of two elements by size alone.
template <typename T>
struct Select {
  LENSLET_HOST_DEVICE T operator()(std::uint8_t condition, T a, T b) const { return condition != 0 ? a : b; }
};

}  // namespace lenslet

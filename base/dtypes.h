#pragma once
// Lists of element types: one list per kernel dispatches, refuses and documents.

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/half.h"
#include "lenslet/error.h"
#include "lenslet/tensor.h"

namespace lenslet {

// Types without a C++ equivalent.
template <>
struct dtype_of<Float16> : std::integral_constant<DType, DType::f16> {};
template <>
struct dtype_of<BFloat16> : std::integral_constant<DType, DType::bf16> {};

/// Element types are numbered from 0.
inline constexpr unsigned dtype_count = static_cast<unsigned>(DType::u2) + 1;

/// A set of element types.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr bool contains(DType dtype) const { return (bits_ >> static_cast<unsigned>(dtype) & 1U) != 0; }
  constexpr bool contains(DTypeSet others) const { return (bits_ | others.bits_) == bits_; }
  constexpr DTypeSet with(DType dtype) const {
    DTypeSet more = *this;
    more.bits_ = bits_ | 1U << static_cast<unsigned>(dtype);
    return more;
  }
  constexpr DTypeSet with(DTypeSet other) const {
    other.bits_ |= bits_;
    return other;
  }
  constexpr bool all() const { return bits_ == all_bits; }
  constexpr bool empty() const { return bits_ == 0; }
  static constexpr DTypeSet any() {
    DTypeSet set;
    set.bits_ = all_bits;
    return set;
  }
  /// "float32, int64", or "any type", or "any type but float8, float4, int4, int2" for AllTypes.
  std::string str() const;

 private:
  static_assert(dtype_count < 32);
  static constexpr std::uint32_t all_bits = (1U << dtype_count) - 1;
  std::uint32_t bits_ = 0;
};

/// A list of C++ element types: float, double, f16, bf16, (u)int8_t ... (u)int64_t, bool.
template <typename... T>
struct Types {
  static constexpr DTypeSet set() {
    DTypeSet types;
    ((types = types.with(dtype_of<T>::value)), ...);
    return types;
  }
};
/// All types that are computed with: those with a C++ equivalent.
using AllTypes = Types<float, double, Float16, BFloat16, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t,
                       std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, bool>;
/// 16-bit floats: most CUDA kernels for float also accept these, compute in float and round once.
using HalfTypes = Types<Float16, BFloat16>;
template <typename... T>
Types<T..., Float16, BFloat16> and_halves(Types<T...>);
template <typename List>
using WithHalves = decltype(and_halves(List()));
/// The same of bfloat16 alone, for the CPU's kernels.
template <typename... T>
Types<T..., BFloat16> and_brain(Types<T...>);
template <typename List>
using WithBrain = decltype(and_brain(List()));
/// The types in a kernel's row: dtypes<Types<float, double>>.
template <typename List>
inline constexpr DTypeSet dtypes = List::set();
/// With bfloat16 where there is float32.
constexpr DTypeSet with_brain(DTypeSet types) { return types.contains(DType::f32) ? types.with(DType::bf16) : types; }
template <typename List, typename T>
inline constexpr bool lists = dtypes<List>.contains(dtype_of<T>::value);

/// Calls f(std::type_identity<T>()) with the T of `list` that `dtype` is: dispatch(dtype, Types<float, double>(),
/// [&]<typename T>(std::type_identity<T>) { ... }). The kernel's row has refused all other types, so these are
/// Error(internal).
template <typename First, typename... Rest, typename F>
decltype(auto) dispatch(DType dtype, Types<First, Rest...>, F&& f) {
  if (dtype == dtype_of<First>::value) return f(std::type_identity<First>());
  if constexpr (sizeof...(Rest) > 0)
    return dispatch(dtype, Types<Rest...>(), std::forward<F>(f));
  else
    throw Error(ErrorKind::internal, "a kernel was given element type " + std::string(to_string(dtype)));
}

/// Dispatches on element size alone, to an unsigned integer T: dispatch_bytes(4, [&]<typename T>(...) { ... }).
template <typename F>
decltype(auto) dispatch_bytes(std::size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(std::type_identity<std::uint8_t>());
    case 2:
      return f(std::type_identity<std::uint16_t>());
    case 4:
      return f(std::type_identity<std::uint32_t>());
    case 8:
      return f(std::type_identity<std::uint64_t>());
  }
  throw Error(ErrorKind::internal, "elements of " + std::to_string(bytes) + " bytes");
}

}  // namespace lenslet

#include "ops/elementwise/cast_cuda.h"

#include <cstring>
#include <tuple>

#include "base/convert.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/types.h"

namespace lenslet::cuda {

namespace {

/// The types with elements as large as Bits.
template <typename Bits>
using StoredAs = std::tuple_element_t<
    sizeof(Bits) == 1   ? 0
    : sizeof(Bits) == 2 ? 1
    : sizeof(Bits) == 4 ? 2
                        : 3,
    std::tuple<Types<bool, std::int8_t, std::uint8_t>, Types<Float16, BFloat16, std::int16_t, std::uint16_t>,
               Types<float, std::int32_t, std::uint32_t>, Types<double, std::int64_t, std::uint64_t>>>;

/// dispatch() on the device, for a list that contains `dtype`.
template <typename First, typename... Rest, typename F>
__device__ auto pick(DType dtype, Types<First, Rest...>, const F& f) {
  if constexpr (sizeof...(Rest) > 0)
    if (dtype != dtype_of<First>::value) return pick(dtype, Types<Rest...>(), f);
  return f(std::type_identity<First>());
}

template <typename To, typename From>
__device__ To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

/// One kernel per pair of element sizes: types are dispatched at run time, and the value passes through a double or a
/// 64-bit integer, which represent all types.
template <typename From, typename To>
struct AnyCast {
  DType from, to;
  bool from_small, to_small;  ///< a float of 8 bits or fewer; any type without a C++ one
  SmallType small_from, small_to;
  SmallRounding rounding;

  template <typename Wide>
  __device__ To narrow(Wide wide) const {
    if constexpr (sizeof(To) == 1)
      if (to_small) return convert_small(small_to, wide, rounding);
    return pick(to, StoredAs<To>(),
                [&]<typename T>(std::type_identity<T>) { return bits<To>(Convert<T, Wide>()(wide)); });
  }
  __device__ To operator()(From value) const {
    if constexpr (sizeof(From) == 1)
      if (from_small) return narrow(static_cast<double>(small_value(small_from, value)));
    return pick(from, StoredAs<From>(), [&]<typename F>(std::type_identity<F>) {
      using Whole = std::conditional_t<std::is_same_v<F, std::uint64_t>, std::uint64_t, std::int64_t>;
      using Wide = std::conditional_t<std::is_floating_point_v<F> || is_half<F>, double, Whole>;
      return narrow(Convert<Wide, F>()(bits<Stored<F>>(value)));
    });
  }
};

}  // namespace

void cast(const Context& context, DType from_type, const void* from, DType to_type, void* to, std::int64_t elems,
          SmallRounding rounding) {
  if (from_type == to_type) from_type = to_type = stored_as(to_type);
  const auto by = [&]<typename To, typename From>(const auto& f, To* y, const From* x) {
    elementwise<Kernels::flat>(context, flat_loops(elems), f, y, x);
  };
  // Dedicated kernels for the usual casts: between float and half, and from images, masks and indices to float.
  const auto pair = [&]<typename To, typename From>(const Convert<To, From>& f) {
    if (from_type != dtype_of<From>::value || to_type != dtype_of<To>::value) return false;
    by(f, static_cast<To*>(to), static_cast<const From*>(from));
    return true;
  };
  if (pair(Convert<Float16, float>()) || pair(Convert<BFloat16, float>()) || pair(Convert<float, Float16>()) ||
      pair(Convert<float, BFloat16>()) || pair(Convert<float, std::uint8_t>()) ||
      pair(Convert<float, std::int32_t>()) || pair(Convert<float, std::int64_t>()))
    return;
  dispatch_bytes(dtype_bytes(from_type), [&]<typename From>(std::type_identity<From>) {
    dispatch_bytes(dtype_bytes(to_type), [&]<typename To>(std::type_identity<To>) {
      const auto small = [](DType type) { return small_type(type) != nullptr ? *small_type(type) : SmallType(); };
      by(AnyCast<From, To>{stored_as(from_type), to_type, is_small_float(from_type), small_type(to_type) != nullptr,
                           small(from_type), small(to_type), rounding},
         static_cast<To*>(to), static_cast<const From*>(from));
    });
  });
}

}  // namespace lenslet::cuda

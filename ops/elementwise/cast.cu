#include "ops/elementwise/cast_cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "ops/elementwise/convert.cuh"
#include "ops/elementwise/elementwise.cuh"

namespace lenslet::cuda {

namespace {

// Networks convert between float and half precision, and from pictures, masks and indices to float: a kernel each.

struct HalfFromFloat {
  __device__ __half operator()(float value) const { return __float2half_rn(value); }
};
struct FloatFromHalf {
  __device__ float operator()(__half value) const { return __half2float(value); }
};
struct BrainFromFloat {
  __device__ __nv_bfloat16 operator()(float value) const { return __float2bfloat16_rn(value); }
};
struct FloatFromBrain {
  __device__ float operator()(__nv_bfloat16 value) const { return __bfloat162float(value); }
};
template <typename T>
struct FloatFrom {
  __device__ float operator()(T value) const { return static_cast<float>(value); }
};

// The other hundred pairs share a kernel for each pair of element sizes: the types are looked at when it runs, and the
// value between them is a double or a 64-bit integer, which hold everything that the types can.

template <std::size_t bytes>
struct BitsOf;
template <>
struct BitsOf<1> {
  using Type = std::uint8_t;
};
template <>
struct BitsOf<2> {
  using Type = std::uint16_t;
};
template <>
struct BitsOf<4> {
  using Type = std::uint32_t;
};
template <>
struct BitsOf<8> {
  using Type = std::uint64_t;
};

template <typename To, typename From>
__device__ To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

/// Is `dtype`, whose elements have the size of Bits, stored as a T?
template <typename T, typename Bits>
__device__ constexpr bool fits() {
  return sizeof(T) == sizeof(Bits);
}

/// `value`, a double or an std::int64_t, as the bits of a `to`.
template <typename Bits, typename V>
__device__ Bits store(DType to, V value) {
  const auto as_double = [&] { return static_cast<double>(value); };
  const auto integer = [&]<typename T>(T) {
    if constexpr (std::is_same_v<V, double>)
      return bits<Bits>(from_double<T>(value));
    else
      return bits<Bits>(static_cast<T>(value));
  };
  if constexpr (sizeof(Bits) == 1) {
    if (to == DType::boolean) return value != V{0} ? 1 : 0;
    return to == DType::i8 ? integer(std::int8_t{}) : integer(std::uint8_t{});
  } else if constexpr (sizeof(Bits) == 2) {
    if (to == DType::f16) return bits<Bits>(__double2half(as_double()));
    if (to == DType::bf16) return bits<Bits>(__double2bfloat16(as_double()));
    return to == DType::i16 ? integer(std::int16_t{}) : integer(std::uint16_t{});
  } else if constexpr (sizeof(Bits) == 4) {
    return to == DType::f32 ? bits<Bits>(static_cast<float>(value)) : integer(std::int32_t{});
  } else {
    return to == DType::f64 ? bits<Bits>(as_double()) : integer(std::int64_t{});
  }
}

template <typename From, typename To>
struct AnyCast {
  DType from, to;
  __device__ To operator()(From value) const {
    const auto real = [&](double v) { return store<To>(to, v); };
    const auto whole = [&](std::int64_t v) { return store<To>(to, v); };
    if constexpr (sizeof(From) == 1) {
      if (from == DType::boolean) return whole(value != 0 ? 1 : 0);
      return whole(from == DType::i8 ? bits<std::int8_t>(value) : std::int64_t{value});
    } else if constexpr (sizeof(From) == 2) {
      if (from == DType::f16) return real(static_cast<double>(__half2float(bits<__half>(value))));
      if (from == DType::bf16) return real(static_cast<double>(__bfloat162float(bits<__nv_bfloat16>(value))));
      return whole(from == DType::i16 ? bits<std::int16_t>(value) : std::int64_t{value});
    } else if constexpr (sizeof(From) == 4) {
      if (from == DType::f32) return real(static_cast<double>(bits<float>(value)));
      return whole(bits<std::int32_t>(value));
    } else {
      if (from == DType::f64) return real(bits<double>(value));
      return whole(bits<std::int64_t>(value));
    }
  }
};

template <typename F>
void with_bits(DType dtype, const F& f) {
  switch (dtype_bytes(dtype)) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

}  // namespace

void cast(const Context& context, const Tensor& from, Tensor& to) {
  const auto by = [&]<typename F, typename From, typename To>(const F& f, From, To) {
    elementwise<Kernels::flat>(context, f, Out<To>{to}, In<From>{from});
  };
  const DType in = from.dtype(), out = to.dtype();
  if (in == DType::f32 && out == DType::f16) return by(HalfFromFloat{}, float{}, __half{});
  if (in == DType::f32 && out == DType::bf16) return by(BrainFromFloat{}, float{}, __nv_bfloat16{});
  if (out == DType::f32) {
    if (in == DType::f16) return by(FloatFromHalf{}, __half{}, float{});
    if (in == DType::bf16) return by(FloatFromBrain{}, __nv_bfloat16{}, float{});
    if (in == DType::u8) return by(FloatFrom<std::uint8_t>{}, std::uint8_t{}, float{});
    if (in == DType::i32) return by(FloatFrom<std::int32_t>{}, std::int32_t{}, float{});
    if (in == DType::i64) return by(FloatFrom<std::int64_t>{}, std::int64_t{}, float{});
  }
  with_bits(in, [&]<typename From>(From) {
    with_bits(out, [&]<typename To>(To) { by(AnyCast<From, To>{in, out}, From{}, To{}); });
  });
}

}  // namespace lenslet::cuda

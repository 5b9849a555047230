#include "ops/elementwise/binary_cuda.h"

#include <type_traits>

#include "ops/elementwise/convert.cuh"
#include "ops/elementwise/elementwise.cuh"

namespace lenslet::cuda {

namespace {

/// Integers wrap around as two's complement does: computed unsigned, where overflow is defined.
template <typename T>
__device__ T compute(BinaryKind kind, T a, T b) {
  using U = std::uint64_t;
  constexpr bool whole = std::is_integral_v<T>;
  switch (kind) {
    case BinaryKind::add:
      if constexpr (whole) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      return a + b;
    case BinaryKind::sub:
      if constexpr (whole) return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
      return a - b;
    case BinaryKind::mul:
      if constexpr (whole) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      return a * b;
    case BinaryKind::div:
      if constexpr (whole) {
        if (b == 0) return 0;
        // The least integer divided by -1 wraps around to itself.
        if constexpr (std::is_signed_v<T>)
          if (b == -1) return static_cast<T>(U{0} - static_cast<U>(a));
      }
      return static_cast<T>(a / b);
    case BinaryKind::max:
      return b != b || b > a ? b : a;
    case BinaryKind::min:
      return b != b || b < a ? b : a;
    case BinaryKind::prelu:
      if constexpr (std::is_floating_point_v<T>) return a < 0 ? a * b : a;
      break;
    case BinaryKind::pow:
      break;
  }
  return a;
}

/// One kernel a kind for f32: the switch is gone when it is compiled.
template <BinaryKind kind>
struct BinaryF32 {
  __device__ float operator()(float a, float b) const { return compute(kind, a, b); }
};

/// One kernel a type for the rest.
template <typename T>
struct Binary {
  BinaryKind kind;
  __device__ T operator()(T a, T b) const { return compute(kind, a, b); }
};

template <typename T>
struct AddAndDivide {
  T count;
  __device__ T operator()(T a, T b) const { return (a + b) / count; }
};

template <BinaryKind... kinds>
void binary_f32(const Context& context, BinaryKind kind, const Tensor& a, const Tensor& b, Tensor& y) {
  const auto run = [&]<BinaryKind k>(BinaryF32<k> f) {
    if (kind == k) elementwise<Kernels::both>(context, f, Out<float>{y}, In<float>{a}, In<float>{b});
  };
  (run(BinaryF32<kinds>{}), ...);
}

/// powf is only good to 4 units of the last place. Not inlined: it is long, and each thread calls it 12 times.
__device__ __noinline__ double power(double base, double exponent) { return ::pow(base, exponent); }

/// By squaring, wrapping around; a negative exponent leaves 1/base^n truncated.
template <typename T>
__device__ T whole_power(T base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    return base == -1 ? static_cast<T>(exponent % 2 == 0 ? 1 : -1) : T{0};
  }
  std::uint64_t result = 1, square = static_cast<std::uint64_t>(base);
  for (; exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<T>(result);
}

template <typename T, typename E>
struct Pow {
  __device__ T operator()(T base, E exponent) const {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<E>)
      return whole_power(base, static_cast<std::int64_t>(exponent));
    else
      return from_double<T>(power(static_cast<double>(base), static_cast<double>(exponent)));
  }
};

template <typename T>
void pow_of(const Context& context, const Tensor& a, const Tensor& b, Tensor& y) {
  const auto with = [&]<typename E>(E) {
    elementwise<Kernels::any>(context, Pow<T, E>{}, Out<T>{y}, In<T>{a}, In<E>{b});
  };
  switch (b.dtype()) {
    case DType::f64:
      return with(double{});
    case DType::i32:
      return with(std::int32_t{});
    case DType::i64:
      return with(std::int64_t{});
    default:
      return with(float{});
  }
}

}  // namespace

void binary(const Context& context, BinaryKind kind, const Tensor& a, const Tensor& b, Tensor& y) {
  const auto of = [&]<typename T>(T) {
    elementwise<Kernels::any>(context, Binary<T>{kind}, Out<T>{y}, In<T>{a}, In<T>{b});
  };
  switch (y.dtype()) {
    case DType::f64:
      return of(double{});
    case DType::i8:
      return of(std::int8_t{});
    case DType::u8:
      return of(std::uint8_t{});
    case DType::i16:
      return of(std::int16_t{});
    case DType::u16:
      return of(std::uint16_t{});
    case DType::i32:
      return of(std::int32_t{});
    case DType::i64:
      return of(std::int64_t{});
    default: {
      using enum BinaryKind;
      return binary_f32<add, sub, mul, div, max, min, prelu>(context, kind, a, b, y);
    }
  }
}

void add_and_divide(const Context& context, const Tensor& a, const Tensor& b, int count, Tensor& y) {
  const auto of = [&]<typename T>(T divisor) {
    elementwise<Kernels::any>(context, AddAndDivide<T>{divisor}, Out<T>{y}, In<T>{a}, In<T>{b});
  };
  if (y.dtype() == DType::f64) return of(static_cast<double>(count));
  of(static_cast<float>(count));
}

void pow(const Context& context, const Tensor& a, const Tensor& b, Tensor& y) {
  switch (y.dtype()) {
    case DType::f64:
      return pow_of<double>(context, a, b, y);
    case DType::i32:
      return pow_of<std::int32_t>(context, a, b, y);
    case DType::i64:
      return pow_of<std::int64_t>(context, a, b, y);
    default:
      return pow_of<float>(context, a, b, y);
  }
}

}  // namespace lenslet::cuda

#include "ops/elementwise/binary_cuda.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet::cuda {

namespace {

template <typename T>
struct AddAndDivide {
  T count;
  __device__ T operator()(T a, T b) const { return (a + b) / count; }
};

// Integers: division by 0 is reported to context.fault.
template <typename T>
struct Checked {
  Binary<T> f;
  int* fault;
  __device__ T operator()(T a, T b) const {
    if (fault != nullptr && b == 0) {
      *fault = 1;
      return T();
    }
    return f(a, b);
  }
};
template <typename T, typename E>
struct CheckedPow {
  int* fault;
  __device__ T operator()(T base, E exponent) const {
    if (fault != nullptr && base == 0 && exponent < 0) {
      *fault = 1;
      return T();
    }
    return Pow<T, E>{}(base, exponent);
  }
};

struct SwiGlu {
  Unary<UnaryKind::Swish, float> swish;
  __device__ float operator()(float a, float b) const { return swish(a) * b; }
};

}  // namespace

void swiglu(const Context& context, float alpha, DType dtype, const void* a, const void* b, std::int64_t elems,
            void* y) {
  const Shape line{elems};
  const BroadcastLoops::Operand operands[] = {{&line}, {&line}, {&line}};
  dispatch(dtype, WithHalves<FloatTypes>(), [&]<typename T>(std::type_identity<T>) {
    const auto run = [&](const auto& f) {
      elementwise<Kernels::flat>(context, {line, formats::nchw, operands}, f, static_cast<T*>(y),
                                 static_cast<const T*>(a), static_cast<const T*>(b));
    };
    const SwiGlu f{{alpha, 0}};
    if constexpr (is_half<T>)
      run(OfHalves<T, SwiGlu>{f});
    else
      run(f);
  });
}

void binary(const Context& context, BinaryKind kind, DType dtype, const BroadcastLoops& loops, const void* a,
            const void* b, void* y) {
  dispatch(dtype, WithHalves<BinaryTypes>(), [&]<typename T>(std::type_identity<T>) {
    const auto *from_a = static_cast<const T*>(a), *from_b = static_cast<const T*>(b);
    auto* to = static_cast<T*>(y);
    // One kernel per kind for floats up to 32 bits, without a switch; one per type for the others.
    if constexpr (std::is_same_v<T, float>)
      with_binary<float>(kind,
                         [&](const auto& f) { elementwise<Kernels::both>(context, loops, f, to, from_a, from_b); });
    else if constexpr (is_half<T>)
      with_binary<float>(kind, [&]<BinaryKind of>(const BinaryOf<of, float>& f) {
        constexpr bool fast = of != BinaryKind::Mod && of != BinaryKind::Fmod;
        elementwise<fast ? Kernels::both : Kernels::any>(context, loops, OfHalves<T, BinaryOf<of, float>>{f}, to,
                                                         from_a, from_b);
      });
    else if constexpr (std::is_integral_v<T>)
      elementwise<Kernels::any>(context, loops, Checked<T>{{kind}, context.fault}, to, from_a, from_b);
    else
      elementwise<Kernels::any>(context, loops, Binary<T>{kind}, to, from_a, from_b);
  });
}

void add_and_divide(const Context& context, int count, DType dtype, const BroadcastLoops& loops, const void* a,
                    const void* b, void* y) {
  dispatch(dtype, WithHalves<RealTypes>(), [&]<typename T>(std::type_identity<T>) {
    const auto run = [&](const auto& f) {
      elementwise<Kernels::any>(context, loops, f, static_cast<T*>(y), static_cast<const T*>(a),
                                static_cast<const T*>(b));
    };
    if constexpr (is_half<T>)
      run(OfHalves<T, AddAndDivide<float>>{{static_cast<float>(count)}});
    else
      run(AddAndDivide<T>{static_cast<T>(count)});
  });
}

void pow(const Context& context, DType base, DType exponent, const BroadcastLoops& loops, const void* a, const void* b,
         void* y) {
  if (base == DType::f16 || base == DType::bf16)
    return dispatch(base, HalfTypes(), [&]<typename T>(std::type_identity<T>) {
      elementwise<Kernels::any>(context, loops, OfHalves<T, Pow<float, float>>{}, static_cast<T*>(y),
                                static_cast<const T*>(a), static_cast<const T*>(b));
    });
  dispatch(base, PowTypes(), [&]<typename T>(std::type_identity<T>) {
    dispatch(exponent, ExponentTypes(), [&]<typename E>(std::type_identity<E>) {
      const auto run = [&](const auto& f) {
        elementwise<Kernels::any>(context, loops, f, static_cast<T*>(y), static_cast<const T*>(a),
                                  static_cast<const E*>(b));
      };
      if constexpr (std::is_integral_v<T> && std::is_integral_v<E> && std::is_signed_v<E>)
        run(CheckedPow<T, E>{context.fault});
      else
        run(Pow<T, E>{});
    });
  });
}

}  // namespace lenslet::cuda

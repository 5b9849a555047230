#include "ops/elementwise/unary_cuda.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "ops/core/activation.cuh"
#include "ops/core/exp_cuda.h"
#include "ops/elementwise/elementwise.cuh"

namespace lenslet::cuda {

namespace {

/// One kernel a kind: the switch is gone when it is compiled.
template <UnaryKind kind>
struct UnaryF32 {
  float alpha, beta;
  __device__ float operator()(float x) const {
    switch (kind) {
      case UnaryKind::identity:
        return x;
      case UnaryKind::relu:
        return apply_activation(Activation::Kind::relu, alpha, beta, x);
      case UnaryKind::leaky_relu:
        return apply_activation(Activation::Kind::leaky_relu, alpha, beta, x);
      case UnaryKind::clip:
        return apply_activation(Activation::Kind::clip, alpha, beta, x);
      case UnaryKind::sigmoid:
        return apply_activation(Activation::Kind::sigmoid, alpha, beta, x);
      case UnaryKind::silu:
        return apply_activation(Activation::Kind::silu, alpha, beta, x);
      case UnaryKind::hard_sigmoid:
        return apply_activation(Activation::Kind::hard_sigmoid, alpha, beta, x);
      case UnaryKind::hard_swish:
        return apply_activation(Activation::Kind::hard_swish, alpha, beta, x);
      case UnaryKind::tanh:
        return tanhf(x);
      case UnaryKind::elu:
        return x < 0 ? alpha * expm1f(x) : x;
      case UnaryKind::selu:
        return beta * (x < 0 ? alpha * expm1f(x) : x);
      case UnaryKind::softplus:
        return fmaxf(x, 0) + log1pf(exp_f32(-fabsf(x)));  // the second term is NaN when x is
      case UnaryKind::mish: {
        // tanh(log(1 + w)) = (w^2 + 2w) / (w^2 + 2w + 2) with w = exp(x); beyond 20 the quotient is 1 in float.
        const float w = exp_f32(fminf(x, 20));
        const float t = w * (w + 2);
        return x * (t / (t + 2));
      }
      case UnaryKind::abs:
        return fabsf(x);
      case UnaryKind::neg:
        return -x;
      case UnaryKind::exp:
        return exp_f32(x);
      case UnaryKind::log:
        return logf(x);
      case UnaryKind::sqrt:
        return sqrtf(x);
      case UnaryKind::reciprocal:
        return 1 / x;
      case UnaryKind::floor:
        return floorf(x);
      case UnaryKind::ceil:
        return ceilf(x);
      case UnaryKind::erf:
        return erff(x);
    }
    return x;
  }
};

template <int... kinds>
void unary_f32(const Context& context, const UnaryFunction& f, const Tensor& x, Tensor& y,
               std::integer_sequence<int, kinds...>) {
  const auto run = [&]<UnaryKind kind>(UnaryF32<kind> function) {
    if (f.kind == kind) elementwise<Kernels::flat>(context, function, Out<float>{y}, In<float>{x});
  };
  (run(UnaryF32<static_cast<UnaryKind>(kinds)>{f.alpha, f.beta}), ...);
}

/// abs, neg and relu. The least integer has no negative: it stays itself.
template <typename T>
struct UnaryPlain {
  UnaryKind kind;
  __device__ static T negative(T x) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(x));
    else
      return -x;
  }
  __device__ T operator()(T x) const {
    switch (kind) {
      case UnaryKind::neg:
        return negative(x);
      case UnaryKind::abs:
        return x < 0 ? negative(x) : x;
      default:
        return x < 0 ? T{0} : x;
    }
  }
};

template <typename T>
struct ClipTo {
  const T *low_at, *high_at;  // on the device; null: the number counts
  T low, high;
  __device__ T operator()(T x) const {
    const T least = low_at != nullptr ? *low_at : low;
    const T most = high_at != nullptr ? *high_at : high;
    const T raised = x < least ? least : x;
    return most < raised ? most : raised;
  }
};

template <typename T>
void clip_of(const Context& context, const ClipBounds& bounds, const Tensor& x, Tensor& y) {
  using Limits = std::numeric_limits<T>;
  ClipTo<T> f{nullptr, nullptr, Limits::lowest(), Limits::max()};
  if constexpr (std::is_same_v<T, float>) {
    f.low = bounds.min.value_or(-Limits::infinity());
    f.high = bounds.max.value_or(Limits::infinity());
  }
  const auto bind = [](const Tensor& host, const Tensor& device, T& number, const T*& at) {
    if (!host.empty())
      number = *static_cast<const T*>(host.data());
    else if (!device.empty())
      at = static_cast<const T*>(device.data());
  };
  bind(bounds.host_low, bounds.low, f.low, f.low_at);
  bind(bounds.host_high, bounds.high, f.high, f.high_at);
  elementwise<Kernels::flat>(context, f, Out<T>{y}, In<T>{x});
}

}  // namespace

void unary(const Context& context, const UnaryFunction& f, const Tensor& x, Tensor& y) {
  const auto plain = [&]<typename T>(T) {
    elementwise<Kernels::flat>(context, UnaryPlain<T>{f.kind}, Out<T>{y}, In<T>{x});
  };
  switch (x.dtype()) {
    case DType::f64:
      return plain(double{});
    case DType::i8:
      return plain(std::int8_t{});
    case DType::i16:
      return plain(std::int16_t{});
    case DType::i32:
      return plain(std::int32_t{});
    case DType::i64:
      return plain(std::int64_t{});
    default:
      return unary_f32(context, f, x, y, std::make_integer_sequence<int, static_cast<int>(UnaryKind::erf) + 1>());
  }
}

void clip(const Context& context, const ClipBounds& bounds, const Tensor& x, Tensor& y) {
  switch (x.dtype()) {
    case DType::f64:
      return clip_of<double>(context, bounds, x, y);
    case DType::i8:
      return clip_of<std::int8_t>(context, bounds, x, y);
    case DType::u8:
      return clip_of<std::uint8_t>(context, bounds, x, y);
    case DType::i16:
      return clip_of<std::int16_t>(context, bounds, x, y);
    case DType::u16:
      return clip_of<std::uint16_t>(context, bounds, x, y);
    case DType::i32:
      return clip_of<std::int32_t>(context, bounds, x, y);
    case DType::i64:
      return clip_of<std::int64_t>(context, bounds, x, y);
    default:
      return clip_of<float>(context, bounds, x, y);
  }
}

}  // namespace lenslet::cuda

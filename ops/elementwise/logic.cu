#include "ops/elementwise/logic_cuda.h"

#include "ops/elementwise/elementwise.cuh"

namespace lenslet::cuda {

namespace {

template <typename T>
struct Logic {
  LogicKind kind;
  __device__ std::uint8_t operator()(T a, T b) const { return is_true(a, b) ? 1 : 0; }
  __device__ bool is_true(T a, T b) const {
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

template <typename T>
struct Select {
  __device__ T operator()(std::uint8_t condition, T a, T b) const { return condition != 0 ? a : b; }
};

}  // namespace

void logic(const Context& context, LogicKind kind, const Tensor& a, const Tensor& b, Tensor& y) {
  const auto of = [&]<typename T>(T) {
    elementwise<Kernels::any>(context, Logic<T>{kind}, Out<std::uint8_t>{y}, In<T>{a}, In<T>{b});
  };
  switch (a.dtype()) {
    case DType::f32:
      return of(float{});
    case DType::f64:
      return of(double{});
    case DType::i8:
      return of(std::int8_t{});
    case DType::i32:
      return of(std::int32_t{});
    case DType::i64:
      return of(std::int64_t{});
    default:
      return of(std::uint8_t{});
  }
}

void where(const Context& context, const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) {
  // Only the size of an element matters.
  const auto of = [&]<typename T>(T) {
    constexpr Kernels kernels = sizeof(T) == 4 ? Kernels::both : Kernels::any;
    elementwise<kernels>(context, Select<T>{}, Out<T>{y}, In<std::uint8_t>{condition}, In<T>{a}, In<T>{b});
  };
  switch (dtype_bytes(y.dtype())) {
    case 1:
      return of(std::uint8_t{});
    case 2:
      return of(std::uint16_t{});
    case 4:
      return of(std::uint32_t{});
    default:
      return of(std::uint64_t{});
  }
}

}  // namespace lenslet::cuda

#include "ops/elementwise/clip.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_cuda.h"

namespace lenslet::cuda {

namespace {

template <typename T>
struct ClipToBounds {
  const T *low_at, *high_at;  // on the device; null: the number counts
  T low, high;
  __device__ T operator()(T x) const {
    return ClipTo<T>{low_at != nullptr ? *low_at : low, high_at != nullptr ? *high_at : high}(x);
  }
};

}  // namespace

void unary(const Context& context, const UnaryFunction& f, DType dtype, const void* x, void* y, std::int64_t elems) {
  dispatch(dtype, UnaryTypes(), [&]<typename T>(std::type_identity<T>) {
    with_unary<T>(f, [&](const auto& function) {
      elementwise<Kernels::flat>(context, flat_loops(elems), function, static_cast<T*>(y), static_cast<const T*>(x));
    });
  });
}

void clip(const Context& context, const ClipBound& low, const ClipBound& high, DType dtype, const void* x, void* y,
          std::int64_t elems) {
  dispatch(dtype, NumberTypes(), [&]<typename T>(std::type_identity<T>) {
    const auto of = [](const void* data) { return static_cast<const T*>(data); };
    const ClipToBounds<T> f{of(low.at), of(high.at), *of(low.number), *of(high.number)};
    elementwise<Kernels::flat>(context, flat_loops(elems), f, static_cast<T*>(y), of(x));
  });
}

}  // namespace lenslet::cuda

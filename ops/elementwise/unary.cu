#include "ops/elementwise/clip.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/half_math.cuh"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_cuda.h"

namespace lenslet::cuda {

namespace {

/// Elements T, computed as numbers N.
template <typename T, typename N>
struct ClipToBounds {
  const T *low_at, *high_at;  // on the device; null: the number counts
  N low, high;
  __device__ T operator()(T x) const {
    return convert<T>(ClipTo<N>{low_at != nullptr ? convert<N>(*low_at) : low,
                                high_at != nullptr ? convert<N>(*high_at) : high}(convert<N>(x)));
  }
};

}  // namespace

void unary(const Context& context, const UnaryFunction& f, DType dtype, const void* x, void* y, std::int64_t elems) {
  dispatch(dtype, WithHalves<UnaryTypes>(), [&]<typename T>(std::type_identity<T>) {
    const auto run = [&](const auto& function) {
      elementwise<Kernels::flat>(context, flat_loops(elems), function, static_cast<T*>(y), static_cast<const T*>(x));
    };
    if constexpr (is_half<T>)
      with_unary<float>(f, [&]<UnaryKind kind>(const Unary<kind, float>& function) {
        run(OfHalves<T, HalfUnary<kind>>{{function.a, function.b}});
      });
    else
      with_unary<T>(f, run);
  });
}

void clip(const Context& context, const ClipBound& low, const ClipBound& high, DType dtype, const void* x, void* y,
          std::int64_t elems) {
  dispatch(dtype, WithHalves<NumberTypes>(), [&]<typename T>(std::type_identity<T>) {
    using N = std::conditional_t<is_half<T>, float, T>;
    const auto of = [](const void* data) { return static_cast<const T*>(data); };
    const auto number = [](const void* data) { return *static_cast<const N*>(data); };
    const ClipToBounds<T, N> f{of(low.at), of(high.at), number(low.number), number(high.number)};
    elementwise<Kernels::flat>(context, flat_loops(elems), f, static_cast<T*>(y), of(x));
  });
}

}  // namespace lenslet::cuda

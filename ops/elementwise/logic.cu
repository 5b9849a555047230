#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/logic_cuda.h"
#include "ops/elementwise/types.h"

namespace lenslet::cuda {

void logic(const Context& context, LogicKind kind, DType dtype, const BroadcastLoops& loops, const void* a,
           const void* b, void* y) {
  dispatch(dtype, NumberTypes(), [&]<typename T>(std::type_identity<T>) {
    elementwise<Kernels::any>(context, loops, Logic<T>{kind}, static_cast<std::uint8_t*>(y), static_cast<const T*>(a),
                              static_cast<const T*>(b));
  });
}

void where(const Context& context, std::size_t element_bytes, const BroadcastLoops& loops, const void* condition,
           const void* a, const void* b, void* y) {
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    constexpr Kernels kernels = sizeof(T) == 4 || sizeof(T) == 2 ? Kernels::both : Kernels::any;
    elementwise<kernels>(context, loops, Select<T>{}, static_cast<T*>(y), static_cast<const std::uint8_t*>(condition),
                         static_cast<const T*>(a), static_cast<const T*>(b));
  });
}

}  // namespace lenslet::cuda

#include "base/cuda/launch.h"
#include "ops/gemm/einsum.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

template <typename T>
struct Operands {
  const T* x[EinsumWalk::most_operands];
};

template <typename T>
__global__ void __launch_bounds__(threads)
    sum_products(const __grid_constant__ EinsumWalk walk, Operands<T> operands, T* y) {
  wait_for_previous();
  const std::int64_t item = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (item < walk.elems) y[item] = walk.element<T>(item, operands.x);
}

}  // namespace

void einsum(const Context& context, const EinsumWalk& walk, DType dtype,
            const void* const (&inputs)[EinsumWalk::most_operands], void* y) {
  if (walk.elems == 0) return;
  dispatch(dtype, EinsumTypes(), [&]<typename T>(std::type_identity<T>) {
    Operands<T> operands{};
    for (int o = 0; o < EinsumWalk::most_operands; ++o) operands.x[o] = static_cast<const T*>(inputs[o]);
    launch(context, sum_products<T>, blocks_for(walk.elems, threads), threads, 0, walk, operands, static_cast<T*>(y));
  });
}

}  // namespace lenslet::cuda

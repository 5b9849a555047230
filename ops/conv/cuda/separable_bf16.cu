// The kernels of separable for bf16.

#include "ops/conv/cuda/separable.cuh"

namespace lenslet::cuda {

SeparableFunction separable_of_bf16(std::int64_t stride, const SeparableTiling& tiling) {
  return stride == 1 ? separable_function<BFloat16, 1>(tiling) : separable_function<BFloat16, 2>(tiling);
}

}  // namespace lenslet::cuda

// The kernels of separable for bf16.

#include "ops/conv/cuda/separable.cuh"

namespace lenslet::cuda {

SeparableFunction separable_of_bf16(std::int64_t stride, const SeparableCut& cut) {
  return stride == 1 ? separable_function<BFloat16, 1>(cut) : separable_function<BFloat16, 2>(cut);
}

}  // namespace lenslet::cuda

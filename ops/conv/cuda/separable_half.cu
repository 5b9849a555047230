// The kernels of separable for fp16.

#include "ops/conv/cuda/separable.cuh"

namespace lenslet::cuda {

SeparableFunction separable_of_fp16(std::int64_t stride, const SeparableTiling& tiling) {
  return stride == 1 ? separable_function<Float16, 1>(tiling) : separable_function<Float16, 2>(tiling);
}

}  // namespace lenslet::cuda

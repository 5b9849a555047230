// The kernels of separable for float32, whose 1x1 half is multiplied in TF32.

#include "ops/conv/cuda/separable.cuh"

namespace lenslet::cuda {

SeparableFunction separable_of_tf32(std::int64_t stride, const SeparableTiling& tiling) {
  return stride == 1 ? separable_function<float, 1>(tiling) : separable_function<float, 2>(tiling);
}

}  // namespace lenslet::cuda

#pragma once
// Launchers of elementwise kernels. The stream comes last; nothing is synchronised.

#include <cuda_runtime.h>

#include <cstdint>

namespace lenslet::cuda {

/// y[i] = min(max(x[i] * scale, low), high) for i in [0, count): Relu is (1, 0, infinity), Clip is (1, low, high). NaN
/// stays NaN. x and y are device pointers aligned to 4 bytes; y may be x, but must not overlap it otherwise.
void clip_scale(const float* x, float* y, std::int64_t count, float scale, float low, float high, cudaStream_t stream);

}  // namespace lenslet::cuda

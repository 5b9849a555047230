#include <cassert>
#include <cstdint>

#include "runtime/base/cuda/check.h"
#include "runtime/base/cuda/elementwise.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
/// 16-byte loads a thread has in flight before it stores: enough outstanding bytes to cover the memory's latency.
constexpr int unroll = 4;
constexpr std::int64_t quads_per_block = threads * unroll;

struct ClipScale {
  float scale, low, high;
  /// Comparisons, not fminf/fmaxf: those would turn NaN into a number.
  __device__ float operator()(float x) const {
    const float scaled = x * scale;
    const float above = scaled < low ? low : scaled;
    return above > high ? high : above;
  }
  __device__ float4 operator()(float4 v) const {
    return make_float4((*this)(v.x), (*this)(v.y), (*this)(v.z), (*this)(v.w));
  }
};

/// x + head and y + head are 16-byte aligned, `quads` float4 follow, then fewer than 4 floats up to `count`. The last
/// block, which has no quads of its own, does head and tail. Each thread loads only what it stores itself, so y may be
/// x.
__global__ void __launch_bounds__(threads)
    clip_scale_aligned(const float* x, float* y, int head, std::int64_t quads, std::int64_t count, ClipScale f) {
  const int thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x + 1 == gridDim.x) {
    const std::int64_t tail = head + 4 * quads;
    if (thread < head) y[thread] = f(x[thread]);
    if (tail + thread < count) y[tail + thread] = f(x[tail + thread]);
    return;
  }
  const auto* from = reinterpret_cast<const float4*>(x + head);
  auto* to = reinterpret_cast<float4*>(y + head);
  const std::int64_t first = blockIdx.x * quads_per_block + thread;
  float4 values[unroll];
#pragma unroll
  for (int i = 0; i < unroll; ++i)
    if (first + i * threads < quads) values[i] = from[first + i * threads];
#pragma unroll
  for (int i = 0; i < unroll; ++i)
    if (first + i * threads < quads) to[first + i * threads] = f(values[i]);
}

/// For x and y that cannot both be 16-byte aligned at one index.
__global__ void __launch_bounds__(threads)
    clip_scale_scalar(const float* x, float* y, std::int64_t count, ClipScale f) {
  const std::int64_t first = blockIdx.x * quads_per_block + threadIdx.x;
  float values[unroll];
#pragma unroll
  for (int i = 0; i < unroll; ++i)
    if (first + i * threads < count) values[i] = x[first + i * threads];
#pragma unroll
  for (int i = 0; i < unroll; ++i)
    if (first + i * threads < count) y[first + i * threads] = f(values[i]);
}

std::uintptr_t misalignment(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16; }

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>((items + quads_per_block - 1) / quads_per_block);
}

}  // namespace

void clip_scale(const float* x, float* y, std::int64_t count, float scale, float low, float high, cudaStream_t stream) {
  assert(misalignment(x) % sizeof(float) == 0 && misalignment(y) % sizeof(float) == 0);
  if (count <= 0) return;
  const ClipScale f{scale, low, high};
  if (misalignment(x) != misalignment(y)) {
    clip_scale_scalar<<<blocks_for(count), threads, 0, stream>>>(x, y, count, f);
    KERNEL_CHECK(clip_scale_scalar);
    return;
  }
  const auto to_boundary = static_cast<std::int64_t>((16 - misalignment(x)) % 16 / sizeof(float));
  const std::int64_t head = to_boundary < count ? to_boundary : count;
  const std::int64_t quads = (count - head) / 4;
  clip_scale_aligned<<<blocks_for(quads) + 1, threads, 0, stream>>>(x, y, static_cast<int>(head), quads, count, f);
  KERNEL_CHECK(clip_scale_aligned);
}

}  // namespace lenslet::cuda

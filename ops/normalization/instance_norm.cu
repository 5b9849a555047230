#include "ops/normalization/instance_norm_cuda.h"

#include <algorithm>

#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_threads;

/// Count, mean and sum of squared distances from it.
struct Moments {
  double count = 0, mean = 0, squares = 0;
  /// Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983).
  __device__ void merge(const Moments& other) {
    if (other.count == 0) return;
    const double total = count + other.count, distance = other.mean - mean;
    squares += other.squares + distance * distance * (count * other.count / total);
    mean += distance * (other.count / total);
    count = total;
  }
};

/// How a plane is cut up: at most a warp's worth of pieces, and enough blocks for an H200.
struct Pieces {
  std::int64_t length = 1;
  int count = 1;
};

Pieces pieces_of(std::int64_t planes, std::int64_t area) {
  constexpr std::int64_t blocks_wanted = 1056, least_length = 4096;
  const std::int64_t wanted = std::clamp<std::int64_t>(blocks_wanted / std::max<std::int64_t>(1, planes), 1,
                                                       std::min<std::int64_t>(warp_threads, 1 + area / least_length));
  Pieces pieces;
  pieces.length = std::max<std::int64_t>(1, (area + wanted - 1) / wanted);
  pieces.count = static_cast<int>(std::max<std::int64_t>(1, (area + pieces.length - 1) / pieces.length));
  return pieces;
}

constexpr int unroll = 4;

/// Grid: (planes, pieces). Sums are taken around the plane's first element, so that a mean far from zero cancels.
__global__ void __launch_bounds__(threads)
    plane_moments(const float* x, Moments* moments, std::int64_t area, Pieces pieces) {
  wait_for_previous();
  const std::int64_t plane = blockIdx.x, first = blockIdx.y * pieces.length;
  const std::int64_t end = first + pieces.length < area ? first + pieces.length : area;
  const float* from = x + plane * area;
  const double center = static_cast<double>(from[0]);
  double sum = 0, squares = 0;
  for (std::int64_t i = first + threadIdx.x; i < end; i += unroll * threads) {
    float values[unroll]{};
#pragma unroll
    for (int j = 0; j < unroll; ++j)
      if (i + j * threads < end) values[j] = from[i + j * threads];
#pragma unroll
    for (int j = 0; j < unroll; ++j) {
      const double distance = i + j * threads < end ? static_cast<double>(values[j]) - center : 0.0;
      sum += distance;
      squares += distance * distance;
    }
  }
  for (int mask = 1; mask < warp_threads; mask *= 2) {
    sum += shuffle_xor(sum, mask);
    squares += shuffle_xor(squares, mask);
  }
  __shared__ double shared[2][warps];
  if (threadIdx.x % warp_threads == 0) {
    shared[0][threadIdx.x / warp_threads] = sum;
    shared[1][threadIdx.x / warp_threads] = squares;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < warps; ++warp) {
    sum += shared[0][warp];
    squares += shared[1][warp];
  }
  const auto count = static_cast<double>(end - first);
  Moments here;
  here.count = count;
  here.mean = center + sum / count;
  here.squares = fmax(0.0, squares - sum * sum / count);
  moments[plane * pieces.count + blockIdx.y] = here;
}

/// The same grid. Each block merges the pieces of its plane again: that costs less than a kernel for it.
__global__ void __launch_bounds__(threads)
    normalize_planes(const float* x, float* y, const Moments* moments, const float* scale, const float* bias,
                     float epsilon, std::int64_t channels, std::int64_t area, Pieces pieces) {
  wait_for_previous();
  const std::int64_t plane = blockIdx.x;
  __shared__ float shared[3];
  if (threadIdx.x < warp_threads) {
    Moments whole;
    if (static_cast<int>(threadIdx.x) < pieces.count) whole = moments[plane * pieces.count + threadIdx.x];
    for (int mask = 1; mask < warp_threads; mask *= 2) whole.merge(shuffle_xor(whole, mask));
    if (threadIdx.x == 0) {
      const std::int64_t c = plane % channels;
      const double factor =
          static_cast<double>(scale[c]) / sqrt(whole.squares / whole.count + static_cast<double>(epsilon));
      // x * factor - mean * factor would cancel for a large mean: the subtraction comes first.
      const auto center = static_cast<float>(whole.mean);
      shared[0] = center;
      shared[1] = static_cast<float>(factor);
      shared[2] =
          static_cast<float>(static_cast<double>(bias[c]) - (whole.mean - static_cast<double>(center)) * factor);
    }
  }
  __syncthreads();
  const float center = shared[0], gain = shared[1], rest = shared[2];
  const std::int64_t first = blockIdx.y * pieces.length;
  const std::int64_t end = first + pieces.length < area ? first + pieces.length : area;
  const float* from = x + plane * area;
  float* to = y + plane * area;
  for (std::int64_t i = first + threadIdx.x; i < end; i += unroll * threads) {
    float values[unroll]{};
#pragma unroll
    for (int j = 0; j < unroll; ++j)
      if (i + j * threads < end) values[j] = from[i + j * threads];
#pragma unroll
    for (int j = 0; j < unroll; ++j)
      if (i + j * threads < end) to[i + j * threads] = (values[j] - center) * gain + rest;
  }
}

}  // namespace

std::size_t instance_norm_workspace_bytes(std::int64_t planes, std::int64_t area) {
  return static_cast<std::size_t>(planes) * static_cast<std::size_t>(pieces_of(planes, area).count) * sizeof(Moments);
}

void instance_norm(const Context& context, float epsilon, std::int64_t planes, std::int64_t channels, std::int64_t area,
                   const float* scale, const float* bias, const float* x, float* y, std::byte* workspace) {
  if (planes == 0 || area == 0) return;
  const Pieces pieces = pieces_of(planes, area);
  auto* moments = reinterpret_cast<Moments*>(workspace);
  const dim3 grid(static_cast<unsigned>(planes), static_cast<unsigned>(pieces.count));
  launch(context, plane_moments, grid, dim3(threads), 0, x, moments, area, pieces);
  launch(context, normalize_planes, grid, dim3(threads), 0, x, y, moments, scale, bias, epsilon, channels, area,
         pieces);
}

}  // namespace lenslet::cuda

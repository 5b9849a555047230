// A cluster of blocks reads an image once, where one block would take several times as long and two launches would read
// it twice. Threads sum their elements in float32 around the mean of these, in two passes over registers; the threads'
// sums meet in double, around the image's first element, so that a mean far from zero cancels.
#include "ops/normalization/normalize_held_images.h"

#include <cmath>
#include <cstring>

#include "base/cuda/cluster.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/normalization/normalize_rows.h"
#include "ops/reduce/rows.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 512, warps = threads / warp_threads;
constexpr int blocks = 8;  ///< of a cluster
constexpr int held = 8;    ///< packs of 16 bytes a thread

/// Sums of distances, and of their squares, from the image's first element; 16 bytes to be stored at once.
struct Sums {
  double distances = 0, squares = 0;

  Sums() = default;
  __device__ explicit Sums(const float4& words) { std::memcpy(this, &words, sizeof(words)); }
  __device__ float4 words() const {
    float4 words;
    std::memcpy(&words, this, sizeof(words));
    return words;
  }

  __device__ void add(const Sums& other) {
    distances += other.distances;
    squares += other.squares;
  }
  __device__ void add_over_warp() {
    for (int mask = 1; mask < warp_threads; mask *= 2) add(shuffle_xor(*this, mask));
  }
};

/// Of the thread's `inside` packs.
template <int pack, typename T>
__device__ Sums sums_of(const Floats<pack, T> (&stored)[held], int inside, float shift, float epsilon) {
  const float first = loaded(stored[0].at[0]), count = static_cast<float>(inside * pack);
  float sum = 0, rest = 0, square = 0;
#pragma unroll
  for (int i = 0; i < held; ++i)
#pragma unroll
    for (int k = 0; k < pack; ++k) sum += i < inside ? loaded(stored[i].at[k]) - first : 0.0F;
  const float center = inside == 0 ? first : first + sum / count;
#pragma unroll
  for (int i = 0; i < held; ++i)
#pragma unroll
    for (int k = 0; k < pack; ++k) {
      const float distance = i < inside ? loaded(stored[i].at[k]) - center : 0.0F;
      rest += distance;
      square += distance * distance;
    }
  Sums sums;
  // Squares out of float's range, which float32 and bfloat16 reach.
  if (!(square < 1e34F) || (square < 1e-24F && epsilon < 1e-24F)) {
#pragma unroll
    for (int i = 0; i < held; ++i)
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        const double distance =
            i < inside ? static_cast<double>(loaded(stored[i].at[k])) - static_cast<double>(shift) : 0.0;
        sums.distances += distance;
        sums.squares += distance * distance;
      }
    return sums;
  }
  const double from = static_cast<double>(center) - static_cast<double>(shift);
  const double wide_count = static_cast<double>(count), wide_rest = static_cast<double>(rest);
  sums.distances = wide_count * from + wide_rest;
  sums.squares = static_cast<double>(square) + from * (2 * wide_rest + wide_count * from);
  return sums;
}

/// A cluster an image of `packs` packs. The first `step` threads of it, a multiple of a pixel's `channel_packs`, have
/// every step-th pack each, and so the same channels in all.
template <int pack, typename T>
__global__ void __launch_bounds__(threads) normalize_images(const T* x, T* y, const float* scale, const float* bias,
                                                            float epsilon, int packs, int channel_packs, int step) {
  wait_for_previous();
  let_next_start();
  leave_cluster();  // arrives: the others' shared memory may be written once all blocks have
  __shared__ float4 all_sums[blocks * warps];
  using Pack = Floats<pack, T>;
  const int rank = static_cast<int>(blockIdx.x) % blocks, thread = static_cast<int>(threadIdx.x);
  const int member = rank * threads + thread, lane = thread % warp_threads;
  const int inside = member < step && member < packs ? (packs - member + step - 1) / step : 0;
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) / blocks * packs;
  const auto* const from = reinterpret_cast<const Pack*>(x) + start;
  Pack stored[held] = {};
#pragma unroll
  for (int i = 0; i < held; ++i)
    if (i < inside) stored[i] = from[member + i * step];
  const float shift = loaded(from[0].at[0]);
  const int channel = member % channel_packs * pack;
  float scales[pack], biases[pack];
#pragma unroll
  for (int k = 0; k < pack; ++k) {
    scales[k] = scale[channel + k];
    biases[k] = bias[channel + k];
  }

  Sums sums = sums_of(stored, inside, shift, epsilon);
  sums.add_over_warp();
  // Each warp's sums go to all blocks, by one lane each.
  __syncwarp();
  wait_for_cluster();
  if (lane < blocks) store_in_block(lane, &all_sums[rank * warps + thread / warp_threads], sums.words());
  sync_cluster();
  sums = Sums();
  for (int i = lane; i < blocks * warps; i += warp_threads) sums.add(Sums(all_sums[i]));
  sums.add_over_warp();

  const double length = static_cast<double>(packs) * pack, mean = sums.distances / length;
  const double squares = sums.squares - sums.distances * mean;
  const double deviation = row_deviation(squares < 0 ? 0 : squares, length, epsilon);  // NaN stays
  const RowMap map(static_cast<double>(shift) + mean, deviation, {1, 0});
  auto* const to = reinterpret_cast<Pack*>(y) + start;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    if (i >= inside) continue;
    Pack result;
#pragma unroll
    for (int k = 0; k < pack; ++k) result.at[k] = as_stored<T>(map(loaded(stored[i].at[k])) * scales[k] + biases[k]);
    to[member + i * step] = result;
  }
}

}  // namespace

bool normalize_held_images(const Context& context, DType dtype, const void* x, void* y, const float* scale,
                           const float* bias, float epsilon, std::int64_t images, std::int64_t length,
                           std::int64_t channels) {
  return dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    constexpr int pack = 16 / sizeof(T);
    const std::int64_t packs = length / pack, channel_packs = channels / pack, all = threads * blocks;
    if (channels % pack != 0 || channel_packs == 0 || channel_packs > all || !quad_aligned(x, y)) return false;
    const std::int64_t step = all / channel_packs * channel_packs;
    if (packs > held * step || images > std::int64_t{1} << 24) return false;
    launch_clusters(context, normalize_images<pack, T>, dim3(static_cast<unsigned>(images * blocks)), dim3(threads),
                    dim3(blocks), 0, static_cast<const T*>(x), static_cast<T*>(y), scale, bias, epsilon,
                    static_cast<int>(packs), static_cast<int>(channel_packs), static_cast<int>(step));
    return true;
  });
}

}  // namespace lenslet::cuda

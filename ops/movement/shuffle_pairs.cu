// Channel shuffles of two groups: a thread makes a 16-byte vector from 8 bytes of each.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "base/cuda/vector_bits.cuh"
#include "base/dtypes.h"
#include "ops/movement/shuffle_pairs_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

struct Call {
  const void* x[2];
  void* y[2];
  std::uint32_t items;          ///< of an output: vectors of a pixel, then pixels
  FastDivider vectors;          ///< of a pixel
  int count, x_pixel, y_pixel;  ///< elements; y_pixel: vectors
};

/// `elements` of an array, aligned to `bytes`.
template <typename T, int elements, int bytes>
__device__ void load(T (&to)[elements], const T* from) {
  constexpr int at_once = bytes / static_cast<int>(sizeof(T));
  using Word = Bits<bytes>;
#pragma unroll
  for (int i = 0; i < elements; i += at_once) {
    const Word word = *reinterpret_cast<const Word*>(from + i);
#pragma unroll
    for (int j = 0; j < at_once; ++j) to[i + j] = static_cast<T>(word >> (j * static_cast<int>(sizeof(T)) * 8));
  }
}

/// `bytes`: the alignment in x of output 1's channels; those of output 0 have half a vector's.
template <typename T, int bytes>
__global__ void __launch_bounds__(threads) interleave_pairs(const __grid_constant__ Call call) {
  wait_for_previous();
  let_next_start();
  constexpr int half = 8 / static_cast<int>(sizeof(T));
  const int output = static_cast<int>(blockIdx.y);
  int pixel = static_cast<int>(blockIdx.x * threads + threadIdx.x);
  if (static_cast<std::uint32_t>(pixel) >= call.items || call.y[output] == nullptr) return;
  const int vector = call.vectors.split(pixel);
  const std::int64_t from = std::int64_t{pixel} * call.x_pixel + output * call.count + vector * half;
  const T *const a = static_cast<const T*>(call.x[0]) + from, *const b = static_cast<const T*>(call.x[1]) + from;
  T of_a[half], of_b[half];
  if (output == 0) {
    load<T, half, 8>(of_a, a);
    load<T, half, 8>(of_b, b);
  } else {
    load<T, half, bytes>(of_a, a);
    load<T, half, bytes>(of_b, b);
  }
  static_cast<uint4*>(call.y[output])[std::int64_t{pixel} * call.y_pixel + vector] =
      vector_of<T>([&](int i) { return i % 2 == 0 ? of_a[i / 2] : of_b[i / 2]; });
}

}  // namespace

void shuffle_pairs(const Context& context, const ShufflePairs& shuffle, const std::array<const void*, 2>& x,
                   const std::array<void*, 2>& y) {
  const int per_vector = 16 / static_cast<int>(shuffle.element_bytes);
  const int vectors = (2 * shuffle.count + per_vector - 1) / per_vector;
  const std::int64_t items = shuffle.pixels * vectors;
  if (items == 0) return;
  Call call{};
  call.x[0] = x[0], call.x[1] = x[1];
  call.y[0] = y[0], call.y[1] = y[1];
  call.items = static_cast<std::uint32_t>(items);
  call.vectors = FastDivider(vectors);
  call.count = shuffle.count;
  call.x_pixel = shuffle.x_pixel;
  call.y_pixel = shuffle.y_pixel / per_vector;
  const dim3 grid(static_cast<unsigned>((items + threads - 1) / threads), static_cast<unsigned>(shuffle.outputs));
  const std::size_t begin = static_cast<std::size_t>(shuffle.count) * shuffle.element_bytes;
  const auto launch_them = [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) == 4)
      launch(context, begin % 8 == 0 ? interleave_pairs<T, 8> : interleave_pairs<T, 4>, grid, threads, 0, call);
    else
      launch(context,
             begin % 8 == 0   ? interleave_pairs<T, 8>
             : begin % 4 == 0 ? interleave_pairs<T, 4>
                              : interleave_pairs<T, 2>,
             grid, threads, 0, call);
  };
  if (shuffle.element_bytes == 4)
    launch_them(std::type_identity<std::uint32_t>());
  else
    launch_them(std::type_identity<std::uint16_t>());
}

}  // namespace lenslet::cuda

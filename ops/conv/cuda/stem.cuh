#pragma once
// Shared by the stem kernels; stem.cu describes them.

#include <type_traits>

#include "base/cuda/fast_divider.h"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/mma.cuh"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/one_launch.cuh"
#include "ops/conv/cuda/stem.h"

namespace lenslet::cuda {

using namespace stem_sizes;

/// Words of a pixel that a thread holds.
template <typename T, int tiles_n>
constexpr int pixel_words = tiles_n * 2 / word_elems<T>;
/// w [blocks of 8 * tiles_n filters][k-blocks][bytes_a_step]. mma.sync: a k-block is [tiles_n / 2][lanes] of four
/// words, a lane's fragments of B for two tiles of eight filters. wgmma: [2][tiles_n][8 filters][4 words], core
/// matrices of 128 bytes. Filters are in filter_at()'s order.
struct StemCall : UntypedConvCall {
  using UntypedConvCall::UntypedConvCall;
  int steps, words_a_row;
  int columns, lines;  ///< halo tile; lines: C times its rows
  int word;            ///< elements of a word
  int pitch;           ///< elements of a row: whole words; for pairs at least one element more than columns * C
  int halo_words;      ///< of one copy
  int copies;          ///< 1, or 2 where windows may begin at odd elements
  int tiles;
  int rows;  ///< of the halo tile
  FastDivider tiles_q, tiles_p, rows_divider;
};

/// With 3x3 max pooling, stride 2 (ConvProblem::max_pool). A block walks down a strip of the image.
struct StemPoolCall : StemCall {
  using StemCall::StemCall;
  int pool_top, pool_left;  ///< pads
  int pooled_p, pooled_q;
  int walk_rows;     ///< rows of y of a walk
  int kept;          ///< 16-byte vectors of the halo tile shared with the next one
  int kept_lines;    ///< their lines, which are not loaded again
  int lines_a_pass;  ///< that the block's threads load at a time
  FastDivider columns_divider;
  FastDivider strips, walks;  ///< per image, horizontally and vertically; `tiles`: all
};

using StemPoolFunction = void (*)(StemPoolCall);
/// The kernel for x and y of these types, `filters` a block (32 or 64).
StemPoolFunction stem_pool_of(DType x, DType y, int filters, bool wgmma_reads);

/// Rounds to nearest.
template <typename T, typename X>
__device__ T as_multiplied(X x) {
  if constexpr (std::is_same_v<T, float>) {
    return __uint_as_float(round_to_tf32(x));
  } else if constexpr (std::is_same_v<X, T>) {
    return x;
  } else {
    return narrowed<T>(x);
  }
}

/// A line of the halo tile, of one channel and row: its offsets in an image and in the tile, in elements.
struct alignas(16) StemLine {
  int from, to, row;
};

/// Exact activation. Not unrolled, because the functions are long; register indices are constants within the body.
template <int rows, int tiles_n>
__device__ void activate_floats(const DeviceActivation& activation, float (&acc)[rows][tiles_n][4]) {
#pragma unroll 1
  for (int tile = 0; tile < rows * tiles_n; ++tile) {
    float4 value{};
#pragma unroll
    for (int known = 0; known < rows * tiles_n; ++known)
      if (tile == known) {
        const float(&of)[4] = acc[known / tiles_n][known % tiles_n];
        value = {of[0], of[1], of[2], of[3]};
      }
    value = activation(value);
#pragma unroll
    for (int known = 0; known < rows * tiles_n; ++known)
      if (tile == known) {
        float(&of)[4] = acc[known / tiles_n][known % tiles_n];
        of[0] = value.x, of[1] = value.y, of[2] = value.z, of[3] = value.w;
      }
  }
}

/// Applies to all pixels of a row: one branch a row.
template <int rows, int tiles_n>
__device__ void activate_halves(const DeviceActivation& activation, float (&acc)[rows][tiles_n][4]) {
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    float flat[tiles_n * 4];
#pragma unroll
    for (int j = 0; j < tiles_n * 4; ++j) flat[j] = acc[i][j / 4][j % 4];
    activation.apply_for_halves(flat);
#pragma unroll
    for (int j = 0; j < tiles_n * 4; ++j) acc[i][j / 4][j % 4] = flat[j];
  }
}

/// Applies the activation in any of these forms.
template <typename T, int rows, int tiles_n>
__device__ void activate(const DeviceActivation& activation, float (&acc)[rows][tiles_n][4]) {
  if constexpr (std::is_same_v<T, float>)
    activate_floats(activation, acc);
  else
    activate_halves(activation, acc);
}

/// Stores whole 16-byte vectors of a pixel, padding channels included (aligned_nhwc). Scalar stores, as plain nhwc with
/// 62 filters would need: 8x3x224x224 -> 62, 7x7 s2, 50 us for 13.
template <typename T>
__device__ void store_words(T* y, const std::uint32_t (&word)[4]) {
  *reinterpret_cast<uint4*>(y) = {word[0], word[1], word[2], word[3]};
}

/// A word of a pixel as stored: `pair` counts pairs of accumulators; in 16 bits word n is tile n's.
template <typename T, int tiles_n>
__device__ std::uint32_t stored_word(const float (&acc)[tiles_n][4], int n, int pair) {
  if constexpr (std::is_same_v<T, float>)
    return __float_as_uint(acc[n / 2][2 * pair + n % 2]);
  else
    return narrowed_pair<T>(acc[n][2 * pair], acc[n][2 * pair + 1]);
}

/// Clamps the elements of a word.
template <typename T>
class WordClamp {
 public:
  __device__ explicit WordClamp(const Clamp& clamp) : clamp_(made(clamp)) {}
  __device__ std::uint32_t operator()(std::uint32_t word) const {
    if constexpr (std::is_same_v<T, float>)
      return __float_as_uint(clamp_(__uint_as_float(word)));
    else
      return clamp_(word);
  }

 private:
  using Of = std::conditional_t<std::is_same_v<T, float>, Clamp, PairClamp<T>>;
  __device__ static Of made(const Clamp& clamp) {
    if constexpr (std::is_same_v<T, float>)
      return clamp;
    else
      return Of(clamp.low, clamp.high);
  }
  Of clamp_;
};

/// Stores a warp's row of outputs, `tiles_n` eights of filters from first_k on, at pixels first_q + g and 8 further:
/// four lanes fill 64 bytes of a pixel.
template <typename T, int tiles_n>
__device__ void store_row(const StemCall& call, T* row, int first_q, int first_k, const WordClamp<T>& clamp,
                          const float (&acc)[tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int q = first_q + g + 8 * pair;
    if (q >= call.q) continue;
    T* const y = row + q * call.y_pixel;
#pragma unroll
    for (int n = 0; n < pixel_words<T, tiles_n>; n += 4) {
      const int k = first_k + n / 4 * (4 * thread_filters<T>)+t * thread_filters<T>;
      if (k >= call.k) continue;
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = clamp(stored_word<T>(acc, n + i, pair));
      store_words(y + k, word);
    }
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// Descriptor of a k-block's filters: core matrices of eight filters by 16 bytes, those of the same k adjacent.
template <int tiles_n>
__device__ std::uint64_t step_operand(const uint4* filters) {
  constexpr std::uint64_t k_stride = tiles_n * 128 / 16, eights = 128 / 16;
  return ((shared_address(filters) & 0x3FFFFU) >> 4) | k_stride << 16 | eights << 32;
}
#endif

__device__ inline std::uint32_t shared_word(std::uint32_t address) {
  std::uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}

/// sums += windows * filters over all k-blocks. `window`: shared-memory addresses of the lane's pixels' windows;
/// offsets[step][t]: byte offsets of words t and t + 4 of a k-block.
template <bool wgmma_reads, typename T, int rows, int tiles_n>
__device__ void multiply_windows(const StemCall& call, const uint4* filters, const int2* offsets,
                                 const std::uint32_t (&window)[rows][2], float (&acc)[rows][tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
  constexpr int step_vectors = tiles_n * 16;
  int2 next = offsets[t];
  const auto load = [&](int step, std::uint32_t(&a)[rows][4]) {
    const int2 behind = next;
    next = offsets[(step + 1) * 4 + t];  // padded by one k-block
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int word = 0; word < 4; ++word)
        a[i][word] = shared_word(window[i][word % 2] + static_cast<std::uint32_t>(word / 2 == 0 ? behind.x : behind.y));
  };
  if constexpr (wgmma_reads) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    // Double-buffered operand A: one k-block is loaded while the other is multiplied. The number of k-blocks is even.
    std::uint32_t a[2][rows][4];
    std::uint64_t b = step_operand<tiles_n>(filters);
    for (int step = 0; step < call.steps; step += 2)
#pragma unroll
      for (int half = 0; half < 2; ++half, b += step_vectors) {
        wgmma_wait<1>();
        load(step + half, a[half]);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < rows; ++i)
          wgmma_of_registers<T, 8 * tiles_n>(reinterpret_cast<float(&)[4 * tiles_n]>(acc[i]), a[half][i], b);
        wgmma_commit();
      }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < rows; ++i) wgmma_hold(reinterpret_cast<float(&)[4 * tiles_n]>(acc[i]));
#endif
  } else {
#pragma unroll 1
    for (int step = 0; step < call.steps; ++step) {
      std::uint32_t a[rows][4];
      load(step, a);
#pragma unroll
      for (int n = 0; n < tiles_n; n += 2) {
        const uint4 b = filters[step * step_vectors + n * 16 + lane];
#pragma unroll
        for (int i = 0; i < rows; ++i) {
          mma<T>(acc[i][n], a[i], b.x, b.y);
          mma<T>(acc[i][n + 1], a[i], b.z, b.w);
        }
      }
    }
  }
}

/// Shared-memory address of a pixel's window.
template <typename T>
__device__ std::uint32_t window_at(const StemCall& call, const std::uint32_t* halo_tile, int row, int column) {
  const int at = row * call.stride_h * call.pitch + column * call.stride_w * call.c;
  const std::uint32_t* const word = halo_tile + (word_elems<T> == 2 ? at / 2 + (at % 2) * call.halo_words : at);
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(word));
}

template <typename T, int rows, int tiles_n>
__device__ void begin_sums(const float* bias, float (&acc)[rows][tiles_n][4]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  constexpr int tiles_a_group = thread_filters<T> / 2;
#pragma unroll
  for (int n = 0; n < tiles_n; ++n) {
    const float2 begin = *reinterpret_cast<const float2*>(bias + n / tiles_a_group * tiles_a_group * 8 +
                                                          thread_filters<T> * t + n % tiles_a_group * 2);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      acc[i][n][0] = acc[i][n][2] = begin.x;
      acc[i][n][1] = acc[i][n][3] = begin.y;
    }
  }
}

/// Shared memory of a block; the table of lines only with a StemPoolCall.
template <int tiles_n, typename Call>
struct StemShared {
  static constexpr bool has_lines = std::is_same_v<Call, StemPoolCall>;
  uint4* filters;
  int2* offsets;  ///< of a window's words (multiply_windows)
  float* bias;
  StemLine* lines;
  std::uint32_t* halo_tile;

  __device__ explicit StemShared(const Call& call) {
    extern __shared__ uint4 shared[];
    filters = shared;
    offsets = reinterpret_cast<int2*>(filters + filter_vectors(call));
    bias = reinterpret_cast<float*>(offsets + (call.steps + 1) * 4);
    lines = reinterpret_cast<StemLine*>(bias + 8 * tiles_n);
    halo_tile = reinterpret_cast<std::uint32_t*>(has_lines ? lines + call.lines : lines);
  }
  __device__ static int filter_vectors(const Call& call) { return call.steps * tiles_n / 2 * 32; }

  /// Loads filters, before the previous kernel has ended, and bias.
  template <bool wgmma_reads>
  __device__ void begin(const Call& call, int first_k) const {
    const int thread = static_cast<int>(threadIdx.x), vectors = filter_vectors(call);
    const uint4* const w = static_cast<const uint4*>(call.w) + static_cast<int>(blockIdx.y) * vectors;
    for (int i = thread; i < vectors; i += block_threads) filters[i] = __ldg(w + i);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (wgmma_reads) fence_proxy_async_shared();  // wgmma reads through the async proxy
#endif
    for (int i = thread; i < (call.steps + 1) * step_words; i += block_threads) {
      const int word = i / step_words * step_words + i % 8 / 2 + i % 2 * 4, r = word / call.words_a_row;
      reinterpret_cast<int*>(offsets)[i] =
          r < call.r ? 4 * (r * (call.pitch / call.word) + word % call.words_a_row) : 0;
    }
    for (int row = thread; has_lines && row < call.rows; row += block_threads)
      for (int channel = 0; channel < call.c; ++channel)
        lines[row * call.c + channel] = {(channel * call.height + row) * call.width, row * call.pitch + channel, row};
    // Clears the ends of rows, which no halo tile writes.
    for (int i = thread; i < call.copies * call.halo_words; i += block_threads) halo_tile[i] = 0;
    wait_for_previous();
    let_next_start();
    for (int k = thread; k < 8 * tiles_n; k += block_threads)
      bias[k] = call.bias != nullptr && first_k + k < call.k ? call.bias[first_k + k] : 0.0F;
    __syncthreads();
  }
};

}  // namespace lenslet::cuda

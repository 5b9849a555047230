#pragma once
// The kernels of separable: what the depthwise half computes never leaves the registers.
//
// Lane l loads, for the pixels of rows l / 4 and l / 4 + 8 of operands a of mma.sync, 16 bytes of the channels of a
// chunk of 64 bytes, t = l % 4 in order: four words, of two channels in 16 bits, of one in float32.
//
// In 16 bits both halves go by mma.sync. Word j of a tap's pixel is, as it was loaded, a part of an operand a of eight
// channels, those of each t's word j; an operand b that has this tap's weights on its diagonal multiplies each channel
// by its own, and an instruction of 16 terms has room for two taps. Seven of eight products are of zeros: still an
// instruction does what 16 of fma and conversion would. The sums stand where the operand a of the 1x1 convolution wants
// its terms: they are activated, rounded, and multiplied by filters that are numbered for that, as thin_mma's are. An
// infinity makes NaN of the channels beside it, too. In float32 the sums of the taps are exact ones of fma, and rounded
// to TF32 as operands.
//
// The outputs of a lane stand one above the other, so that rows of inputs serve several. A block's filters and taps go
// to shared memory before the kernel ahead has ended. Where pixels are few, the warps of a block and the blocks of a
// cluster share the channels out; their sums are added in a fixed order.

#include <type_traits>
#include <utility>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "ops/conv/cuda/cluster.cuh"
#include "ops/conv/cuda/half_mma.cuh"
#include "ops/conv/cuda/separable.h"
#include "ops/conv/cuda/some_of.cuh"

namespace lenslet::cuda {
namespace {

constexpr int separable_size = 3;
template <typename T>
inline constexpr bool is_float = std::is_same_v<T, float>;
/// Elements of a word, channels and filters that a lane has beside each other, and the tiles of eight filters that such
/// a set of filters is made of.
template <typename T>
inline constexpr int word_elems = 4 / static_cast<int>(sizeof(T));
template <typename T>
inline constexpr int lane_elems = 4 * word_elems<T>;
template <typename T>
inline constexpr int set_tiles = lane_elems<T> / 2;

/// Where an item lies.
struct Item {
  int image, p, q;
  bool exists;
  template <int rows>
  __device__ static Item at(const SeparableCall& call, int item) {
    const bool exists = item < call.items;
    int rest = exists ? item : 0;
    const int q = call.columns.split(rest);
    const int p = call.strips.split(rest) * rows;
    return {rest, p, q, exists};
  }
};

/// 16 bytes at `from` + row * row_bytes + column * pixel_bytes where bit `bit` of `inside` is set, else zeros.
/// Addresses and predicates are made here, by hand: outside, the compiler keeps all of them in registers.
template <int row, int column, int bit>
__device__ inline void load_if(std::uint32_t (&to)[4], const void* from, int row_bytes, int pixel_bytes,
                               unsigned inside) {
  asm volatile(
      "{\n"
      "  .reg .pred inside;\n"
      "  .reg .b32 masked;\n"
      "  .reg .s64 at;\n"
      "  and.b32 masked, %7, %10;\n"
      "  setp.ne.u32 inside, masked, 0;\n"
      "  mad.wide.s32 at, %5, %8, %4;\n"
      "  mad.wide.s32 at, %6, %9, at;\n"
      "  mov.b32 %0, 0;\n"
      "  mov.b32 %1, 0;\n"
      "  mov.b32 %2, 0;\n"
      "  mov.b32 %3, 0;\n"
      "  @inside ld.global.v4.b32 {%0, %1, %2, %3}, [at];\n"
      "}"
      : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
      : "l"(from), "r"(row_bytes), "r"(pixel_bytes), "r"(inside), "n"(row), "n"(column), "n"(1 << bit));
}
template <int rows, int... i>
__device__ inline void load_window(std::uint32_t (&window)[rows][separable_size][4], const void* from, int row_bytes,
                                   int pixel_bytes, unsigned inside, std::integer_sequence<int, i...>) {
  (load_if<i / separable_size, i % separable_size, i>(window[i / separable_size][i % separable_size], from, row_bytes,
                                                      pixel_bytes, inside),
   ...);
}

/// sums += a * b in TF32, of 8 terms (mma.sync.m16n8k8): a lane has of a rows g, g + 8 of column t, then of t + 4, of b
/// rows t and t + 4 of column g.
__device__ inline void multiply_add_tf32(float (&sums)[4], const std::uint32_t (&a)[4], uint2 b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}
template <typename T>
__device__ inline void multiply_terms(float (&sums)[4], const std::uint32_t (&a)[4], uint2 b) {
  if constexpr (is_float<T>)
    multiply_add_tf32(sums, a, b);
  else
    multiply_add<T>(sums, a, b);
}

/// What follows sums: of floats one after the other, of 16 bits clamps after the rounding.
template <typename T>
struct Activator {
  DeviceActivation activation;
  PairClamp<T> clamp;
  bool plain;
  __device__ explicit Activator(const DeviceActivation& of)
      : activation(of), clamp(of.clamp().low, of.clamp().high), plain(of.is_clamp()) {}
  template <int count>
  __device__ void before_rounding(float (&v)[count]) const {
    if (!plain) activation.apply_for_halves(v);
  }
  __device__ std::uint32_t rounded(float low, float high) const { return clamp(narrowed_pair<T>(low, high)); }
};
template <>
struct Activator<float> {
  DeviceActivation activation;
  Clamp clamp;
  bool plain;
  __device__ explicit Activator(const DeviceActivation& of) : activation(of), clamp(of.clamp()), plain(of.is_clamp()) {}
  template <int count>
  __device__ void before_rounding(float (&v)[count]) const {
    if (plain) {
#pragma unroll
      for (float& value : v) value = clamp(value);
    } else {
#pragma unroll
      for (float& value : v) value = activation(value);
    }
  }
};

/// The sums of a set of tiles for two rows of outputs, of which the lane has lane_elems filters of set `set`.
template <typename T>
__device__ inline void finish(const SeparableCall& call, const Activator<T>& activator, const Item& item, int p,
                              int set, const float (&sums)[set_tiles<T>][4]) {
  constexpr int elems = lane_elems<T>;
  const int filter = (set * 4 + static_cast<int>(threadIdx.x) % 4) * elems;
  if (filter >= call.k || !item.exists) return;
  const std::int64_t pixel = (std::int64_t{item.image} * call.p + p) * call.q + item.q;
  float v[2][elems];
  const bool two = p + 1 < call.p;
  std::uint32_t added[2][4] = {};
  if (call.residual != nullptr) {
    const T* const residual = static_cast<const T*>(call.residual) + pixel * call.k_room + filter;
    load_or_zero(added[0], residual, true);
    load_or_zero(added[1], residual + std::int64_t{call.q} * call.k_room, two);
  }
  float bias[elems] = {};
  if (call.bias != nullptr)
#pragma unroll
    for (int i = 0; i < elems; i += 4) {
      const float4 four = four_of(call.bias, filter + i, call.k);
      bias[i] = four.x, bias[i + 1] = four.y, bias[i + 2] = four.z, bias[i + 3] = four.w;
    }
#pragma unroll
  for (int i = 0; i < 2 * elems; ++i)
    v[i / elems][i % elems] = sums[i % elems / 2][i / elems * 2 + i % 2] + bias[i % elems];
  if (call.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (is_float<T>) {
        v[i / 4][i % 4] += __uint_as_float(added[i / 4][i % 4]);
      } else {
        const float2 pair = widened_pair<T>(added[i / 4][i % 4]);
        v[i / 4][i % 4 * 2] += pair.x;
        v[i / 4][i % 4 * 2 + 1] += pair.y;
      }
    }
  }
  if (is_float<T> || !activator.plain) {
    // The others' code is long: once for both.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      activator.before_rounding(v[0]);
#pragma unroll
      for (int j = 0; j < elems; ++j) {
        const float done = v[0][j];
        v[0][j] = v[1][j];
        v[1][j] = done;
      }
    }
  }
  T* const y = static_cast<T*>(call.y) + pixel * call.y_pixel + filter;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (is_float<T>)
        words[j] = __float_as_uint(v[i][j]);
      else
        words[j] = activator.rounded(v[i][2 * j], v[i][2 * j + 1]);
    }
    if (i == 0 || two)
      *reinterpret_cast<uint4*>(y + std::int64_t{i} * call.q * call.y_pixel) =
          uint4{words[0], words[1], words[2], words[3]};
  }
}

__device__ inline float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

template <typename T, int stride, int rows, int tiles>
__global__ void __launch_bounds__(32 * separable_most_warps(rows, tiles), separable_bound_blocks(rows, tiles))
    separable_kernel(const __grid_constant__ SeparableCall call) {
  constexpr int inputs = (rows - 1) * stride + separable_size, operands = rows / 2;
  constexpr int elems = lane_elems<T>, chunk_elems = 4 * elems, sets = tiles / set_tiles<T>;
  constexpr int chunk_taps = separable_chunk_taps<is_float<T>>, word_taps = separable_word_taps<is_float<T>>;
  extern __shared__ uint4 shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, t = lane % 4;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int rank = static_cast<int>(blockIdx.x) % call.slices, group = static_cast<int>(blockIdx.y);
  const int pixel_warp = warp % call.pixel_warps, channel_warp = warp / call.pixel_warps;
  const int first_chunk = rank * call.block_chunks;
  const int chunks = max(0, min(call.block_chunks, call.chunks - first_chunk));

  // The block's filters and taps.
  constexpr int chunk_filters = 2 * tiles / 2 * 32;  // uint4
  uint4* const filters = shared;
  uint4* const taps = shared + call.block_chunks * chunk_filters;
  uint4* const zeros = taps + call.block_chunks * chunk_taps;
  constexpr int zeros_taps = is_float<T> ? 0 : 4 * word_taps;
  float4* const partial = reinterpret_cast<float4*>(zeros + zeros_taps);
  {
    const uint4* const from = call.filters + (std::int64_t{group} * call.chunks + first_chunk) * chunk_filters;
    for (int i = static_cast<int>(threadIdx.x); i < chunks * chunk_filters; i += static_cast<int>(blockDim.x))
      copy_async_16(filters + i, from + i, true);
    const uint4* const taps_from = call.taps + first_chunk * chunk_taps;
    for (int i = static_cast<int>(threadIdx.x); i < chunks * chunk_taps; i += static_cast<int>(blockDim.x))
      copy_async_16(taps + i, taps_from + i, true);
    for (int i = static_cast<int>(threadIdx.x); i < zeros_taps; i += static_cast<int>(blockDim.x))
      zeros[i] = uint4{0, 0, 0, 0};
  }
  // Lanes off the diagonal of an operand b have zeros.
  const bool diagonal = is_float<T> || lane / 8 == t;
  const uint4* const lane_taps = diagonal ? taps + (is_float<T> ? t : lane / 4) * (separable_taps / 4) : zeros;
  const int lane_step = diagonal ? chunk_taps : 0;
  wait_for_previous();
  let_next_start();

  const int begin = channel_warp * call.warp_chunks, end = min(begin + call.warp_chunks, chunks);
  const int clusters = static_cast<int>(gridDim.x) / call.slices;
  const Activator<T> activator(call.activation), depthwise(call.depthwise_activation);

  std::uint32_t window[inputs][separable_size][4];
  const T* x = nullptr;
  unsigned inside = 0;  // a bit for each of the window's pixels
  const auto go_to = [&](int turn) {
    const Item item = Item::at<rows>(call, (turn * call.pixel_warps + pixel_warp) * 8 + lane / 4);
    const int top = item.p * stride - call.pad_top, left = item.q * stride - call.pad_left;
    x = static_cast<const T*>(call.x) + std::int64_t{item.image} * call.height * call.width * call.x_pixel +
        (top * call.width + left) * call.x_pixel + first_chunk * chunk_elems + elems * t;
    inside = 0;
#pragma unroll
    for (int i = 0; i < inputs * separable_size; ++i)
      if (item.exists && static_cast<unsigned>(top + i / separable_size) < static_cast<unsigned>(call.height) &&
          static_cast<unsigned>(left + i % separable_size) < static_cast<unsigned>(call.width))
        inside |= 1U << i;
  };
  const int pixel_bytes = call.x_pixel * static_cast<int>(sizeof(T)), row_bytes = call.width * pixel_bytes;
  const auto load = [&](int chunk) {
    const bool channels = (first_chunk + chunk) * chunk_elems + elems * t < call.c;
    load_window(window, x + chunk * chunk_elems, row_bytes, pixel_bytes, channels ? inside : 0,
                std::make_integer_sequence<int, inputs * separable_size>());
  };

  int turn = static_cast<int>(blockIdx.x) / call.slices;
  go_to(turn);
  if (begin < end) load(begin);
  wait_for_all_copies();
  __syncthreads();

  for (; turn < call.turns; turn += clusters) {
    float sums[operands][tiles][4] = {};
    for (int chunk = begin; chunk < end; ++chunk) {
      if (call.c % elems != 0 && first_chunk + chunk == call.chunks - 1) {
        // What lies in the room is anything, and zeros in filters do not make zeros of it.
        const int channel = (call.chunks - 1) * chunk_elems + elems * t;
#pragma unroll
        for (int i = 0; i < inputs * separable_size * 4; ++i) {
          const int at = channel + i % 4 * word_elems<T>;
          const std::uint32_t kept = at + word_elems<T> <= call.c ? 0xffffffffU : at < call.c ? 0xffffU : 0;
          window[i / 4 / separable_size][i / 4 % separable_size][i % 4] &= kept;
        }
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t a[rows][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int j = step * 2 + half;
          std::uint32_t tap[separable_taps];
#pragma unroll
          for (int i = 0; i < separable_taps / 4; ++i) {
            const uint4 four = lane_taps[chunk * lane_step + j * word_taps + i];
            tap[4 * i] = four.x, tap[4 * i + 1] = four.y, tap[4 * i + 2] = four.z, tap[4 * i + 3] = four.w;
          }
          if constexpr (is_float<T>) {
            float v[rows];
#pragma unroll
            for (int p = 0; p < rows; ++p) {
              v[p] = __uint_as_float(tap[taps_of_size]);
#pragma unroll
              for (int i = 0; i < taps_of_size; ++i)
                v[p] = fmaf(__uint_as_float(window[p * stride + i / separable_size][i % separable_size][j]),
                            __uint_as_float(tap[i]), v[p]);
            }
            depthwise.before_rounding(v);
#pragma unroll
            for (int p = 0; p < rows; ++p) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(a[p][half]) : "f"(v[p]));
          } else {
            const float2 bias = reinterpret_cast<const float2*>(taps + chunk * chunk_taps + 4 * word_taps)[j * 4 + t];
#pragma unroll
            for (int m = 0; m < operands; ++m) {
              float v[4] = {bias.x, bias.y, bias.x, bias.y};
#pragma unroll
              for (int i = 0; i < taps_of_size; i += 2) {
                const auto at = [&](int p, int of) -> std::uint32_t {
                  const int known = min(i + of, taps_of_size - 1);  // there is no tenth: its weight is zero
                  return window[(2 * m + p) * stride + known / separable_size][known % separable_size][j];
                };
                const std::uint32_t pixels[4] = {at(0, 0), at(1, 0), at(0, 1), at(1, 1)};
                multiply_add<T>(v, pixels, uint2{tap[i], tap[i + 1]});
              }
              depthwise.before_rounding(v);
              a[2 * m][half] = depthwise.rounded(v[0], v[1]);
              a[2 * m + 1][half] = depthwise.rounded(v[2], v[3]);
            }
          }
        }
        if (step == 1) {  // the window is free
          const bool last = chunk + 1 == end;
          if (last) go_to(turn + clusters);
          load(last ? begin : chunk + 1);
        }
#pragma unroll
        for (int pair = 0; pair < tiles / 2; ++pair) {
          const uint4 b = filters[((chunk * 2 + step) * (tiles / 2) + pair) * 32 + lane];
#pragma unroll
          for (int m = 0; m < operands; ++m) {
            const std::uint32_t left[4] = {a[2 * m][0], a[2 * m + 1][0], a[2 * m][1], a[2 * m + 1][1]};
            multiply_terms<T>(sums[m][2 * pair], left, uint2{b.x, b.y});
            multiply_terms<T>(sums[m][2 * pair + 1], left, uint2{b.z, b.w});
          }
        }
      }
    }

    const auto item_of = [&](int of_warp) {
      return Item::at<rows>(call, (turn * call.pixel_warps + of_warp) * 8 + lane / 4);
    };
    if (call.channel_warps * call.slices == 1) {
      const Item item = item_of(pixel_warp);
#pragma unroll
      for (int m = 0; m < operands; ++m)
#pragma unroll
        for (int set = 0; set < sets; ++set) {
          float of_set[set_tiles<T>][4];
#pragma unroll
          for (int i = 0; i < 4 * set_tiles<T>; ++i) of_set[i / 4][i % 4] = sums[m][set * set_tiles<T> + i / 4][i % 4];
          if (item.p + 2 * m < call.p) finish<T>(call, activator, item, item.p + 2 * m, group * sets + set, of_set);
        }
      continue;
    }
    // [channel_warp][pixel_warp][operand][tile][lane]
    const int of_channels = call.pixel_warps * operands * tiles * 32;
    float4* const mine = partial + channel_warp * of_channels + pixel_warp * operands * tiles * 32 + lane;
#pragma unroll
    for (int i = 0; i < operands * tiles; ++i) {
      const float(&sum)[4] = sums[i / tiles][i % tiles];
      mine[i * 32] = {sum[0], sum[1], sum[2], sum[3]};
    }
    __syncthreads();
    if (call.slices > 1) {
      if (call.channel_warps > 1)
        for (int i = static_cast<int>(threadIdx.x); i < of_channels; i += static_cast<int>(blockDim.x)) {
          float4 sum = partial[i];
#pragma unroll 2
          for (int other = 1; other < call.channel_warps; ++other) sum = sum + partial[other * of_channels + i];
          partial[i] = sum;
        }
      sync_cluster();
    }
    const int sources = call.slices > 1 ? call.slices : call.channel_warps;
    for (int job = warp * call.slices + rank; job < call.pixel_warps * operands * sets; job += warps * call.slices) {
      const int set = job % sets, m = job / sets % operands;
      const float* const from =
          reinterpret_cast<const float*>(partial + (job / sets * tiles + set * set_tiles<T>)*32 + lane);
      float of_set[set_tiles<T>][4] = {};
#pragma unroll 2
      for (int source = 0; source < sources; ++source) {
        const auto* const theirs =
            reinterpret_cast<const float4*>(call.slices > 1 ? in_block(source, from) : from + 4 * source * of_channels);
#pragma unroll
        for (int i = 0; i < set_tiles<T>; ++i) {
          const float4 sum = theirs[i * 32];
          of_set[i][0] += sum.x, of_set[i][1] += sum.y, of_set[i][2] += sum.z, of_set[i][3] += sum.w;
        }
      }
      const Item item = item_of(job / sets / operands);
      if (item.p + 2 * m < call.p) finish<T>(call, activator, item, item.p + 2 * m, group * sets + set, of_set);
    }
    if (call.slices > 1)
      sync_cluster();
    else
      __syncthreads();
  }
}

/// The kernel that is instantiated for a cut.
template <typename T, int stride>
SeparableFunction separable_function(const SeparableCut& cut) {
  if (cut.rows == 4) {
    if constexpr (stride == 1)
      return cut.tiles == 4 ? separable_kernel<T, stride, 4, 4> : separable_kernel<T, stride, 4, 8>;
  }
  switch (cut.tiles) {
    case 4:
      return separable_kernel<T, stride, 2, 4>;
    case 8:
      return separable_kernel<T, stride, 2, 8>;
    case 12:
      return separable_kernel<T, stride, 2, 12>;
    case 16:
      return separable_kernel<T, stride, 2, 16>;
    default:
      return separable_kernel<T, stride, 2, 20>;
  }
}

}  // namespace
}  // namespace lenslet::cuda

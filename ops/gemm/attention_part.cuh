#pragma once
// What the kernels of 16-bit attention share: a warp's 16 queries, in the layout of a matrix product's accumulators. A
// lane has the rows lane / 4 and lane / 4 + 8, of each eight of columns two.

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "base/cuda/half_mma.cuh"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "ops/core/approximate_math.cuh"
#include "ops/gemm/attention_call.cuh"

namespace lenslet::cuda {

inline constexpr int tile_keys = bias_tile_keys, warp_queries = bias_tile_queries;

/// A tile of keys, or of a warpgroup's queries, in 16 bits.
template <int width>
inline constexpr int attention_tile_bytes = 64 * width * 2;

/// Where TMA's swizzle puts unit `unit`, of 16 bytes, of a tile's row `row`.
template <int width>
__device__ int swizzled_offset(int row, int unit) {
  return row * (width * 2) + (unit ^ (width == 64 ? row % 8 : row / 2 % 4)) * 16;
}

/// What a warp knows of its queries. Powers are 2^(scale score + shift), at most 2^slack: relative to the score `most`,
/// which follows only where a score is beyond `limit`: it mostly stays what the first keys made it.
template <int width>
struct Part {
  static constexpr float slack = 8;
  float most[2] = {-INFINITY, -INFINITY}, limit[2] = {-INFINITY, -INFINITY}, shift[2] = {};
  float sum[2] = {}, held[width / 8][4] = {};

  __device__ float base(int half) const { return most[half] == -INFINITY ? 0 : most[half]; }
  __device__ void raise(int half, float top, float scale) {
    const float before = most[half];
    most[half] = top;
    limit[half] = top + slack / scale;
    shift[half] = fminf(-base(half) * scale, FLT_MAX);  // a mask of bfloat16's least number stays finite
    const float grown = approximate_exp2((before - base(half)) * scale);
    sum[half] *= grown;
#pragma unroll
    for (auto& tile : held) tile[half * 2] *= grown, tile[half * 2 + 1] *= grown;
  }
  /// With the greatest scores of the lane's share of new keys.
  __device__ void follow(const float (&tops)[2], const float (&scale)[2]) {
    if (!__any_sync(0xffffffffU, tops[0] > limit[0] || tops[1] > limit[1])) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = tops[half];
      for (int mask = 1; mask < 4; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
      raise(half, fmaxf(most[half], top), scale[half]);
    }
  }
  /// Powers of 8 keys' and 8 more keys' scores, as operand A of their product by V.
  template <typename T>
  __device__ void take_powers(const float (&first)[4], const float (&second)[4], const float (&scale)[2],
                              std::uint32_t (&powers)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i % 2;
      const float* const two = (i < 2 ? first : second) + half * 2;
      const float low = approximate_exp2(fmaf(two[0], scale[half], shift[half]));
      const float high = approximate_exp2(fmaf(two[1], scale[half], shift[half]));
      sum[half] += low + high;
      powers[i] = narrowed_pair<T>(low, high);
    }
  }
  /// The same for a tile, of which `here` keys exist.
  template <typename T>
  __device__ void take_tile(const float (&score)[tile_keys / 8][4], const float (&scale)[2], int here,
                            std::uint32_t (&powers)[tile_keys / 16][4]) {
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < tile_keys / 2; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], score[i / 4][i % 4]);
    follow(top, scale);
#pragma unroll
    for (int two = 0; two < tile_keys / 16; ++two) {
      if (two * 16 < here)
        take_powers<T>(score[two * 2], score[two * 2 + 1], scale, powers[two]);
      else
        for (std::uint32_t& word : powers[two]) word = 0;
    }
  }
};

/// Sets the scores of keys from `here` on, which do not exist.
__device__ inline void mask_keys(float (&score)[tile_keys / 8][4], int here, int pair) {
  if (here == tile_keys) return;
#pragma unroll
  for (int i = 0; i < tile_keys / 2; ++i)
    if (i / 4 * 8 + pair + i % 2 >= here) score[i / 4][i % 4] = -INFINITY;
}

/// Biases of a warp's queries and 64 keys as the beginnings of sums, in units of products before they are scaled.
/// `tile`: of prepared ones (attention_bias.h), the lane's.
template <typename T>
__device__ void begin_with_biases(float (&score)[tile_keys / 8][4], const uint4* tile, const float (&units)[2]) {
#pragma unroll
  for (int part = 0; part < tile_keys / 16; ++part) {
    const uint4 words = __ldg(tile + part * 32);
    const std::uint32_t in_order[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 wide = widened_pair<T>(in_order[i]);
      float* const two = score[part * 2 + i / 2] + i % 2 * 2;
      two[0] = wide.x * units[i % 2], two[1] = wide.y * units[i % 2];
    }
  }
}
/// Biases i and i + 1 of a row of `here`; the last stands for those behind it. `pairs`: AttentionCall::bias_pairs.
template <typename T>
__device__ std::uint32_t biases_at(const T* row, bool pairs, int i, int here) {
  if (pairs) return *reinterpret_cast<const std::uint32_t*>(row + min(i, here - 2));
  return paired(row[min(i, here - 1)], row[min(i + 1, here - 1)]);
}

/// The biases of a lane's queries, `row` and row + 8.
template <typename T>
class LaneBiases {
 public:
  __device__ LaneBiases(const AttentionCall& call, const Place& place, const T* bias, int row, int lane, float scale)
      : pairs_(call.bias_pairs), units_{log2_e / scale, log2_e / scale} {
    if (call.bias_n == 0) return;
    if (call.bias_tiles) {
      tiles_ = reinterpret_cast<const uint4*>(bias) + place.of_bias_tile(call, min(row, call.queries - 1)) + lane;
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rows_[half] = bias + place.of_bias(call, min(row + half * 8, call.queries - 1));
  }
  __device__ bool exist() const { return tiles_ != nullptr || rows_[0] != nullptr; }
  /// Whether they are -inf for keys that do not exist.
  __device__ bool mask() const { return tiles_ != nullptr; }
  /// As the beginnings of the sums of tile `round`, of which `here` keys exist.
  __device__ void begin(float (&score)[tile_keys / 8][4], int round, int here, int pair) const {
    if (tiles_ != nullptr) return begin_with_biases<T>(score, tiles_ + round * bias_tile_quads, units_);
#pragma unroll
    for (int i = 0; i < tile_keys / 4; ++i) {
      const int tile = i / 2, half = i % 2;
      const float2 wide = widened_pair<T>(biases_at(rows_[half] + round * tile_keys, pairs_, tile * 8 + pair, here));
      score[tile][half * 2] = wide.x * units_[half], score[tile][half * 2 + 1] = wide.y * units_[half];
    }
  }

 private:
  const uint4* tiles_ = nullptr;  ///< prepared ones
  const T* rows_[2] = {nullptr, nullptr};
  bool pairs_;
  float units_[2];  ///< of a bias, as products before they are scaled
};

/// Writes a warp's results: of a lane the queries `row` and row + 8, which lie in `rows` of y, and channels from `pair`
/// on.
template <typename T, int width>
__device__ void store_rows(const Part<width>& part, T* y, const AttentionCall& call, const Place& place, int row,
                           const int (&rows)[2], int pair) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = part.sum[half];
    for (int mask = 1; mask < 4; mask *= 2) sum += shuffle_xor(sum, mask);
    if (row + half * 8 >= call.queries) continue;
    const float inverse = sum == 0 ? 0 : 1 / sum;
    T* const to = y + place.of(call.y) + rows[half] * call.y.token + pair;
    const auto scaled = [&](int c, int i) { return part.held[c][half * 2 + i] * inverse; };
    if (call.value_size % 8 == 0) {
#pragma unroll
      for (int c = 0; c < width / 8; ++c)
        if (c * 8 < call.value_size)
          *reinterpret_cast<std::uint32_t*>(to + c * 8) = narrowed_pair<T>(scaled(c, 0), scaled(c, 1));
    } else {
#pragma unroll
      for (int c = 0; c < width / 8; ++c)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (c * 8 + pair + i < call.value_size) to[c * 8 + i] = narrowed<T>(scaled(c, i));
    }
  }
}

}  // namespace lenslet::cuda

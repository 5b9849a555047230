// Attention of 16-bit values on tensor cores. Lanes as in base/cuda/mma.cuh.
//
// A warp has 16 queries, and 64 keys at a time. K and V come to shared memory in tiles of 64 tokens, up to 256 tokens
// ahead, 128 of wide heads. Where blocks are few, warps share the queries and take the tiles of keys in turn; what they
// have is joined at the end (T. Dao et al., "Flash-Decoding", 2023).

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/cuda/copy_async.cuh"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/core/approximate_math.cuh"
#include "ops/gemm/attention_part.cuh"

namespace lenslet::cuda {
namespace {

constexpr int most_warps = 8, most_tiles_held = 4;

/// How a problem is divided: the warps of a block have queries of their own, or they share them and divide the keys.
struct Shares {
  int query_warps = 1, key_warps = 1;  ///< of a block; one of them is 1
  int rounds = 1;                      ///< of tiles, one for each of key_warps
  int rounds_held = 1;                 ///< in shared memory

  __host__ __device__ int warps() const { return query_warps * key_warps; }
};
Shares shares_of(const AttentionProblem& p, int width) {
  constexpr std::int64_t multiprocessors = 132;  // of an H200; the same shares on all devices
  const std::int64_t queries = (p.queries + warp_queries - 1) / warp_queries;
  const auto tiles = static_cast<int>((p.keys + tile_keys - 1) / tile_keys);
  const int held = width > 64 ? most_tiles_held / 2 : most_tiles_held;
  Shares shares{.query_warps = most_warps};
  const auto blocks = [&] { return p.n * p.heads * ((queries + shares.query_warps - 1) / shares.query_warps); };
  if (blocks() < 2 * multiprocessors) shares.query_warps /= 2;
  while (shares.query_warps > 1 && shares.query_warps / 2 >= queries) shares.query_warps /= 2;
  if (tiles > 1 && blocks() < multiprocessors) shares = {.query_warps = 1, .key_warps = std::min(tiles, held)};
  shares.rounds = (tiles + shares.key_warps - 1) / shares.key_warps;
  shares.rounds_held = std::clamp(shares.rounds, 1, held / shares.key_warps);
  return shares;
}

template <typename T>
__device__ void add_squares(float& sum, std::uint32_t pair) {
  const float2 two = widened_pair<T>(pair);
  sum = fmaf(two.x, two.x, fmaf(two.y, two.y, sum));
}

/// to [64][width + 8] = rows from `first` on, and zeros behind them: columns of 16 bits, 16 bytes apart in banks.
template <int width, typename T>
__device__ void load_rows(T* to, const T* from, int token, const std::int32_t* table, int first, int count,
                          int channels, bool quads) {
  constexpr int packs = width / 8;  // a thread's are of the same channels
  const int c = static_cast<int>(threadIdx.x) % packs * 8, step = static_cast<int>(blockDim.x) / packs;
  int row = static_cast<int>(threadIdx.x) / packs;
  to += row * (width + 8) + c;
  const bool has_channels = c < channels;
  if (quads) {
    from += has_channels ? c : 0;
    if (table == nullptr) {
      const T* at = from + std::int64_t{first + row} * token;
      const std::int64_t next = std::int64_t{step} * token;
#pragma unroll 2
      for (; row < tile_keys; row += step, at += next, to += step * (width + 8)) {
        const bool is_row = first + row < count;
        copy_async_16(to, is_row ? at : from, has_channels && is_row);
      }
      return;
    }
#pragma unroll 2
    for (; row < tile_keys; row += step, to += step * (width + 8))
      copy_async_16(to, from + std::int64_t{__ldg(table + min(first + row, count - 1))} * token,
                    has_channels && first + row < count);
    return;
  }
#pragma unroll 1
  for (; row < tile_keys; row += step, to += step * (width + 8)) {
    EightHalves<T> eight{};
    if (has_channels && first + row < count) {
      const T* const x = from + std::int64_t{row_of(table, first + row)} * token + c;
      for (int l = 0; l < 8; ++l)
        if (c + l < channels) eight.pairs[l / 2] |= std::uint32_t{x[l].bits} << 16 * (l % 2);
    }
    *reinterpret_cast<EightHalves<T>*>(to) = eight;
  }
}

/// to [64] = the inverse norms of rows that load_rows has written.
template <int width, typename T>
__device__ void inverse_norms(float* to, const T* rows, const AttentionCall& call) {
  constexpr int packs = width / 8;
  for (int i = static_cast<int>(threadIdx.x); i < tile_keys * packs; i += static_cast<int>(blockDim.x)) {
    const auto& eight = *reinterpret_cast<const EightHalves<T>*>(rows + i / packs * (width + 8) + i % packs * 8);
    float squares = 0;
    for (const std::uint32_t pair : eight.pairs) add_squares<T>(squares, pair);
    for (int mask = 1; mask < packs; mask *= 2) squares += shuffle_xor(squares, mask);
    if (i % packs == 0) to[i / packs] = inverse_norm(squares, call);
  }
}

/// Channels c and c + 1 of a row; 0 where there are none.
template <typename T>
__device__ std::uint32_t pair_at(const T* row, int c, int channels) {
  if (c >= channels) return 0;
  return std::uint32_t{row[c].bits} | (c + 1 < channels ? std::uint32_t{row[c + 1].bits} << 16 : 0);
}

/// Writes a warp's part to [lane]; joins another warp's from there: both are brought to the greater `most`.
template <int width>
__device__ void store(const Part<width>& part, float* to) {
#pragma unroll
  for (int i = 0; i < width / 2; ++i) to[i * warp_threads] = part.held[i / 4][i % 4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    to[(width / 2 + half) * warp_threads] = part.most[half];
    to[(width / 2 + 2 + half) * warp_threads] = part.sum[half];
  }
}
template <int width>
__device__ void join(Part<width>& part, const float* other, const float (&scale)[2]) {
  float grown[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float most = other[(width / 2 + half) * warp_threads];
    part.raise(half, fmaxf(part.most[half], most), scale[half]);
    grown[half] = approximate_exp2((most - part.base(half)) * scale[half]);
    part.sum[half] = fmaf(other[(width / 2 + 2 + half) * warp_threads], grown[half], part.sum[half]);
  }
#pragma unroll
  for (int i = 0; i < width / 2; ++i) {
    float& value = part.held[i / 4][i % 4];
    value = fmaf(other[i * warp_threads], grown[i % 4 / 2], value);
  }
}
/// Floats of a warp's stored part.
template <int width>
constexpr int part_floats = (width / 2 + 4) * warp_threads;

template <int width>
constexpr int tile_elems = tile_keys*(width + 8);

/// Shared memory: K and V [rounds_held][key_warps][64][width + 8], norms [key_warps][64] if `unit`; then the parts.
template <int width>
std::size_t shared_bytes(const Shares& shares, bool unit) {
  const auto tiles = static_cast<std::size_t>(shares.rounds_held * shares.key_warps);
  const std::size_t rows = tiles * 2 * tile_elems<width> * sizeof(Float16);
  const std::size_t norms = unit ? static_cast<std::size_t>(shares.key_warps * tile_keys) * sizeof(float) : 0;
  const auto parts = static_cast<std::size_t>((shares.key_warps - 1) * part_floats<width>);
  return std::max(rows + norms, parts * sizeof(float));
}

/// Adds up to 64 keys to a warp's part. `score`: what sums of products begin with, -inf where there is no key; 0 if
/// `zeros`. k_row and v_row: the lane's rows of ldmatrix. `whole`: 64 keys are here; that leaves out all checks. What
/// `finish` makes of a tile's products are scores.
template <bool whole, bool zeros, typename T, int width, class Finish>
__device__ __forceinline__ void add_keys(Part<width>& part, float (&score)[tile_keys / 8][4],
                                         const std::uint32_t (&left)[width / 16][4], const float (&scale)[2],
                                         const T* k_row, const T* v_row, int here, const Finish& finish) {
  constexpr int stride = width + 8, tiles = tile_keys / 8;
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
    if (!whole && tile * 8 >= here) break;
    if constexpr (zeros)
      for (float& s : score[tile]) s = 0;
#pragma unroll
    for (int step = 0; step < width / 16; step += 2) {
      std::uint32_t right[4];  // two steps of K
      ldmatrix(right, k_row + tile * 8 * stride + step * 16);
      mma<T>(score[tile], left[step], right[0], right[1]);
      mma<T>(score[tile], left[step + 1], right[2], right[3]);
    }
  }
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
    if (!whole && tile * 8 >= here) break;
    finish(score[tile], tile);
#pragma unroll
    for (int i = 0; i < 4; ++i) top[i / 2] = fmaxf(top[i / 2], score[tile][i]);
  }
  part.follow(top, scale);
#pragma unroll
  for (int tile = 0; tile < tiles; tile += 2) {
    if (!whole && tile * 8 >= here) break;
    std::uint32_t powers[4];
    part.template take_powers<T>(score[tile], score[tile + 1], scale, powers);
#pragma unroll
    for (int c = 0; c < width / 8; c += 2) {
      std::uint32_t right[4];
      ldmatrix_trans(right, v_row + tile * 8 * stride + c * 8);
      mma<T>(part.held[c], powers, right[0], right[1]);
      mma<T>(part.held[c + 1], powers, right[2], right[3]);
    }
  }
}

/// Channels are at most `width`: 32, 64 or 128. `unit`: rows of Q and K are divided by their norms. Up to a width of 64
/// a multiprocessor has 16 warps.
template <typename T, int width, bool unit>
__global__ void __launch_bounds__(most_warps* warp_threads, width <= 64 ? 2 : 1)
    attend(const T* q, const T* k, const T* v, const T* bias, T* y, const __grid_constant__ AttentionCall call,
           const Shares shares) {
  constexpr int stride = width + 8, steps = width / 16, tiles = tile_keys / 8;
  extern __shared__ float4 shared[];
  T* const k_rows = reinterpret_cast<T*>(shared);
  const int tiles_held = shares.rounds_held * shares.key_warps;
  T* const v_rows = k_rows + tiles_held * tile_elems<width>;
  float* const of_keys = reinterpret_cast<float*>(v_rows + tiles_held * tile_elems<width>);
  const Place place(call);
  const int warp = static_cast<int>(threadIdx.x) / warp_threads, lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int own = shares.key_warps > 1 ? 0 : warp, turn = warp - own;
  const int pair = lane % 4 * 2;
  const int first = (place.block * shares.query_warps + own) * warp_queries, row = first + lane / 4;  // and row + 8
  const std::int32_t* const table = place.table;
  int rows[2];  // of this lane's two queries
#pragma unroll
  for (int half = 0; half < 2; ++half) rows[half] = row_of(table, min(row + half * 8, call.queries - 1));
  wait_for_previous();  // the table is a constant, and no earlier step's work
  let_next_start();

  const T *const k_first = k + place.of(call.k), *const v_first = v + place.of(call.v);
  const int k_token = static_cast<int>(call.k.token), v_token = static_cast<int>(call.v.token);
  const auto fetch = [&](int round, int slot) {
    for (int i = 0; i < shares.key_warps; ++i) {
      const int key = (round * shares.key_warps + i) * tile_keys,
                to = (slot * shares.key_warps + i) * tile_elems<width>;
      if (key >= call.keys) break;
      load_rows<width>(k_rows + to, k_first, k_token, table, key, call.keys, call.head_size, call.quads_qk);
      load_rows<width>(v_rows + to, v_first, v_token, table, key, call.keys, call.value_size, call.quads_v);
    }
    commit_copies();
  };
  const int ahead = shares.rounds_held - 1;
#pragma unroll 1
  for (int round = 0; round <= ahead; ++round) fetch(round, round);

  std::uint32_t left[steps][4];
  float scale[2] = {place.scale(call), place.scale(call)};
  const std::uint32_t signs = scale[0] < 0 ? 0x80008000U : 0;  // of Q, so that scales are positive
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T* const x = q + place.of(call.q) + rows[half] * call.q.token + pair;
    if (call.quads_qk) {
#pragma unroll
      for (int i = 0; i < width / 8; ++i)
        left[i / 2][i % 2 * 2 + half] = i * 8 < call.head_size ? *reinterpret_cast<const std::uint32_t*>(x + i * 8) : 0;
    } else {
#pragma unroll
      for (int i = 0; i < width / 8; ++i) left[i / 2][i % 2 * 2 + half] = pair_at(x, i * 8, call.head_size - pair);
    }
    scale[half] = fabsf(scale[half]);
    if constexpr (unit) {
      float squares = 0;
#pragma unroll
      for (int step = 0; step < steps; ++step)
        add_squares<T>(squares, left[step][half]), add_squares<T>(squares, left[step][half + 2]);
      for (int mask = 1; mask < 4; mask *= 2) squares += shuffle_xor(squares, mask);
      scale[half] = fmaxf(scale[half] * inverse_norm(squares, call), 1e-30F);
    }
#pragma unroll
    for (int i = 0; i < width / 8; ++i) left[i / 2][i % 2 * 2 + half] ^= signs;
  }
  const bool biased = call.bias_n > 0;
  const T* const biases[2] = {bias + (biased ? place.of_bias(call, min(row, call.queries - 1)) : 0),
                              bias + (biased ? place.of_bias(call, min(row + 8, call.queries - 1)) : 0)};
  const uint4* const bias_tiles =
      reinterpret_cast<const uint4*>(bias) + (biased && call.bias_tiles ? place.of_bias_tile(call, first) + lane : 0);
  const float units[2] = {log2_e / scale[0], log2_e / scale[1]};  // of a bias, as products before they are scaled

  Part<width> part;
  int slot = 0;
#pragma unroll 1
  for (int round = 0; round < shares.rounds; ++round) {
    if (round > 0 && round + ahead < shares.rounds) {
      __syncthreads();
      fetch(round + ahead, slot == 0 ? ahead : slot - 1);
    }
    const int key = (round * shares.key_warps + turn) * tile_keys, here = min(call.keys - key, tile_keys);
    const bool computes = here > 0 && first < call.queries, whole = here == tile_keys;
    float score[tiles][4];
    const bool begins_with_bias = !unit && biased;  // loaded before the wait
    if (computes && begins_with_bias && call.bias_tiles) {
      begin_with_biases<T>(score, bias_tiles + (round * shares.key_warps + turn) * bias_tile_quads, units);
    } else if (computes && begins_with_bias) {
#pragma unroll
      for (int i = 0; i < tiles * 2; ++i) {
        const int tile = i / 2, half = i % 2;
        const float2 wide = widened_pair<T>(biases_at(biases[half] + key, call.bias_pairs, tile * 8 + pair, here));
        score[tile][half * 2] = wide.x * units[half], score[tile][half * 2 + 1] = wide.y * units[half];
      }
    } else if (!whole) {
#pragma unroll
      for (auto& tile : score)
        for (float& s : tile) s = 0;
    }
    if (!whole) {
#pragma unroll
      for (int i = 0; i < tiles * 4; ++i)
        if (i / 4 * 8 + pair + i % 2 >= here) score[i / 4][i % 4] = -INFINITY;
    }
    wait_for_copies<most_tiles_held - 1>(min(shares.rounds - 1 - round, ahead));
    __syncthreads();
    const int at = slot * shares.key_warps;
    if constexpr (unit) {
      for (int i = 0;
           i < min(shares.key_warps, (call.keys - round * shares.key_warps * tile_keys + tile_keys - 1) / tile_keys);
           ++i)
        inverse_norms<width>(of_keys + i * tile_keys, k_rows + (at + i) * tile_elems<width>, call);
      __syncthreads();
    }
    if (computes) {
      const auto finish = [&](float(&sums)[4], int tile) {
        if constexpr (unit) {
          const float2 of_key = *reinterpret_cast<const float2*>(of_keys + turn * tile_keys + tile * 8 + pair);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float2 plus =
                biased ? widened_pair<T>(biases_at(biases[half] + key, call.bias_pairs, tile * 8 + pair, here))
                       : float2{0, 0};
            sums[half * 2] = fmaf(plus.x, units[half], sums[half * 2] * of_key.x);
            sums[half * 2 + 1] = fmaf(plus.y, units[half], sums[half * 2 + 1] * of_key.y);
          }
        }
      };
      const T* const k_row = k_rows + (at + turn) * tile_elems<width> + lane % 8 * stride + lane / 8 * 8;
      const T* const v_row = v_rows + (at + turn) * tile_elems<width> + lane % 16 * stride + lane / 16 * 8;
      if (whole && !begins_with_bias)
        add_keys<true, true, T, width>(part, score, left, scale, k_row, v_row, here, finish);
      else if (whole)
        add_keys<true, false, T, width>(part, score, left, scale, k_row, v_row, here, finish);
      else
        add_keys<false, false, T, width>(part, score, left, scale, k_row, v_row, here, finish);
    }
    if (++slot == shares.rounds_held) slot = 0;
  }

  if (shares.key_warps > 1) {
    __syncthreads();
    auto* const parts = reinterpret_cast<float*>(shared) + lane;
    if (turn > 0) store(part, parts + (turn - 1) * part_floats<width>);
    __syncthreads();
    if (turn > 0) return;
    for (int i = 0; i < shares.key_warps - 1; ++i) join(part, parts + i * part_floats<width>, scale);
  }
  store_rows<T>(part, y, call, place, row, rows, pair);
}

template <typename T, int width>
void start(const Context& context, const AttentionProblem& p, AttentionCall call, const void* q, const void* k,
           const void* v, const void* bias, void* y) {
  const Shares shares = shares_of(p, width);
  const int queries = shares.query_warps * warp_queries;
  call.blocks = (call.queries + queries - 1) / queries;
  const bool unit = call.epsilon > 0;
  const auto kernel = unit ? attend<T, width, true> : attend<T, width, false>;
  const std::size_t bytes = shared_bytes<width>(shares, unit);
  allow_shared_bytes(kernel, bytes);
  launch(context, kernel, dim3(static_cast<unsigned>(p.n * p.heads * call.blocks)),
         dim3(static_cast<unsigned>(shares.warps() * warp_threads)), bytes, static_cast<const T*>(q),
         static_cast<const T*>(k), static_cast<const T*>(v), static_cast<const T*>(bias), static_cast<T*>(y), call,
         shares);
}

}  // namespace

void attention_mma(const Context& context, const AttentionProblem& p, AttentionCall call, DType dtype, const void* q,
                   const void* k, const void* v, const void* bias, void* y) {
  const auto widest = std::max(p.head_size, p.value_size);
  dispatch(dtype, HalfTypes(), [&]<typename T>(std::type_identity<T>) {
    const auto run = widest <= 32 ? start<T, 32> : widest <= 64 ? start<T, 64> : start<T, 128>;
    run(context, p, call, q, k, v, bias, y);
  });
}

}  // namespace lenslet::cuda

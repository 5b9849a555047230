// Attention of float32, and of float32 with products in TF32, for heads of up to 128 channels in rows of 16-byte units.
//
// A warp has 16 queries, and a tile of 56 or 64 keys at a time, whose K, V and biases come to shared memory; V's copy
// runs while the scores are computed, the next K's while they are multiplied by V. A lane holds some rows and keys of
// the scores in registers: those that its products leave there.

#include <algorithm>
#include <cmath>

#include "base/cuda/copy_async.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "ops/core/approximate_math.cuh"
#include "ops/gemm/attention_call.cuh"
#include "ops/gemm/attention_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int most_warps = 4, warp_rows = 16;
constexpr int least_shared_bytes = 99 << 10;  ///< that every device gives a block from sm_80 on

/// to [tokens][stride] = rows from `first` on, and zeros behind them.
template <int width, int stride>
__device__ void copy_rows(float* to, const float* from, std::int64_t token, const std::int32_t* table, int first,
                          int tokens, int count, int channels) {
  constexpr int quads = width / 4;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * quads; i += static_cast<int>(blockDim.x)) {
    const int row = i / quads, c = i % quads * 4;
    const bool valid = first + row < count && c < channels;
    copy_async<4>(to + row * stride + c, valid ? from + row_of(table, first + row) * token + c : from, valid);
  }
}
/// Rounds what the same thread has copied with copy_rows().
template <int width, int stride>
__device__ void round_rows(float* rows, int tokens) {
  constexpr int quads = width / 4;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * quads; i += static_cast<int>(blockDim.x)) {
    auto* const at = reinterpret_cast<float4*>(rows + i / quads * stride + i % quads * 4);
    const float4 a = *at;
    const auto rounded = [](float value) { return __uint_as_float(round_to_tf32(value)); };
    *at = make_float4(rounded(a.x), rounded(a.y), rounded(a.z), rounded(a.w));
  }
}

/// Floats from one of a warp's queries to the next in its biases, [16][tile].
template <int tile>
constexpr int bias_stride = tile + 4;

/// to [16][bias_stride] = biases of a warp's queries, `step` apart from `from` on, and of `here` keys of a tile; by the
/// warp. `rows`: queries that exist, of which the last stands for those behind it.
template <int tile>
__device__ void copy_biases(float* to, const float* from, int step, int rows, int here, bool quads, int lane) {
  if (quads) {
    constexpr int packs = tile / 4;
    for (int i = lane; i < warp_rows * packs; i += warp_threads) {
      const int row = i / packs, c = i % packs * 4;
      const bool valid = c < here;
      copy_async<4>(to + row * bias_stride<tile> + c, valid ? from + min(row, rows - 1) * step + c : from, valid);
    }
    return;
  }
  for (int row = 0; row < warp_rows; ++row)
    for (int c = lane; c < here; c += warp_threads)
      copy_async<1>(to + row * bias_stride<tile> + c, from + min(row, rows - 1) * step + c, true);
}

/// Products of floats by FMA: a lane has four queries, every eighth key, and of 32 channels four.
template <int width_, int groups>
struct FloatWarp {
  static constexpr bool rounds = false;
  static constexpr int blocks = width_ == 32 ? 4 : 1;  ///< a multiprocessor, at least
  static constexpr int width = width_, tile = groups * 8, lanes = 8, rows = 4, keys = groups, channels = width / 8;
  static constexpr int k_stride = width + 4, v_stride = width + 4;
  static constexpr int query_floats = warp_rows * (width + 4);  ///< of a warp, in shared memory

  float* own;  ///< the warp's queries
  int lane;
  float score[rows][keys], held[rows][channels] = {};

  __device__ static int row(int lane, int i) { return i * 4 + lane / 8; }
  __device__ static int key(int lane, int j) { return j * 8 + lane % 8; }
  __device__ static int channel(int lane, int c) { return c / 4 * 32 + lane % 8 * 4 + c % 4; }

  __device__ float* query(int i) { return own + row(lane, i) * (width + 4); }

  __device__ void load(const float* const (&q)[rows], int head_size, float (&squares)[rows]) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      squares[i] = 0;
      for (int c = lane % 8 * 4; c < width; c += 32) {
        const float4 a = c < head_size ? *reinterpret_cast<const float4*>(q[i] + c) : float4{};
        *reinterpret_cast<float4*>(query(i) + c) = a;
        squares[i] = fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(a.z, a.z, fmaf(a.w, a.w, squares[i]))));
      }
    }
    __syncwarp();
  }
  __device__ void multiply(const float* k_rows, int head_size, int) {
#pragma unroll
    for (auto& of_row : score)
      for (float& s : of_row) s = 0;
#pragma unroll 1
    for (int c = 0; c < head_size; c += 4) {
      float4 a[rows];
#pragma unroll
      for (int i = 0; i < rows; ++i) a[i] = *reinterpret_cast<const float4*>(query(i) + c);
#pragma unroll
      for (int j = 0; j < keys; ++j) {
        const float4 b = *reinterpret_cast<const float4*>(k_rows + key(lane, j) * k_stride + c);
#pragma unroll
        for (int i = 0; i < rows; ++i)
          score[i][j] = fmaf(a[i].x, b.x, fmaf(a[i].y, b.y, fmaf(a[i].z, b.z, fmaf(a[i].w, b.w, score[i][j]))));
      }
    }
  }
  /// `biases` [16][bias_stride], the warp's, which the powers replace: each lane what it alone has read.
  __device__ void add_values(const float* v_rows, float* biases, int here) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < keys; ++j) biases[row(lane, i) * bias_stride<tile> + key(lane, j)] = score[i][j];
    __syncwarp();
#pragma unroll 1
    for (int first = 0; first < here; first += 4) {
      float4 p[rows];
#pragma unroll
      for (int i = 0; i < rows; ++i)
        p[i] = *reinterpret_cast<const float4*>(biases + row(lane, i) * bias_stride<tile> + first);
#pragma unroll
      for (int l = 0; l < 4; ++l)
#pragma unroll
        for (int c = 0; c < channels; c += 4) {
          const float4 v = *reinterpret_cast<const float4*>(v_rows + (first + l) * v_stride + channel(lane, c));
#pragma unroll
          for (int i = 0; i < rows; ++i) {
            const float power = l == 0 ? p[i].x : l == 1 ? p[i].y : l == 2 ? p[i].z : p[i].w;
            held[i][c] = fmaf(power, v.x, held[i][c]);
            held[i][c + 1] = fmaf(power, v.y, held[i][c + 1]);
            held[i][c + 2] = fmaf(power, v.z, held[i][c + 2]);
            held[i][c + 3] = fmaf(power, v.w, held[i][c + 3]);
          }
        }
    }
    __syncwarp();
  }
  __device__ static float power(float x) { return exp2f(x); }
};

/// Products of operands rounded to TF32, on tensor cores: a lane has rows and keys as mma<float>() leaves them. Both
/// products sum in an order that saves exchanging operands: of 16 channels a lane has four in a row as operands of two
/// instructions, and of 8 keys those of its scores.
template <int width_, int groups>
struct Tf32Warp {
  static constexpr bool rounds = true;
  static constexpr int blocks = width_ == 32 ? 4 : 1;
  static constexpr int width = width_, tile = groups * 8, lanes = 4, rows = 2, keys = 2 * groups, channels = width / 4;
  // Without bank conflicts: 8 lanes read 2 rows of K, 16 bytes each; 32 lanes read 8 floats of 4 pairs of rows of V.
  static constexpr int k_stride = width + 16, v_stride = width + 4;
  static constexpr int query_floats = 0;  ///< they are in registers

  float* own;
  int lane;
  float score[rows][keys], held[rows][channels] = {};
  std::uint32_t left[width / 8][4];

  __device__ static int row(int lane, int i) { return i * 8 + lane / 4; }
  __device__ static int key(int lane, int j) { return j / 2 * 8 + lane % 4 * 2 + j % 2; }
  __device__ static int channel(int lane, int c) { return c / 2 * 8 + lane % 4 * 2 + c % 2; }

  __device__ void load(const float* const (&q)[rows], int head_size, float (&squares)[rows]) {
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      squares[i] = 0;
#pragma unroll
      for (int block = 0; block < width / 16; ++block) {
        const int c = block * 16 + lane % 4 * 4;
        const float4 a = c < head_size ? *reinterpret_cast<const float4*>(q[i] + c) : float4{};
        squares[i] = fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(a.z, a.z, fmaf(a.w, a.w, squares[i]))));
        left[block * 2][i] = round_to_tf32(a.x), left[block * 2][i + 2] = round_to_tf32(a.y);
        left[block * 2 + 1][i] = round_to_tf32(a.z), left[block * 2 + 1][i + 2] = round_to_tf32(a.w);
      }
    }
  }
  __device__ void multiply(const float* k_rows, int, int here) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      float sums[4] = {};
      if (group * 8 < here) {
#pragma unroll
        for (int block = 0; block < width / 16; ++block) {
          const uint4 b =
              *reinterpret_cast<const uint4*>(k_rows + (group * 8 + lane / 4) * k_stride + block * 16 + lane % 4 * 4);
          mma<float>(sums, left[block * 2], b.x, b.y);
          mma<float>(sums, left[block * 2 + 1], b.z, b.w);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) score[i / 2][group * 2 + i % 2] = sums[i];
    }
  }
  __device__ void add_values(const float* v_rows, float*, int here) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      if (group * 8 >= here) break;
      const std::uint32_t powers[4] = {round_to_tf32(score[0][group * 2]), round_to_tf32(score[1][group * 2]),
                                       round_to_tf32(score[0][group * 2 + 1]), round_to_tf32(score[1][group * 2 + 1])};
      const float* const v = v_rows + (group * 8 + lane % 4 * 2) * v_stride + lane / 4;
#pragma unroll
      for (int c = 0; c < channels; c += 2) {
        float sums[4] = {held[0][c], held[0][c + 1], held[1][c], held[1][c + 1]};
        mma<float>(sums, powers, __float_as_uint(v[c * 4]), __float_as_uint(v[v_stride + c * 4]));
        held[0][c] = sums[0], held[0][c + 1] = sums[1], held[1][c] = sums[2], held[1][c + 1] = sums[3];
      }
    }
  }
  __device__ static float power(float x) { return approximate_exp2(x); }
};

/// Floats of a warp's own in shared memory: its queries, its biases.
template <class Warp>
constexpr int own_floats = Warp::query_floats + warp_rows* bias_stride<Warp::tile>;
/// Floats of shared memory: K, V, the norms of keys, and what the warps have to themselves.
template <class Warp>
constexpr int shared_floats(int warps) {
  return Warp::tile * (Warp::k_stride + Warp::v_stride + 1) + warps * own_floats<Warp>;
}

template <class Warp>
__global__ void __launch_bounds__(most_warps* warp_threads, Warp::blocks)
    attend(const float* q, const float* k, const float* v, const float* bias, float* y,
           const __grid_constant__ AttentionCall call, bool bias_quads) {
  wait_for_previous();
  let_next_start();
  constexpr int rows = Warp::rows, keys = Warp::keys, tile = Warp::tile;
  extern __shared__ float4 shared[];
  float* const k_rows = reinterpret_cast<float*>(shared);
  float* const v_rows = k_rows + tile * Warp::k_stride;
  float* const of_keys = v_rows + tile * Warp::v_stride;
  const Place place(call);
  const int warp = static_cast<int>(threadIdx.x) / warp_threads, lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int warps = static_cast<int>(blockDim.x) / warp_threads;
  const int first = (place.block * warps + warp) * warp_rows;
  const float *const k_first = k + place.of(call.k), *const v_first = v + place.of(call.v);
  const auto fetch_k = [&](int from) {
    if (from < call.keys)
      copy_rows<Warp::width, Warp::k_stride>(k_rows, k_first, call.k.token, place.table, from, tile, call.keys,
                                             call.head_size);
    commit_copies();
  };
  float* const own = of_keys + tile + warp * own_floats<Warp>;
  float* const biases = own + Warp::query_floats;
  const bool biased = call.bias_n > 0 && first < call.queries;
  const float* const bias_first = bias + (biased ? place.of_bias(call, first) : 0);
  const auto fetch_v = [&](int from) {
    if (from < call.keys) {
      copy_rows<Warp::width, Warp::v_stride>(v_rows, v_first, call.v.token, place.table, from, tile, call.keys,
                                             call.value_size);
      if (biased)
        copy_biases<tile>(biases, bias_first + from, call.bias_queries == 1 ? 0 : call.keys, call.queries - first,
                          min(call.keys - from, tile), bias_quads, lane);
    }
    commit_copies();
  };
  fetch_k(0);
  fetch_v(0);

  Warp part;
  part.own = own;
  part.lane = lane;
  int lies[rows];  // the rows of this lane's queries; of those behind the last, the last's
  const float* from[rows];
  float scale[rows], most[rows], sum[rows] = {};
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    const int query = min(first + Warp::row(lane, i), call.queries - 1);
    lies[i] = row_of(place.table, query);
    from[i] = q + place.of(call.q) + lies[i] * call.q.token;
    most[i] = -INFINITY;
  }
  float squares[rows];
  part.load(from, call.head_size, squares);
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    scale[i] = place.scale(call);
    if (call.epsilon > 0) {
      for (int mask = 1; mask < Warp::lanes; mask *= 2) squares[i] += shuffle_xor(squares[i], mask);
      scale[i] *= inverse_norm(squares[i], call);
    }
  }

#pragma unroll 1
  for (int begin = 0; begin < call.keys; begin += tile) {
    const int here = min(call.keys - begin, tile);
    wait_for_copies<1>();
    if constexpr (Warp::rounds) round_rows<Warp::width, Warp::k_stride>(k_rows, tile);
    __syncthreads();
    part.multiply(k_rows, call.head_size, here);
    if (call.epsilon > 0) {
      for (int i = static_cast<int>(threadIdx.x); i < tile; i += static_cast<int>(blockDim.x)) {
        float of_key = 0;
        for (int c = 0; c < call.head_size; ++c)
          of_key = fmaf(k_rows[i * Warp::k_stride + c], k_rows[i * Warp::k_stride + c], of_key);
        of_keys[i] = inverse_norm(of_key, call);
      }
    }
    __syncthreads();
    fetch_k(begin + tile);
    wait_for_copies<1>();
    __syncwarp();  // biases
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < keys; ++j) {
        const int key = Warp::key(lane, j);
        float s = -INFINITY;
        if (key < here) {
          s = part.score[i][j] * scale[i];
          if (call.epsilon > 0) s *= of_keys[key];
          if (biased) s = fmaf(biases[Warp::row(lane, i) * bias_stride<tile> + key], log2_e, s);
        }
        part.score[i][j] = s;
        top = fmaxf(top, s);
      }
      for (int mask = 1; mask < Warp::lanes; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
      top = fmaxf(top, most[i]);
      const float base = top == -INFINITY ? 0 : top, grown = Warp::power(most[i] - base);
      most[i] = top;
      float total = 0;
#pragma unroll
      for (int j = 0; j < keys; ++j) total += part.score[i][j] = Warp::power(part.score[i][j] - base);
      sum[i] = fmaf(sum[i], grown, total);
#pragma unroll
      for (float& value : part.held[i]) value *= grown;
    }
    if constexpr (Warp::rounds) round_rows<Warp::width, Warp::v_stride>(v_rows, tile);
    __syncthreads();
    part.add_values(v_rows, biases, here);
    __syncthreads();
    fetch_v(begin + tile);
  }

#pragma unroll
  for (int i = 0; i < rows; ++i) {
    for (int mask = 1; mask < Warp::lanes; mask *= 2) sum[i] += shuffle_xor(sum[i], mask);
    if (first + Warp::row(lane, i) >= call.queries) continue;
    float* const to = y + place.of(call.y) + lies[i] * call.y.token;
    const float inverse = sum[i] == 0 ? 0 : 1 / sum[i];
    constexpr int pack = Warp::rounds ? 2 : 4;  // a lane's channels in a row
#pragma unroll
    for (int c = 0; c < Warp::channels; c += pack) {
      const int at = Warp::channel(lane, c);
      if (at >= call.value_size) continue;
      const float* const values = part.held[i] + c;
      if constexpr (pack == 4)
        *reinterpret_cast<float4*>(to + at) =
            make_float4(values[0] * inverse, values[1] * inverse, values[2] * inverse, values[3] * inverse);
      else
        *reinterpret_cast<float2*>(to + at) = make_float2(values[0] * inverse, values[1] * inverse);
    }
  }
}

template <class Warp>
void start(const Context& context, const AttentionProblem& p, AttentionCall call, const float* q, const float* k,
           const float* v, const float* bias, float* y) {
  constexpr std::int64_t multiprocessors = 132;  // of an H200; the same blocks on all devices
  const std::int64_t groups = (p.queries + warp_rows - 1) / warp_rows;
  constexpr auto fits = [](int warps) { return shared_floats<Warp>(warps) * 4 <= least_shared_bytes; };
  static_assert(fits(most_warps / 2));
  int warps = fits(most_warps) ? most_warps : most_warps / 2;
  while (warps > 1 && (warps / 2 >= groups || p.n * p.heads * ((groups + warps - 1) / warps) < multiprocessors))
    warps /= 2;
  call.blocks = static_cast<int>((groups + warps - 1) / warps);
  const std::size_t bytes = static_cast<std::size_t>(shared_floats<Warp>(warps)) * sizeof(float);
  allow_shared_bytes(attend<Warp>, bytes);
  launch(context, attend<Warp>, dim3(static_cast<unsigned>(p.n * p.heads * call.blocks)),
         dim3(static_cast<unsigned>(warps * warp_threads)), bytes, q, k, v, bias, y, call,
         p.keys % 4 == 0 && quad_aligned(bias));
}

}  // namespace

bool attention_tiles(const Context& context, const AttentionProblem& p, AttentionCall call, bool tf32, const float* q,
                     const float* k, const float* v, const float* bias, float* y) {
  if (!fits_attention_tiles(p) || !quad_aligned(q, k, v, y)) return false;
  const std::int64_t widest = std::max(p.head_size, p.value_size);
  const auto padded = [&](std::int64_t tile) { return (p.keys + tile - 1) / tile * tile; };
  const bool narrow = padded(56) < padded(64);
  const auto with = [&]<int width>(std::integral_constant<int, width>) {
    const auto run = tf32     ? narrow ? start<Tf32Warp<width, 7>> : start<Tf32Warp<width, 8>>
                         : narrow ? start<FloatWarp<width, 7>>
                              : start<FloatWarp<width, 8>>;
    run(context, p, call, q, k, v, bias, y);
  };
  if (widest <= 32)
    with(std::integral_constant<int, 32>());
  else if (widest <= 64)
    with(std::integral_constant<int, 64>());
  else
    with(std::integral_constant<int, 128>());
  return true;
}

}  // namespace lenslet::cuda

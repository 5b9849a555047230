// Attention between channels (AttentionProblem::between_channels). A block has the tokens of a head, or some of them:
// it adds up Q^T K over tiles of tokens, takes the softmax of its rows, and multiplies tiles of V by the transpose of
// that. Where blocks share a head these are three launches: sums of each block, the softmax of all of them, products.

#include <algorithm>
#include <cmath>

#include "base/cuda/copy_async.cuh"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/core/approximate_math.cuh"
#include "ops/gemm/attention_call.cuh"
#include "ops/gemm/attention_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int warps = 4, block_threads = warps * warp_threads;

/// Tiles in flight of Q and K, and of V in the same memory.
constexpr int score_slots = 3, value_slots = 2 * score_slots;

/// What a block holds. Tiles are [tokens][stride]. Of 16 bits the softmax is [row][stride], of float32 its transpose.
template <typename T, int width>
struct Shared {
  static constexpr int tokens = 128 / int{sizeof(T)}, pack = 16 / int{sizeof(T)}, stride = width + pack;

  alignas(16) T tiles[value_slots][tokens * stride];
  alignas(16) T shares[width * stride];
  float scores[width][width + 1];
  float squares[2 * width];  ///< of columns of Q, then of K
};

/// What a launch does.
enum class Phase { all, sums, values };

struct ChannelCall {
  AttentionCall attention;
  Phase phase;
  int score_tokens, value_tokens;  ///< of a block
  bool quads_y;
};

__device__ inline int thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int warp() { return thread() / warp_threads; }
__device__ inline int lane() { return thread() % warp_threads; }

/// Copies a tile of tokens from `first` on to shared memory, with zeros behind `end` and the channels.
template <int width, typename T>
__device__ void load_tile(T* to, const T* from, std::int64_t token, int first, int end, int channels, bool quads) {
  using S = Shared<T, width>;
  constexpr int packs = width / S::pack;
#pragma unroll 4
  for (int i = thread(); i < S::tokens * packs; i += block_threads) {
    const int row = i / packs, c = i % packs * S::pack;
    T* const at = to + row * S::stride + c;
    const T* const x = from + (first + row) * token + c;
    const bool here = first + row < end;
    if (quads) {
      copy_async_16(at, here && c < channels ? x : from, here && c < channels);
    } else {
#pragma unroll
      for (int l = 0; l < S::pack; ++l) at[l] = here && c + l < channels ? x[l] : T{};
    }
  }
}

/// Starts the copies of the first tiles: fetch(tile, slot).
template <int slots, class Fetch>
__device__ void begin_tiles(int tiles, const Fetch& fetch) {
  for (int i = 0; i < slots - 1; ++i) {
    if (i < tiles) fetch(i, i);
    commit_copies();
  }
}
/// Calls use(tile, slot) for each tile in order, and starts the copies of later ones.
template <int slots, class Fetch, class Use>
__device__ void for_tiles(int tiles, const Fetch& fetch, const Use& use) {
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    wait_for_copies<slots - 2>();
    __syncthreads();
    const int next = i + slots - 1;
    if (next < tiles) fetch(next, next % slots);
    commit_copies();
    use(i, i % slots);
  }
}

/// A thread's share of Q^T K. In 16 bits a warp has 16 rows and `columns` columns, in the layout of accumulators.
template <typename T, int width>
struct Sums {
  using S = Shared<T, width>;
  static constexpr int row_warps = width / 16, columns = width / (warps / row_warps);
  float sums[columns / 8][4] = {};

  __device__ static int row() { return warp() % row_warps * 16; }
  __device__ static int column() { return warp() / row_warps * columns; }

  __device__ void add(const T* q, const T* k) {
    const T* const q_at = q + (lane() % 8 + lane() / 16 * 8) * S::stride + row() + lane() / 8 % 2 * 8;
    const T* const k_at = k + lane() % 16 * S::stride + column() + lane() / 16 * 8;
#pragma unroll
    for (int t = 0; t < S::tokens; t += 16) {
      std::uint32_t left[4];
      ldmatrix_trans(left, q_at + t * S::stride);
#pragma unroll
      for (int c = 0; c < columns / 8; c += 2) {
        std::uint32_t right[4];
        ldmatrix_trans(right, k_at + t * S::stride + c * 8);
        mma<T>(sums[c], left, right[0], right[1]);
        mma<T>(sums[c + 1], left, right[2], right[3]);
      }
    }
  }
  __device__ void store(float (&to)[width][width + 1]) const {
#pragma unroll
    for (int i = 0; i < columns / 8 * 4; ++i)
      to[row() + lane() / 4 + i / 2 % 2 * 8][column() + i / 4 * 8 + lane() % 4 * 2 + i % 2] = sums[i / 4][i % 4];
  }
};
template <int width>
struct Sums<float, width> {
  static constexpr int rows = width / 16, columns = width / 8;  // of a thread
  float sums[rows][columns] = {};

  __device__ static int row() { return thread() / 8 * rows; }
  __device__ static int column() { return thread() % 8 * columns; }

  __device__ void add(const float* q, const float* k) {
    using S = Shared<float, width>;
#pragma unroll 2
    for (int t = 0; t < S::tokens; ++t)
#pragma unroll
      for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int j = 0; j < columns; ++j)
          sums[i][j] = fmaf(q[t * S::stride + row() + i], k[t * S::stride + column() + j], sums[i][j]);
  }
  __device__ void store(float (&to)[width][width + 1]) const {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < columns; ++j) to[row() + i][column() + j] = sums[i][j];
  }
};

/// The softmax of a row, of which a lane has the scores lane + 32 i, times `scale` in units of log2; zeros where all
/// are -infinity and beyond `count`.
template <typename T, int per_lane>
__device__ void softmax(float (&row)[per_lane], float scale, int count) {
  float top = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    row[i] = lane() + i * warp_threads < count ? row[i] * scale : -INFINITY;
    top = fmaxf(top, row[i]);
  }
  for (int mask = 1; mask < warp_threads; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
  if (top == -INFINITY) top = 0;
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    row[i] = is_half<T> ? approximate_exp2(row[i] - top) : exp2f(row[i] - top);
    sum += row[i];
  }
  for (int mask = 1; mask < warp_threads; mask *= 2) sum += shuffle_xor(sum, mask);
  const float inverse = sum == 0 ? 0 : 1 / sum;
#pragma unroll
  for (int i = 0; i < per_lane; ++i) row[i] *= inverse;
}

/// The shares of row `row`, from scores and squares of columns: to [width][stride] as in Shared.
template <int width, typename T>
__device__ void shares_of_row(T* to, int stride, float (&scores)[width / warp_threads],
                              const float (&k_squares)[width / warp_threads], float q_squares, int row, float scale,
                              const AttentionCall& call) {
  constexpr int per_lane = width / warp_threads;
  if (call.epsilon > 0) {
    const float of_row = inverse_norm(q_squares, call);
#pragma unroll
    for (int i = 0; i < per_lane; ++i) scores[i] = scores[i] * of_row * inverse_norm(k_squares[i], call);
  }
  softmax<T>(scores, scale, call.keys);
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int column = lane() + i * warp_threads;
    to[is_half<T> ? row * stride + column : column * stride + row] = as_stored<T>(scores[i]);
  }
}

/// Multiplies a warp's tokens of a tile of V by the softmax; the results take the place of the tile's rows.
template <int width, typename T>
__device__ void multiply_tile(T* tile, const T* shares) {
  using S = Shared<T, width>;
  if constexpr (is_half<T>) {
    static_assert(S::tokens == warps * 16);
    T* const rows = tile + warp() * 16 * S::stride;
    const T* const left_at = rows + lane() % 16 * S::stride + lane() / 16 * 8;
    const T* const right_at = shares + (lane() % 8 + lane() / 16 * 8) * S::stride + lane() / 8 % 2 * 8;
    float sums[width / 8][4] = {};
#pragma unroll
    for (int k = 0; k < width; k += 16) {
      std::uint32_t left[4];
      ldmatrix(left, left_at + k);
#pragma unroll
      for (int c = 0; c < width / 8; c += 2) {
        std::uint32_t right[4];
        ldmatrix(right, right_at + c * 8 * S::stride + k);
        mma<T>(sums[c], left, right[0], right[1]);
        mma<T>(sums[c + 1], left, right[2], right[3]);
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < width / 8 * 2; ++i) {
      const float* const two = sums[i / 2] + i % 2 * 2;
      T* const to = rows + (lane() / 4 + i % 2 * 8) * S::stride + i / 2 * 8 + lane() % 4 * 2;
      *reinterpret_cast<std::uint32_t*>(to) = narrowed_pair<T>(two[0], two[1]);
    }
  } else {
    constexpr int own = S::tokens / warps, per_lane = width / warp_threads;
    float* const rows = tile + warp() * own * S::stride;
    float sums[own][per_lane] = {};
#pragma unroll 2
    for (int j = 0; j < width; ++j)
#pragma unroll
      for (int t = 0; t < own; ++t)
#pragma unroll
        for (int i = 0; i < per_lane; ++i)
          sums[t][i] = fmaf(rows[t * S::stride + j], shares[j * S::stride + lane() + i * warp_threads], sums[t][i]);
    __syncwarp();
#pragma unroll
    for (int t = 0; t < own; ++t)
#pragma unroll
      for (int i = 0; i < per_lane; ++i) rows[t * S::stride + lane() + i * warp_threads] = sums[t][i];
  }
  __syncwarp();
}

/// Writes a warp's rows of a tile, which begins with token `first`, to those of y before `end`.
template <int width, typename T>
__device__ void store_tile(T* y, const T* tile, std::int64_t token, int first, int end, int channels, bool quads) {
  using S = Shared<T, width>;
  constexpr int own = S::tokens / warps, packs = width / S::pack;
  for (int i = lane(); i < own * packs; i += warp_threads) {
    const int row = warp() * own + i / packs, c = i % packs * S::pack;
    if (first + row >= end || c >= channels) continue;
    const T* const from = tile + row * S::stride + c;
    T* const to = y + (first + row) * token + c;
    if (quads)
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    else
      for (int l = 0; l < min(S::pack, channels - c); ++l) to[l] = from[l];
  }
}

/// `sums` [n*heads][blocks][width * (width + 2)] and `shares` [n*heads][width][width] lie between launches.
template <typename T, int width>
__global__ void __launch_bounds__(block_threads)
    attend_channels(const T* q, const T* k, const T* v, T* y, float* sums, T* shares,
                    const __grid_constant__ ChannelCall channel_call) {
  using S = Shared<T, width>;
  wait_for_previous();
  let_next_start();
  extern __shared__ float4 memory[];
  S& shared = *reinterpret_cast<S*>(memory);
  const AttentionCall& call = channel_call.attention;
  const Place place(call);
  const auto line = static_cast<std::int64_t>(blockIdx.x) / call.blocks;
  constexpr int per_lane = width / warp_threads;

  const int v_begin = place.block * channel_call.value_tokens,
            v_end = min(call.value_size, v_begin + channel_call.value_tokens);
  const int v_tiles = (max(v_end - v_begin, 0) + S::tokens - 1) / S::tokens;
  const auto fetch_v = [&](int tile, int slot) {
    load_tile<width>(shared.tiles[slot], v + place.of(call.v), call.v.token, v_begin + tile * S::tokens, v_end,
                     call.keys, call.quads_v);
  };

  if (channel_call.phase == Phase::values) {
    begin_tiles<value_slots>(v_tiles, fetch_v);
    const T* const from = shares + line * width * width;
    for (int i = thread(); i < width * width / S::pack; i += block_threads) {
      const int row = i * S::pack / width, column = i * S::pack % width;
      *reinterpret_cast<uint4*>(shared.shares + row * S::stride + column) =
          *reinterpret_cast<const uint4*>(from + i * S::pack);
    }
  } else {
    const int begin = place.block * channel_call.score_tokens,
              end = min(call.head_size, begin + channel_call.score_tokens);
    const int tiles = (max(end - begin, 0) + S::tokens - 1) / S::tokens;
    const auto fetch = [&](int tile, int slot) {
      const int first = begin + tile * S::tokens;
      load_tile<width>(shared.tiles[2 * slot], q + place.of(call.q), call.q.token, first, end, call.queries,
                       call.quads_qk);
      load_tile<width>(shared.tiles[2 * slot + 1], k + place.of(call.k), call.k.token, first, end, call.keys,
                       call.quads_qk);
    };
    Sums<T, width> own;
    float squares = 0;  // of a column of Q or K
    begin_tiles<score_slots>(tiles, fetch);
    for_tiles<score_slots>(tiles, fetch, [&](int, int slot) {
      own.add(shared.tiles[2 * slot], shared.tiles[2 * slot + 1]);
      if (call.epsilon > 0 && thread() < 2 * width) {
        const T* const column = shared.tiles[2 * slot + thread() / width] + thread() % width;
#pragma unroll 8
        for (int t = 0; t < S::tokens; ++t) {
          const float x = loaded(column[t * S::stride]);
          squares = fmaf(x, x, squares);
        }
      }
    });
    own.store(shared.scores);
    if (thread() < 2 * width) shared.squares[thread()] = squares;
    __syncthreads();
    if (channel_call.phase == Phase::sums) {
      float* const to = sums + static_cast<std::int64_t>(blockIdx.x) * (width * (width + 2));
      for (int i = thread(); i < width * width; i += block_threads) to[i] = shared.scores[i / width][i % width];
      if (thread() < 2 * width) to[width * width + thread()] = shared.squares[thread()];
      return;
    }
    begin_tiles<value_slots>(v_tiles, fetch_v);
    for (int row = warp(); row < width; row += warps) {
      float scores[per_lane], k_squares[per_lane];
#pragma unroll
      for (int i = 0; i < per_lane; ++i) {
        scores[i] = shared.scores[row][lane() + i * warp_threads];
        k_squares[i] = shared.squares[width + lane() + i * warp_threads];
      }
      shares_of_row<width>(shared.shares, S::stride, scores, k_squares, shared.squares[row], row, place.scale(call),
                           call);
    }
  }

  for_tiles<value_slots>(v_tiles, fetch_v, [&](int tile, int slot) {
    multiply_tile<width>(shared.tiles[slot], shared.shares);
    store_tile<width>(y + place.of(call.y), shared.tiles[slot], call.y.token, v_begin + tile * S::tokens, v_end,
                      call.queries, channel_call.quads_y);
  });
}

/// The softmax of the sums of all blocks of a head: a block for each row of scores, whose warps share those blocks.
template <typename T, int width>
__global__ void __launch_bounds__(block_threads)
    channel_shares(const float* sums, T* shares, const __grid_constant__ AttentionCall call) {
  wait_for_previous();
  let_next_start();
  constexpr int per_lane = width / warp_threads, size = width * (width + 2);
  __shared__ float parts[warps][2 * per_lane + 1][warp_threads];
  const std::int64_t line = blockIdx.x / width;
  const int row = static_cast<int>(blockIdx.x % width);
  float scores[per_lane] = {}, k_squares[per_lane] = {}, q_squares = 0;
#pragma unroll 4
  for (int block = warp(); block < call.blocks; block += warps) {
    const float* const from = sums + (line * call.blocks + block) * size;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) scores[i] += from[row * width + lane() + i * warp_threads];
    if (call.epsilon > 0) {
      q_squares += from[width * width + row];
#pragma unroll
      for (int i = 0; i < per_lane; ++i) k_squares[i] += from[width * (width + 1) + lane() + i * warp_threads];
    }
  }
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    parts[warp()][2 * i][lane()] = scores[i];
    parts[warp()][2 * i + 1][lane()] = k_squares[i];
  }
  parts[warp()][2 * per_lane][lane()] = q_squares;
  __syncthreads();
  if (warp() > 0) return;
#pragma unroll
  for (int other = 1; other < warps; ++other) {
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
      scores[i] += parts[other][2 * i][lane()];
      k_squares[i] += parts[other][2 * i + 1][lane()];
    }
    q_squares += parts[other][2 * per_lane][lane()];
  }
  const int head = static_cast<int>(line % call.heads);
  shares_of_row<width>(shares + line * width * width, width, scores, k_squares, q_squares, row,
                       call.scales[call.scales_by_head ? head : 0], call);
}

template <typename T, int width>
void start(const Context& context, const AttentionProblem& p, const T* q, const T* k, const T* v, T* y,
           void* workspace) {
  using S = Shared<T, width>;
  const std::int64_t blocks = channel_attention_blocks(p), heads = p.n * p.heads;
  const auto tokens_of_block = [&](std::int64_t tokens) {
    const std::int64_t tiles = (tokens + S::tokens - 1) / S::tokens;
    return static_cast<int>((tiles + blocks - 1) / blocks * S::tokens);
  };
  ChannelCall call{.attention = call_of(p, nullptr),
                   .phase = blocks == 1 ? Phase::all : Phase::sums,
                   .score_tokens = tokens_of_block(p.head_size),
                   .value_tokens = tokens_of_block(p.value_size),
                   .quads_y = in_quads(p.y, p.queries, y)};
  call.attention.blocks = static_cast<int>(blocks);
  call.attention.quads_qk = in_quads(p.q, p.queries, q) && in_quads(p.k, p.keys, k);
  call.attention.quads_v = in_quads(p.v, p.keys, v);
  auto* const sums = static_cast<float*>(workspace);
  T* const shares = blocks == 1 ? nullptr : reinterpret_cast<T*>(sums + heads * blocks * channel_attention_sums(width));
  allow_shared_bytes(attend_channels<T, width>, sizeof(S));
  const auto attend = [&] {
    launch(context, attend_channels<T, width>, dim3(static_cast<unsigned>(heads * blocks)), dim3(block_threads),
           sizeof(S), q, k, v, y, sums, shares, call);
  };
  attend();
  if (blocks == 1) return;
  launch(context, channel_shares<T, width>, dim3(static_cast<unsigned>(heads * width)), dim3(block_threads), 0,
         static_cast<const float*>(sums), shares, call.attention);
  call.phase = Phase::values;
  attend();
}

}  // namespace

void channel_attention(const Context& context, const AttentionProblem& p, DType dtype, const void* q, const void* k,
                       const void* v, void* y, void* workspace) {
  if (p.n == 0 || p.heads == 0 || p.queries == 0 || p.value_size == 0) return;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    const auto run = channel_attention_width(p) == 32 ? start<T, 32> : start<T, 64>;
    run(context, p, static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(y),
        workspace);
  });
}

}  // namespace lenslet::cuda

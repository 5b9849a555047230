// ReLU linear attention: a block has a head. It sums relu(K)^T [V 1] in registers over tiles of tokens, keeps the
// matrix in shared memory, and multiplies tiles of relu(Q) by it.

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/dtypes.h"
#include "ops/gemm/attention_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int tile_tokens = 128, linear_threads = 256, most = most_linear_attention_channels;

struct Call {
  AttentionOperand q, k, v, y;
  int heads, queries, keys, head_size, value_size;
  float epsilon;
};

/// to [tokens][channels] = rows from `first` on, with what is below 0 as 0 where so said. A NaN stays one.
template <typename T>
__device__ void load(float* to, const T* from, std::int64_t token, int first, int tokens, int channels, bool relu) {
  for (int i = static_cast<int>(threadIdx.x); i < tokens * channels; i += linear_threads) {
    const float value = loaded(from[(first + i / channels) * token + i % channels]);
    to[i] = relu && value < 0 ? 0.0F : value;
  }
}

template <typename T>
__global__ void __launch_bounds__(linear_threads)
    linear_attention(const T* q, const T* k, const T* v, T* y, const Call call) {
  wait_for_previous();
  __shared__ float rows[tile_tokens * most], values[tile_tokens * most], kv[most * (most + 1)];
  const std::int64_t n = blockIdx.x / static_cast<unsigned>(call.heads);
  const int head = static_cast<int>(blockIdx.x % static_cast<unsigned>(call.heads));
  const auto start = [&](const AttentionOperand& o) { return o.offset + n * o.batch + head * o.head; };
  const int d = call.head_size, e = call.value_size, columns = e + 1, thread = static_cast<int>(threadIdx.x);

  constexpr int entries = (most * (most + 1) + linear_threads - 1) / linear_threads;
  float sums[entries] = {};  // of the entries thread, thread + 256 ... of [d][e + 1]
  for (int first = 0; first < call.keys; first += tile_tokens) {
    const int tokens = min(tile_tokens, call.keys - first);
    __syncthreads();
    load(rows, k + start(call.k), call.k.token, first, tokens, d, true);
    load(values, v + start(call.v), call.v.token, first, tokens, e, false);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < entries; ++i) {
      const int at = i * linear_threads + thread, row = at / columns, column = at % columns;
      if (at >= d * columns) break;
      for (int t = 0; t < tokens; ++t)
        sums[i] = fmaf(rows[t * d + row], column < e ? values[t * e + column] : 1, sums[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < entries; ++i)
    if (i * linear_threads + thread < d * columns) kv[i * linear_threads + thread] = sums[i];

  for (int first = 0; first < call.queries; first += tile_tokens) {
    const int tokens = min(tile_tokens, call.queries - first);
    __syncthreads();
    load(rows, q + start(call.q), call.q.token, first, tokens, d, true);
    __syncthreads();
    for (int i = thread; i < tokens * e; i += linear_threads) {
      const int t = i / e, column = i % e;
      float sum = 0, divisor = call.epsilon;
      for (int c = 0; c < d; ++c) {
        sum = fmaf(rows[t * d + c], kv[c * columns + column], sum);
        divisor = fmaf(rows[t * d + c], kv[c * columns + e], divisor);
      }
      y[start(call.y) + (first + t) * call.y.token + column] = as_stored<T>(sum / divisor);
    }
  }
}

}  // namespace

void linear_attention(const Context& context, const AttentionProblem& p, DType dtype, const void* q, const void* k,
                      const void* v, void* y) {
  if (p.n == 0 || p.heads == 0 || p.queries == 0 || p.value_size == 0) return;
  const Call call{.q = p.q,
                  .k = p.k,
                  .v = p.v,
                  .y = p.y,
                  .heads = static_cast<int>(p.heads),
                  .queries = static_cast<int>(p.queries),
                  .keys = static_cast<int>(p.keys),
                  .head_size = static_cast<int>(p.head_size),
                  .value_size = static_cast<int>(p.value_size),
                  .epsilon = static_cast<float>(*p.linear_epsilon)};
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    launch(context, linear_attention<T>, dim3(static_cast<unsigned>(p.n * p.heads)), dim3(linear_threads), 0,
           static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(y), call);
  });
}

}  // namespace lenslet::cuda

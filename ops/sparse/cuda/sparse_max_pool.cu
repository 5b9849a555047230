#include "base/cuda/vector.cuh"
#include "base/half.h"
#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/cuda/row_lanes.cuh"
#include "ops/sparse/cuda/sites.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256, outputs_of_block = 32, most_taps = 125;

template <typename T>
struct PoolCall {
  const T* x = nullptr;
  const std::int32_t* rulebook = nullptr;
  T* y = nullptr;
  int taps = 1, lanes = 1;  ///< threads of a row
  std::int32_t capacity = 0;
  std::int64_t most_inputs = 0, most_outputs = 0, channels = 0;
  int* fault = nullptr;
};

/// The rulebook may come from a file: its numbers are checked before use.
template <typename T>
__global__ void __launch_bounds__(threads) pool_kernel(const __grid_constant__ PoolCall<T> c) {
  wait_for_previous();
  let_next_start();
  __shared__ std::int32_t input_of[most_taps][outputs_of_block];  // through a tap, or -1
  __shared__ std::int32_t first_pair[most_taps];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t *const begins = c.rulebook + 2, *const in = begins + c.taps + 1, *const out = in + c.capacity;
  const std::int32_t inputs = c.rulebook[0], outputs = c.rulebook[1];
  bool bad = thread == 0 && (begins[0] != 0 || begins[c.taps] > c.capacity);
  if (thread < c.taps) bad = bad || begins[thread] > begins[thread + 1];
  const bool no_book = __syncthreads_or(bad ? 1 : 0) != 0;
  const bool elsewhere = inputs < 0 || inputs > c.most_inputs || outputs < 0 || outputs > c.most_outputs;
  if ((no_book || elsewhere) && blockIdx.x == 0 && thread == 0)
    tell(c.fault, no_book ? SiteFault::no_rulebook : SiteFault::leads_elsewhere, inputs, outputs, {0, 0, 0, 0}, 3, 0);
  const std::int64_t rows = no_book || elsewhere ? 0 : outputs;

  const std::int64_t first = std::int64_t{blockIdx.x} * outputs_of_block, last = first + outputs_of_block;
  if (first < rows) {
    if (thread < c.taps)
      first_pair[thread] =
          first_not_below(begins[thread], begins[thread + 1], first, [&](std::int32_t p) { return out[p]; });
    for (int i = thread; i < c.taps * outputs_of_block; i += threads) (&input_of[0][0])[i] = -1;
    __syncthreads();
    for (int i = thread; i < c.taps * outputs_of_block; i += threads) {
      const int tap = i / outputs_of_block;
      // A tap has each output at most once.
      const std::int32_t pair = first_pair[tap] + i % outputs_of_block;
      if (pair >= begins[tap + 1] || out[pair] >= last) continue;
      if (out[pair] < first || out[pair] >= rows || in[pair] < 0 || in[pair] >= inputs)
        tell(c.fault, SiteFault::bad_pairs, 0, 0, {0, 0, 0, 0}, 3, 0);
      else
        input_of[tap][out[pair] - first] = in[pair];
    }
    __syncthreads();
  }

  const int lane = thread % c.lanes;
  for (int o = thread / c.lanes; o < outputs_of_block; o += threads / c.lanes) {
    const std::int64_t row = first + o;
    if (row >= c.most_outputs) break;
    for (std::int64_t channel = lane; channel < c.channels; channel += c.lanes) {
      // The first value is copied, so that no infinity is needed as a start. A NaN stays, because comparisons with it
      // are false.
      bool filled = false;
      T largest{};
      float value = 0;
      for (int tap = 0; row < rows && tap < c.taps; ++tap) {
        const std::int64_t input = input_of[tap][o];
        if (input < 0) continue;
        const T stored = c.x[input * c.channels + channel];
        const float other = loaded(stored);
        if (filled && !(other > value) && other == other) continue;
        largest = stored;
        value = other;
        filled = true;
      }
      c.y[row * c.channels + channel] = largest;
    }
  }
}

template <typename T>
void pool(const Context& context, const SparsePoolSizes& sizes, const void* x, const std::int32_t* rulebook, void* y) {
  const unsigned blocks = blocks_for(sizes.most_outputs, outputs_of_block);
  launch(context, pool_kernel<T>, blocks > 0 ? blocks : 1, threads, 0,
         PoolCall<T>{.x = static_cast<const T*>(x),
                     .rulebook = rulebook,
                     .y = static_cast<T*>(y),
                     .taps = static_cast<int>(sizes.taps),
                     .lanes = lanes_of_row(sizes.channels),
                     .capacity = static_cast<std::int32_t>(sizes.capacity),
                     .most_inputs = sizes.most_inputs,
                     .most_outputs = sizes.most_outputs,
                     .channels = sizes.channels,
                     .fault = context.fault});
}

}  // namespace

void sparse_max_pool(const Context& context, const SparsePoolSizes& sizes, DType dtype, const void* x,
                     const std::int32_t* rulebook, void* y) {
  if (dtype == DType::f16) return pool<Float16>(context, sizes, x, rulebook, y);
  if (dtype == DType::bf16) return pool<BFloat16>(context, sizes, x, rulebook, y);
  pool<float>(context, sizes, x, rulebook, y);
}

}  // namespace lenslet::cuda

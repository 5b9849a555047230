#include "ops/conv/cuda/reduce_split_k.h"

#include <algorithm>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "ops/conv/cuda/implicit_gemm_plan.h"

namespace lenslet::cuda {
namespace {

/// Elements, or vectors of four, of a block. Its rows of threads split the split-K parts: few outputs with many parts
/// would otherwise make one thread wait for load after load.
constexpr int columns = 32;
constexpr int most_rows = 8;
static_assert(max_cluster <= most_rows);  // so few parts have a row each, and rows are added in order

__device__ inline void add_bias(float& value, const SplitKReduction& call, unsigned at) {
  value += call.bias[at / call.plane % call.k];
}
__device__ inline void add_bias(float4& value, const SplitKReduction& call, unsigned at) {
  add_bias(value.x, call, at);
  add_bias(value.y, call, at + 1);
  add_bias(value.z, call, at + 2);
  add_bias(value.w, call, at + 3);
}

/// Item is float or float4: adjacent elements.
template <typename Item>
__global__ void __launch_bounds__(columns* most_rows)
    reduce_split_k_kernel(const __grid_constant__ SplitKReduction call) {
  wait_for_previous();
  let_next_start();
  constexpr unsigned width = sizeof(Item) / sizeof(float);
  __shared__ Item acc[most_rows][columns];
  const unsigned item = (blockIdx.x * columns + threadIdx.x) * width;
  const bool exists = item < call.elems;
  if (exists) {
    Item sum{};
#pragma unroll 8
    for (int split = static_cast<int>(threadIdx.y); split < call.split_k; split += static_cast<int>(blockDim.y))
      sum = sum + *reinterpret_cast<const Item*>(call.partial + split * call.elems + item);
    acc[threadIdx.y][threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.y != 0 || !exists) return;
  Item sum = acc[0][threadIdx.x];
  for (unsigned row = 1; row < blockDim.y; ++row) sum = sum + acc[row][threadIdx.x];
  if (call.bias != nullptr) add_bias(sum, call, item);
  if (call.residual != nullptr) sum = sum + *reinterpret_cast<const Item*>(call.residual + item);
  const long long gaps = call.y_gap == 0 ? 0 : static_cast<long long>(item / call.k) * call.y_gap;
  *reinterpret_cast<Item*>(call.y + item + gaps) = call.activation(sum);
}

}  // namespace

void reduce_split_k(const Context& context, const SplitKReduction& call) {
  const bool vectors = call.elems % 4 == 0 && (call.y_gap == 0 || (call.k % 4 == 0 && call.y_gap % 4 == 0));
  launch(context, vectors ? reduce_split_k_kernel<float4> : reduce_split_k_kernel<float>,
         blocks_for(vectors ? call.elems / 4 : call.elems, columns), dim3(columns, std::min(call.split_k, most_rows)),
         0, call);
}

}  // namespace lenslet::cuda

#include "ops/conv/cuda/sum_slices.h"

#include <algorithm>
#include <type_traits>

#include "base/cuda/launch.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {
namespace {

/// Elements, or fours of them, that a block makes; its rows of threads share the groups of adjacent slices between
/// them, because few outputs with many slices would otherwise leave one thread waiting for one load after another.
constexpr int columns = 32;
constexpr int most_rows = 8;

struct SumSlicesCall {
  const float *partial, *bias, *residual;  // bias and residual may be null
  float* y;
  unsigned items, plane, k;  // items: of `width` elements each
  long long elems;
  int slices, adjacent;
  DeviceActivation activation;
};

__device__ inline float add(float a, float b) { return a + b; }
__device__ inline float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

__device__ inline void add_bias(float& value, const SumSlicesCall& call, unsigned at) {
  value += call.bias[at / call.plane % call.k];
}
__device__ inline void add_bias(float4& value, const SumSlicesCall& call, unsigned at) {
  add_bias(value.x, call, at);
  add_bias(value.y, call, at + 1);
  add_bias(value.z, call, at + 2);
  add_bias(value.w, call, at + 3);
}

/// Item is float or float4: elements that lie together.
template <typename Item>
__global__ void __launch_bounds__(columns* most_rows) sum_slices_kernel(const __grid_constant__ SumSlicesCall call) {
  wait_for_previous();
  let_next_start();
  constexpr unsigned width = sizeof(Item) / sizeof(float);
  __shared__ Item sums[most_rows][columns];
  const unsigned item = blockIdx.x * columns + threadIdx.x;
  const long long at = static_cast<long long>(item) * width;
  if (item < call.items) {
    Item sum{};
    for (int first = static_cast<int>(threadIdx.y) * call.adjacent; first < call.slices;
         first += static_cast<int>(blockDim.y) * call.adjacent) {
      Item group{};
      const int end = min(first + call.adjacent, call.slices);
#pragma unroll 8
      for (int slice = first; slice < end; ++slice)
        group = add(group, *reinterpret_cast<const Item*>(call.partial + slice * call.elems + at));
      sum = add(sum, group);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.y != 0 || item >= call.items) return;
  Item sum = sums[0][threadIdx.x];
  for (unsigned row = 1; row < blockDim.y; ++row) sum = add(sum, sums[row][threadIdx.x]);
  if (call.bias != nullptr) add_bias(sum, call, item * width);
  if (call.residual != nullptr) sum = add(sum, *reinterpret_cast<const Item*>(call.residual + at));
  *reinterpret_cast<Item*>(call.y + at) = call.activation(sum);
}

template <typename Item>
void launch_sum(const Context& context, const SumSlices& call) {
  constexpr unsigned width = sizeof(Item) / sizeof(float);
  const SumSlicesCall arguments{.partial = call.partial,
                                .bias = call.bias,
                                .residual = call.residual,
                                .y = call.y,
                                .items = static_cast<unsigned>(call.elems / width),
                                .plane = static_cast<unsigned>(call.plane),
                                .k = static_cast<unsigned>(call.k),
                                .elems = call.elems,
                                .slices = call.slices,
                                .adjacent = call.adjacent,
                                .activation = DeviceActivation(call.activation)};
  const unsigned groups = blocks_for(call.slices, call.adjacent);
  const unsigned rows = std::min<unsigned>(groups, most_rows);
  launch(context, sum_slices_kernel<Item>, blocks_for(arguments.items, columns), dim3(columns, rows), 0, arguments);
}

}  // namespace

void sum_slices(const Context& context, const SumSlices& call) {
  // Partial sums of every slice are as aligned as y when elems is a multiple of four.
  const auto aligned = [](const float* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  const bool vectors = call.elems % 4 == 0 && aligned(call.partial) && aligned(call.y) && aligned(call.residual);
  if (vectors)
    launch_sum<float4>(context, call);
  else
    launch_sum<float>(context, call);
}

}  // namespace lenslet::cuda

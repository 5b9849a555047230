// One pass over the sorted output lists: a thread at a block boundary writes it down. It takes a tenth of the time of a
// neighbour table (27 numbers per output to write, and to read in each layer), so each layer does it for itself and
// stores nothing between layers.

#include "ops/sparse/cuda/block_pairs.h"

#include <algorithm>

#include "base/cuda/launch.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// Grid: x splits a tap's list, y is the tap.
__global__ void __launch_bounds__(threads)
    block_pairs(const __grid_constant__ DeviceRulebook rulebook, GatheredPlan plan, int blocks, int counters,
                int* begins, int* fault) {
  wait_for_previous();
  let_next_start();
  if (blockIdx.x == 0 && blockIdx.y == 0)
    for (int i = static_cast<int>(threadIdx.x); i < counters; i += threads)
      begins[static_cast<long long>(rulebook.volume) * (blocks + 1) + i] = 0;
  const int tap = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const auto counts = rulebook.counts();
  const DevicePairs pairs = rulebook.pairs(tap, counts.outputs);
  if (!counts.valid || !pairs.valid) report(fault);
  if (pairs.out == nullptr) return;
  begins += static_cast<long long>(tap) * (blocks + 1);
  const int rows = plan.rows_of(counts.outputs), last = (counts.outputs + rows - 1) / rows;
  // Index `count` is the end, behind the last block.
  const int stride = static_cast<int>(gridDim.x) * threads;
  for (int first = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x) - lane; first <= pairs.count;
       first += stride) {
    const int i = first + lane;
    int from = 0, to = -1;  // the blocks that begin with pair i
    if (i <= pairs.count) {
      const int before = i == 0 ? -1 : pairs.out[i - 1], at = i == pairs.count ? counts.outputs : pairs.out[i];
      if (i < pairs.count && (before >= at || at >= counts.outputs)) report(fault);
      const auto block_of = [&](int output) { return min(max(output, 0), counts.outputs) / rows; };
      from = i == 0 ? 0 : block_of(before) + 1;
      to = i == pairs.count ? last : block_of(at);
    }
    // Usually none or one; blocks without a pair in between are written by the whole warp.
    if (from <= to) begins[from] = i;
    for (unsigned longer = __ballot_sync(0xffffffffU, from < to); longer != 0; longer &= longer - 1) {
      const int source = __ffs(static_cast<int>(longer)) - 1;
      const int next = __shfl_sync(0xffffffffU, from, source) + 1, end = __shfl_sync(0xffffffffU, to, source);
      for (int block = next + lane; block <= end; block += 32) begins[block] = first + source;
    }
  }
}

}  // namespace

void find_block_pairs(const Context& context, const DeviceRulebook& rulebook, const GatheredPlan& plan, int blocks,
                      int counters, int* begins) {
  // About 8 blocks per multiprocessor in all, at most as many as the longest list fills.
  const long long longest = std::min<long long>(rulebook.capacity, rulebook.most_outputs) + 1;
  const auto most = blocks_for(8LL * context.multiprocessors, rulebook.volume);
  const unsigned x = std::min(blocks_for(longest, threads), most);
  launch(context, block_pairs, dim3(x, static_cast<unsigned>(rulebook.volume)), threads, 0, rulebook, plan, blocks,
         counters, begins, context.fault);
}

}  // namespace lenslet::cuda

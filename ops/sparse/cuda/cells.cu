#include "ops/sparse/cuda/cells.h"
#include "ops/sparse/cuda/sites.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256, warps = threads / warp_threads;
constexpr int per_thread = static_cast<int>(Cells::words_of_chunk) / threads;

// One block per chunk.
__global__ void __launch_bounds__(threads) number_kernel(Cells c) {
  wait_for_previous();
  let_next_start();
  __shared__ std::uint32_t of_warps[warps];
  const std::int64_t first = std::int64_t{blockIdx.x} * Cells::words_of_chunk + threadIdx.x * per_thread;
  std::uint32_t own[per_thread], sum = 0;
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    own[i] = first + i < c.words ? static_cast<std::uint32_t>(__popcll(c.bits[first + i])) : 0;
    sum += own[i];
  }
  const std::uint32_t so_far = sum_so_far(sum);
  const int warp = static_cast<int>(threadIdx.x) / warp_threads;
  if (threadIdx.x % warp_threads == warp_threads - 1) of_warps[warp] = so_far;
  __syncthreads();
  std::uint32_t before = so_far - sum, all = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += of_warps[w];
    all += of_warps[w];
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    if (first + i < c.words) c.before[first + i] = before;
    before += own[i];
  }
  if (threadIdx.x == 0) c.chunks[blockIdx.x] = all;
}

}  // namespace

void number_cells(const Context& context, const Cells& cells) {
  launch(context, number_kernel, static_cast<unsigned>(cells.chunk_count), threads, 0, cells);
}

}  // namespace lenslet::cuda

// The second kernel of split-K: adds the partial sums. Plain CUDA.

#include "base/cuda/launch.h"
#include "ops/gemm/cute/epilogue.cuh"

namespace lenslet::cuda {
namespace {

/// parts [product][slice][m][n], four columns per thread.
__global__ void __launch_bounds__(256) add_kernel(const float* parts, int split_k, std::int64_t fours, CuteEpilogue e) {
  wait_for_previous();
  let_next_start();
  const std::int64_t at = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (at >= fours) return;
  const int in_row = (e.n + 3) / 4, j = static_cast<int>(at % in_row) * 4, i = static_cast<int>(at / in_row % e.m);
  const std::int64_t product = at / in_row / e.m, in_split = std::int64_t{e.m} * e.n;
  const float* from = parts + product * split_k * in_split + std::int64_t{i} * e.n + j;
  float4 sum{};
  for (int split = 0; split < split_k; ++split, from += in_split) {
    if (e.n % 4 == 0) {
      const float4 part = *reinterpret_cast<const float4*>(from);
      sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
    } else {
      sum.x += from[0];
      if (j + 1 < e.n) sum.y += from[1];
      if (j + 2 < e.n) sum.z += from[2];
      if (j + 3 < e.n) sum.w += from[3];
    }
  }
  e.store(sum, product, i, j);
}

}  // namespace

void gemm_cute_reduce_split_k(const Context& context, const CuteCall& call, std::int64_t split_k) {
  const CuteProblem& p = call.problem;
  const std::int64_t fours = p.batch * p.m * ((p.n + 3) / 4);
  launch(context, add_kernel, dim3(blocks_for(fours, 256)), dim3(256), 0, call.workspace, split_k, fours,
         cute_epilogue(call));
}

}  // namespace lenslet::cuda

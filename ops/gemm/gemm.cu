#include "ops/gemm/gemm_cuda.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/cuda/cublas.h"
#include "base/cuda/launch.h"
#include "ops/gemm/few_rows.cuh"

namespace lenslet::cuda {
namespace {

DeviceEpilogue epilogue_of(const GemmCall& call) {
  const MatrixProblem& p = call.problem;
  return {p.alpha, p.beta, call.c, p.c_row, p.c_col, DeviceActivation(p.activation)};
}

// ---- Few rows: few_rows.cuh.

template <int rows>
void launch_few_rows(const Context& context, const GemmCall& call, int split_k, bool vectors) {
  const MatrixProblem& p = call.problem;
  launch(context, vectors ? few_rows_kernel<rows, float4, float, float> : few_rows_kernel<rows, float, float, float>,
         dim3(static_cast<unsigned>(few_rows_blocks(p.gemm_n, split_k))), dim3(32 * few_rows_warps), 0, call.a.data,
         call.a.ld, call.b.data, call.b.ld, call.y, p.gemm_m, p.gemm_n, p.gemm_k, split_k, call.b_known ? 1 : 0,
         epilogue_of(call));
}

template <int rows, typename T>
void launch_few_rows_of(const Context& context, const GemmCall& call, const void* a, int split_k) {
  const MatrixProblem& p = call.problem;
  launch(context, few_rows_kernel<rows, float4, float, float, Four<T>, T>,
         dim3(static_cast<unsigned>(few_rows_blocks(p.gemm_n, split_k))), dim3(32 * few_rows_warps), 0,
         static_cast<const T*>(a), call.a.ld, call.b.data, call.b.ld, call.y, p.gemm_m, p.gemm_n, p.gemm_k, split_k,
         call.b_known ? 1 : 0, epilogue_of(call));
}

template <int rows>
void launch_few_rows_packed(const Context& context, const GemmCall& call, const std::byte* b, int split_k) {
  const MatrixProblem& p = call.problem;
  launch(context, few_rows_kernel<rows, PackedEight, unsigned char, float, EightFloats, float>,
         dim3(static_cast<unsigned>(few_rows_blocks(p.gemm_n, split_k))), dim3(32 * few_rows_warps), 0, call.a.data,
         call.a.ld, reinterpret_cast<const unsigned char*>(b), packed_row_bytes(p.gemm_k), call.y, p.gemm_m, p.gemm_n,
         p.gemm_k, split_k, call.b_known ? 1 : 0, epilogue_of(call));
}

// ---- After cuBLAS: the epilogue in place, one element per thread.

template <typename Index>
__global__ void epilogue_kernel(float* y, Index n, Index elems, Index per_product, DeviceEpilogue epilogue) {
  wait_for_previous();
  const Index at = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= elems) return;
  const Index in_product = at % per_product;
  y[at] = epilogue(y[at], in_product / n, in_product % n);
}

// ---- Without cuBLAS: 64x64 tiles in shared memory, 4x4 accumulators per thread. Correct but slow: expect about a
// third of cuBLAS's speed.

constexpr int tile = 64, depth = 16, per_thread = 4;

struct Strides {
  std::int64_t row, col, matrix;
  explicit Strides(const MatrixOperand& operand)
      : row(operand.transposed ? 1 : operand.ld), col(operand.transposed ? operand.ld : 1), matrix(operand.stride) {}
};

__global__ void __launch_bounds__(256)
    tiled_kernel(const float* a, Strides a_at, const float* b, Strides b_at, float* y, int m, int n, int k,
                 int column_tiles, DeviceEpilogue epilogue) {
  wait_for_previous();
  __shared__ float a_tile[depth][tile + 1], b_tile[depth][tile + 1];  // + 1: stores of a transposed operand spread
  const int row0 = static_cast<int>(blockIdx.x) / column_tiles * tile;
  const int col0 = static_cast<int>(blockIdx.x) % column_tiles * tile;
  a += blockIdx.y * a_at.matrix;
  b += blockIdx.y * b_at.matrix;
  y += static_cast<std::int64_t>(blockIdx.y) * m * n;
  const int thread = static_cast<int>(threadIdx.x), thread_row = thread / 16, thread_col = thread % 16;

  float acc[per_thread][per_thread] = {};
  for (int k0 = 0; k0 < k; k0 += depth) {
    for (int e = thread; e < tile * depth; e += 256) {
      const int a_row = e / depth, a_col = e % depth, b_row = e / tile, b_col = e % tile;
      a_tile[a_col][a_row] =
          row0 + a_row < m && k0 + a_col < k ? a[(row0 + a_row) * a_at.row + (k0 + a_col) * a_at.col] : 0.0f;
      b_tile[b_row][b_col] =
          k0 + b_row < k && col0 + b_col < n ? b[(k0 + b_row) * b_at.row + (col0 + b_col) * b_at.col] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < depth; ++l)
#pragma unroll
      for (int i = 0; i < per_thread; ++i)
#pragma unroll
        for (int j = 0; j < per_thread; ++j)
          acc[i][j] = fmaf(a_tile[l][thread_row + 16 * i], b_tile[l][thread_col + 16 * j], acc[i][j]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i)
#pragma unroll
    for (int j = 0; j < per_thread; ++j) {
      const int row = row0 + thread_row + 16 * i, col = col0 + thread_col + 16 * j;
      if (row < m && col < n) y[static_cast<std::int64_t>(row) * n + col] = epilogue(acc[i][j], row, col);
    }
}

}  // namespace

void gemm_few_rows(const Context& context, const GemmCall& call, int split_k, bool vectors) {
  with_few_rows(call.problem.gemm_m, [&]<int rows>() { launch_few_rows<rows>(context, call, split_k, vectors); });
}

void gemm_few_rows_by_floats(const Context& context, const GemmCall& call, DType a_type, const void* a, int split_k) {
  with_few_rows(call.problem.gemm_m, [&]<int rows>() {
    const auto launch_them =
        a_type == DType::f16 ? launch_few_rows_of<rows, __half> : launch_few_rows_of<rows, __nv_bfloat16>;
    launch_them(context, call, a, split_k);
  });
}

void gemm_few_rows_packed(const Context& context, const GemmCall& call, const std::byte* b, int split_k) {
  with_few_rows(call.problem.gemm_m, [&]<int rows>() { launch_few_rows_packed<rows>(context, call, b, split_k); });
}

void gemm_cublas(const Context& context, const GemmCall& call, Numerics::Multiply multiply) {
  const std::int64_t m = call.problem.gemm_m, n = call.problem.gemm_n, elems = call.batch * m * n;
  context.cublas->gemm(m, n, call.problem.gemm_k, call.a, call.b, call.y, n, 0, call.batch, m * n, multiply);
  const DeviceEpilogue epilogue = epilogue_of(call);
  if (epilogue.none()) return;
  const auto finish = [&](auto kernel) {
    launch(context, kernel, dim3(blocks_for(elems, 256)), dim3(256), 0, call.y, n, elems, m * n, epilogue);
  };
  if (elems <= std::numeric_limits<int>::max())  // + 255 still fits an unsigned
    finish(epilogue_kernel<unsigned>);
  else
    finish(epilogue_kernel<std::uint64_t>);
}

void gemm_tiled(const Context& context, const GemmCall& call) {
  const std::int64_t m = call.problem.gemm_m, n = call.problem.gemm_n, column_tiles = (n + tile - 1) / tile;
  constexpr std::int64_t most_products = 65535;  // of a launch: the grid's second dimension
  for (std::int64_t first = 0; first < call.batch; first += most_products) {
    const dim3 grid(static_cast<unsigned>((m + tile - 1) / tile * column_tiles),
                    static_cast<unsigned>(std::min(most_products, call.batch - first)));
    launch(context, tiled_kernel, grid, dim3(256), 0, call.a.data + first * call.a.stride, Strides(call.a),
           call.b.data + first * call.b.stride, Strides(call.b), call.y + first * m * n, m, n, call.problem.gemm_k,
           column_tiles, epilogue_of(call));
  }
}

}  // namespace lenslet::cuda

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "ops/quantized/integer_product_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256, tile = 64, step = 16, side = 4;  // a thread has side x side sums of a tile

/// Products of one shape, indexed by z. Left matrices are row-major, [m][k].
struct Products {
  int m, n, k;
  IntegerOperand a, b;
  IntegerResult result;

  __device__ int left(int matrix, int i, int l) const {
    return a.widened(a.data[(matrix * m + i) * k + l]) - a.zero_point(matrix, i);
  }
  __device__ void store(const IntegerPlace& at, int y_matrix, std::int32_t sum) const {
    const int y = (y_matrix * m + static_cast<int>(at.i)) * n + static_cast<int>(at.j);
    sum = result.whole(sum, at);
    if (result.is_quantized())
      static_cast<std::uint8_t*>(result.y)[y] =
          requantized(sum, result.multiplier(at), result.y_zero.zero_point(0, 0), result.y_zero.is_signed);
    else
      static_cast<std::int32_t*>(result.y)[y] = sum;
  }
};

struct Matrices : Products {
  int first_a, first_b, first_y, a_step, b_step;

  __device__ int left_matrix(int z) const { return first_a + z * a_step; }
  __device__ int right_matrix(int z) const { return first_b + z * b_step; }
  __device__ int y_matrix(int z) const { return first_y + z; }
  __device__ int right(int matrix, int l, int j) const {
    return b.widened(b.data[(matrix * k + l) * n + j]) - b.zero_point(matrix, j);
  }
};

/// Columns are output pixels, k is the window's taps; z is the group of each image.
struct Windows : Products {
  int groups, height, width, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, channels;
  FastDivider q, taps, s;

  __device__ int left_matrix(int z) const { return z % groups; }
  __device__ int right_matrix(int z) const { return z; }
  __device__ int y_matrix(int z) const { return z; }
  __device__ int right(int matrix, int l, int j) const {
    int c = l, p = j;
    int r = taps.split(c);
    const int column_tap = s.split(r), column = q.split(p);
    const int h = p * stride_h - pad_top + r * dilation_h, w = column * stride_w - pad_left + column_tap * dilation_w;
    if (h < 0 || h >= height || w < 0 || w >= width) return 0;
    return b.widened(b.data[((matrix * channels + c) * height + h) * width + w]) - b.zero_point(0, 0);
  }
};

/// One accumulator per thread, for products with few rows.
template <typename Call>
__global__ void __launch_bounds__(threads) sum_each(const __grid_constant__ Call call, int count) {
  wait_for_previous();
  const std::int64_t item = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (item >= count) return;
  const int at = static_cast<int>(item), j = at % call.n, i = at / call.n % call.m, z = at / call.n / call.m;
  const int a = call.left_matrix(z), b = call.right_matrix(z);
  std::uint32_t sum = 0;
  for (int l = 0; l < call.k; ++l) sum += static_cast<std::uint32_t>(call.left(a, i, l) * call.right(b, l, j));
  call.store({a, b, i, j}, call.y_matrix(z), static_cast<std::int32_t>(sum));
}

/// One tile per block.
template <typename Call>
__global__ void __launch_bounds__(threads)
    sum_tiles(const __grid_constant__ Call call, int row_tiles, int column_tiles) {
  __shared__ int left[step][tile + 1], right[step][tile];
  wait_for_previous();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int first_j = block % column_tiles * tile, first_i = block / column_tiles % row_tiles * tile;
  const int z = block / column_tiles / row_tiles;
  const int a = call.left_matrix(z), b = call.right_matrix(z);
  const int own_i = thread / (tile / side), own_j = thread % (tile / side);  // and those a tile / side further
  std::uint32_t sums[side][side] = {};
  for (int first = 0; first < call.k; first += step) {
    for (int u = thread; u < step * tile; u += threads) {
      const int l = u % step, i = u / step;
      const bool inside = first + l < call.k && first_i + i < call.m;
      left[l][i] = inside ? call.left(a, first_i + i, first + l) : 0;
    }
    for (int u = thread; u < step * tile; u += threads) {
      const int l = u / tile, j = u % tile;
      const bool inside = first + l < call.k && first_j + j < call.n;
      right[l][j] = inside ? call.right(b, first + l, first_j + j) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < step; ++l) {
      int rows[side], columns[side];
#pragma unroll
      for (int u = 0; u < side; ++u) {
        rows[u] = left[l][own_i + u * (tile / side)];
        columns[u] = right[l][own_j + u * (tile / side)];
      }
#pragma unroll
      for (int i = 0; i < side; ++i)
#pragma unroll
        for (int j = 0; j < side; ++j) sums[i][j] += static_cast<std::uint32_t>(rows[i] * columns[j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int u = 0; u < side; ++u)
#pragma unroll
    for (int v = 0; v < side; ++v) {
      const int i = first_i + own_i + u * (tile / side), j = first_j + own_j + v * (tile / side);
      if (i < call.m && j < call.n) call.store({a, b, i, j}, call.y_matrix(z), static_cast<std::int32_t>(sums[u][v]));
    }
}

template <typename Call>
void multiply(const Context& context, const Call& call, std::int64_t products) {
  const std::int64_t count = products * call.m * call.n;
  if (count == 0) return;
  constexpr int few_rows = 8;
  if (call.m < few_rows)
    return launch(context, sum_each<Call>, blocks_for(count, threads), threads, 0, call, static_cast<int>(count));
  const unsigned row_tiles = blocks_for(call.m, tile), column_tiles = blocks_for(call.n, tile);
  launch(context, sum_tiles<Call>, static_cast<unsigned>(products) * row_tiles * column_tiles, threads, 0, call,
         static_cast<int>(row_tiles), static_cast<int>(column_tiles));
}

Products products_of(std::int64_t m, std::int64_t n, std::int64_t k, const IntegerOperand& a, const IntegerOperand& b,
                     const IntegerResult& result) {
  return {static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), a, b, result};
}

}  // namespace

void multiply_integers(const Context& context, const IntegerMatrices& matrices, const IntegerOperand& a,
                       const IntegerOperand& b, const IntegerResult& result) {
  const ProductRun& run = matrices.products;
  const Matrices call{products_of(matrices.m, matrices.n, matrices.k, a, b, result),
                      static_cast<int>(run.a),
                      static_cast<int>(run.b),
                      static_cast<int>(run.y),
                      static_cast<int>(run.a_step),
                      static_cast<int>(run.b_step)};
  multiply(context, call, run.count);
}

void convolve_integers(const Context& context, const ConvProblem& p, const IntegerOperand& w, const IntegerOperand& x,
                       const IntegerResult& result) {
  const Windows call{products_of(p.group_k(), p.p * p.q, p.group_c() * p.r * p.s, w, x, result),
                     static_cast<int>(p.groups),
                     static_cast<int>(p.h),
                     static_cast<int>(p.w),
                     static_cast<int>(p.stride_h),
                     static_cast<int>(p.stride_w),
                     static_cast<int>(p.dilation_h),
                     static_cast<int>(p.dilation_w),
                     static_cast<int>(p.pad_top),
                     static_cast<int>(p.pad_left),
                     static_cast<int>(p.group_c()),
                     FastDivider(p.q),
                     FastDivider(p.r * p.s),
                     FastDivider(p.s)};
  multiply(context, call, p.n * p.groups);
}

}  // namespace lenslet::cuda

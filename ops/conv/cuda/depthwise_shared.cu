// Depthwise kernels for large windows of 16-bit tensors, stride 1: a block copies a tile of x with its halo and the
// widened filters of 32 channels into shared memory. A thread computes 2x7 outputs of two channels; each input that it
// reads and widens serves up to 2 * size products. The loop over the rows of the window stays rolled: code that each
// thread runs only once would wait for instructions.

#include "base/cuda/copy_async.cuh"
#include "ops/conv/cuda/depthwise_half.cuh"

namespace lenslet::cuda {
namespace {

constexpr int lanes = 2, threads_a_tile = shared_depthwise_channels / lanes;

struct SharedCall : DepthwiseCall {
  int columns;                     ///< of x in the block's tile
  FastDivider strips, by_columns;  ///< tiles of a thread side by side in the block's
};

struct TilePlace {
  int channel, q, p, image;
};

/// Pixels before a row of the tile. The additional one every other row puts the two thread tiles of a warp into
/// different banks, be they side by side or one above the other.
__device__ int before_row(int row, int columns) { return row * columns + (row >> 1); }

template <typename T, int size>
__global__ void __launch_bounds__(max_depthwise_threads, 4) depthwise_shared(const __grid_constant__ SharedCall call) {
  constexpr int tile_p = 2, tile_q = shared_depthwise_columns, pieces = shared_depthwise_channels / 8;
  static_assert(size % 2 == 1);
  extern __shared__ uint4 shared[];
  auto* const filters = reinterpret_cast<float2*>(shared);  // [size][size][threads_a_tile]
  uint4* const tile = shared + size * size * threads_a_tile / 2;
  int block = static_cast<int>(blockIdx.x);
  const int first_channel = call.channel_groups.split(block) * shared_depthwise_channels;
  const int strips = static_cast<int>(call.strips.divisor());
  const int q = call.tiles_q.split(block) * strips * tile_q, p = call.tiles_p.split(block) * call.rows, image = block;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int channel = first_channel + thread % threads_a_tile * lanes;
  const bool has_channel = channel < call.k;
#pragma unroll 8  // loads in flight
  for (int i = thread; i < size * size * threads_a_tile; i += threads) {
    std::uint32_t pair[1] = {};
    if (has_channel) load_constant(pair, static_cast<const T*>(call.w) + i / threads_a_tile * call.k + channel);
    filters[i] = widened_pair<T>(pair[0]);
  }
  wait_for_previous();
  const T* const x = image_of<T>(call.x, image, call.height, call.width, call.c);
  const int top = p - call.pad_top, left = q - call.pad_left;
  const int copies = (call.rows + size - 1) * call.columns * pieces;
  for (int i = thread; i < copies; i += threads) {
    int row = i / pieces;
    const int column = call.by_columns.split(row), from = first_channel + i % pieces * 8;
    const int h = top + row, width = left + column;
    const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(call.height) &&
                        static_cast<unsigned>(width) < static_cast<unsigned>(call.width) && from < call.c;
    copy_async<4>(reinterpret_cast<float*>(tile + (before_row(row, call.columns) + column) * pieces + i % pieces),
                  reinterpret_cast<const float*>(inside ? x + (h * call.width + width) * call.c + from : x), inside);
  }
  commit_copies();
  float bias[lanes] = {};
  if (has_channel) start(bias, call, channel);
  wait_for_copies<0>();
  __syncthreads();
  let_next_start();
  if (!has_channel) return;

  const auto* const words = reinterpret_cast<const std::uint32_t*>(tile) + thread % threads_a_tile;
  const float2* const taps = filters + thread % threads_a_tile;
  const int tiles = (call.rows + tile_p - 1) / tile_p * strips;
  for (int at = thread / threads_a_tile; at < tiles; at += threads / threads_a_tile) {
    int row = at;
    const int column = call.strips.split(row) * tile_q;
    row *= tile_p;
    if (p + row >= call.p || q + column >= call.q) continue;
    float acc[tile_p][tile_q][lanes];
#pragma unroll
    for (int i = 0; i < tile_p * tile_q * lanes; ++i)
      acc[i / lanes / tile_q][i / lanes % tile_q][i % lanes] = bias[i % lanes];
    float2 value[tile_q + size - 1];
    const auto load = [&](int h) {
      const std::uint32_t* const from = words + (before_row(row + h, call.columns) + column) * threads_a_tile;
#pragma unroll
      for (int i = 0; i < tile_q + size - 1; ++i) value[i] = widened_pair<T>(from[i * threads_a_tile]);
    };
    const auto load_taps = [&](float2(&to)[size], int r) {
#pragma unroll
      for (int s = 0; s < size; ++s) to[s] = taps[(r * size + s) * threads_a_tile];
    };
    const auto multiply = [&](float(&sums)[tile_q][lanes], const float2(&by)[size]) {
#pragma unroll
      for (int s = 0; s < size; ++s)
#pragma unroll
        for (int i = 0; i < tile_q; ++i) {
          sums[i][0] = fmaf(value[i + s].x, by[s].x, sums[i][0]);
          sums[i][1] = fmaf(value[i + s].y, by[s].y, sums[i][1]);
        }
    };
    // An input row h meets filter row h for the upper outputs and h - 1 for the lower ones.
    float2 even[size], odd[size];
    load_taps(even, 0);
    load(0);
    multiply(acc[0], even);
#pragma unroll 1
    for (int h = 1; h < size; h += 2) {
      load_taps(odd, h);
      load(h);
      multiply(acc[0], odd);
      multiply(acc[1], even);
      load_taps(even, h + 1);
      load(h + 1);
      multiply(acc[0], even);
      multiply(acc[1], odd);
    }
    load(size);
    multiply(acc[1], even);
    finish_tile<T>(call, TilePlace{channel, q + column, p + row, image}, acc);
  }
}

template <typename T>
void (*kernel_of(int size))(SharedCall) {
  return size == 5    ? depthwise_shared<T, 5>
         : size == 7  ? depthwise_shared<T, 7>
         : size == 9  ? depthwise_shared<T, 9>
         : size == 11 ? depthwise_shared<T, 11>
                      : depthwise_shared<T, 13>;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_depthwise_shared(const ConvProblem& p, const DepthwiseLaunch& as) {
  const std::int64_t columns = as.strips * shared_depthwise_columns + p.s - 1;
  const std::int64_t blocks_c = ceil_div(p.k, shared_depthwise_channels), blocks_p = ceil_div(p.p, as.rows),
                     blocks_q = ceil_div(p.q, as.strips * shared_depthwise_columns);
  const SharedCall call{
      {UntypedConvCall(p), 0, static_cast<int>(as.rows), static_cast<int>(as.biases), FastDivider(blocks_c),
       FastDivider(blocks_q), FastDivider(1), FastDivider(blocks_p), FastDivider(1)},
      static_cast<int>(columns),
      FastDivider(as.strips),
      FastDivider(columns)};
  return std::make_unique<OneLaunch<SharedCall>>(
      p, call,
      p.storage == DType::bf16 ? kernel_of<BFloat16>(static_cast<int>(p.s)) : kernel_of<Float16>(static_cast<int>(p.s)),
      static_cast<unsigned>(p.n * blocks_c * blocks_q * blocks_p), as.threads,
      static_cast<std::size_t>(shared_depthwise_bytes(p.s, as.rows, as.strips)));
}

}  // namespace lenslet::cuda

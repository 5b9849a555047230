// stem: a network's first layer, few input channels, to NHWC on tensor cores: 16 bits, or float32 where TF32 is
// allowed. x is NCHW like the network's input, float32 or 16 bits.
//
// A block loads the halo tile of 8x16 outputs into shared memory, rows [columns][C] rounded to the multiplied type, and
// reads operand A from it in 32-bit words: one TF32, or a pair of 16 bits, in the same lanes for both. Operand B, the
// filters, stays in shared memory (wgmma) or registers (mma.sync). K is ordered r, s, c: a filter row is contiguous in
// the halo tile, and only its end is padded, to a pair. A pair is one word at an even element; windows that begin at
// odd elements read a second copy of the halo tile, shifted by one element. Padding of a window meets zero filters, so
// an infinity there gives NaN, as in Winograd.

#include <algorithm>

#include "ops/conv/cuda/stem.cuh"

namespace lenslet::cuda {
namespace {

/// Loads the halo tile at (top, left) of the image at x into `halo_tile`, zeros outside of the image. Eight lanes take
/// adjacent columns of some lines, five times eight columns: ten loads in flight, twenty for large tiles, so that there
/// is one memory latency. `whole`: entirely inside.
template <bool whole, int line_loads, typename X, typename T>
__device__ void load_apart(const StemCall& call, const X* x, int top, int left, T* halo_tile) {
  constexpr int lanes = 8, groups = block_threads / lanes, column_loads = 5;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  for (int line = group; line < call.lines; line += groups * line_loads)
    for (int first = lane; first < call.columns; first += lanes * column_loads) {
      X value[line_loads][column_loads];
      int to[line_loads];
#pragma unroll
      for (int i = 0; i < line_loads; ++i) {
        int channel = line + i * groups;
        const bool line_exists = channel < call.lines;
        const int row = call.rows_divider.split(channel), h = top + row;
        to[i] = line_exists ? row * call.pitch + channel : -1;
        const bool line_inside =
            line_exists && (whole || static_cast<unsigned>(h) < static_cast<unsigned>(call.height));
        const X* const from = x + (channel * call.height + h) * call.width + left;
#pragma unroll
        for (int j = 0; j < column_loads; ++j) {
          const int column = first + j * lanes;
          const bool inside = line_inside && column < call.columns &&
                              (whole || static_cast<unsigned>(left + column) < static_cast<unsigned>(call.width));
          value[i][j] = inside ? from[column] : X{};
        }
      }
#pragma unroll
      for (int i = 0; i < line_loads; ++i)
#pragma unroll
        for (int j = 0; j < column_loads; ++j) {
          const int column = first + j * lanes, at = to[i] + column * call.c;
          if (to[i] < 0 || column >= call.columns) continue;
          const T rounded = as_multiplied<T>(value[i][j]);
          halo_tile[at] = rounded;
          if constexpr (word_elems<T> == 2)
            if (call.copies == 2 && at > 0) halo_tile[2 * call.halo_words + at - 1] = rounded;
        }
    }
}

/// Loads the halo tile of the outputs from row p and column q on.
template <typename T, typename X>
__device__ void load_apart(const StemCall& call, const X* images, int image, int p, int q, std::uint32_t* words) {
  const X* const x = images + static_cast<std::int64_t>(image) * call.c * call.height * call.width;
  const int top = p * call.stride_h - call.pad_top, left = q * call.stride_w - call.pad_left;
  const bool whole = top >= 0 && left >= 0 && top + call.rows <= call.height && left + call.columns <= call.width;
  T* halo_tile = reinterpret_cast<T*>(words);
  // Keeps the address in a register instead of recomputing it for each store: 0.955 of the time in TF32, 1.016 in 16
  // bits (H100 80GB HBM3, first layers of three networks at batch 1, 8 and 64).
  if constexpr (std::is_same_v<T, float>) asm("" : "+l"(halo_tile));
  if (call.lines > 2 * block_threads / 8)
    whole ? load_apart<true, 4>(call, x, top, left, halo_tile) : load_apart<false, 4>(call, x, top, left, halo_tile);
  else
    whole ? load_apart<true, 2>(call, x, top, left, halo_tile) : load_apart<false, 2>(call, x, top, left, halo_tile);
}

/// Persistent blocks: filters are loaded once, before the previous kernel has ended.
template <typename X, typename T, int tiles_n, bool wgmma_reads>
__global__ void __launch_bounds__(block_threads, tiles_n == 8 ? 4 : 5)
    stem_kernel(const __grid_constant__ StemCall call) {
  const StemShared<tiles_n, StemCall> shared(call);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, g = thread % 32 / 4;
  const int first_k = static_cast<int>(blockIdx.y) * 8 * tiles_n;

  shared.template begin<wgmma_reads>(call, first_k);
  const WordClamp<T> clamp(call.activation.clamp());  // no-op for activations that are not clamps
  std::uint32_t window[warp_rows][2];                 // window addresses of pixels g and g + 8
#pragma unroll
  for (int i = 0; i < warp_rows; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      window[i][half] = window_at<T>(call, shared.halo_tile, warp * warp_rows + i, g + 8 * half);

  for (int tile = static_cast<int>(blockIdx.x); tile < call.tiles; tile += static_cast<int>(gridDim.x)) {
    int image = tile;
    const int first_q = call.tiles_q.split(image) * tile_q, first_p = call.tiles_p.split(image) * tile_p;
    __syncthreads();
    load_apart<T>(call, static_cast<const X*>(call.x), image, first_p, first_q, shared.halo_tile);
    __syncthreads();

    float acc[warp_rows][tiles_n][4];
    begin_sums<T>(shared.bias, acc);
    multiply_windows<wgmma_reads, T>(call, shared.filters, shared.offsets, window, acc);

    if (!call.activation.is_clamp()) activate<T>(call.activation, acc);
#pragma unroll
    for (int i = 0; i < warp_rows; ++i) {
      const int p = first_p + warp * warp_rows + i;
      if (p >= call.p) continue;
      T* const row = static_cast<T*>(call.y) + (static_cast<std::int64_t>(image) * call.p + p) * call.q * call.y_pixel;
      store_row(call, row, first_q, first_k, clamp, acc[i]);
    }
  }
}

template <typename X, typename T>
void (*kernel_for(const StemPlan& plan))(StemCall) {
  if (plan.wgmma) return plan.filters == 32 ? stem_kernel<X, T, 4, true> : stem_kernel<X, T, 8, true>;
  return plan.filters == 32 ? stem_kernel<X, T, 4, false> : stem_kernel<X, T, 8, false>;
}
template <typename T>
void (*kernel_for(DType x, const StemPlan& plan))(StemCall) {
  return std::is_same_v<T, float> || x == DType::f32 ? kernel_for<float, T>(plan) : kernel_for<T, T>(plan);
}

int narrow(std::int64_t value) { return static_cast<int>(value); }

/// Fills the arguments that both kernels share.
void fill(StemCall& call, const ConvProblem& p) {
  const HaloTile halo_tile(p);
  call.steps = narrow(step_count(p));
  call.words_a_row = narrow(row_words(p));
  call.columns = narrow(halo_tile.columns);
  call.lines = narrow(p.c * halo_tile.rows);
  call.word = narrow(halo_tile.word);
  call.pitch = narrow(halo_tile.pitch);
  call.halo_words = narrow(halo_tile.words());
  call.copies = narrow(halo_tile.copies);
  call.rows = narrow(halo_tile.rows);
  call.rows_divider = FastDivider(halo_tile.rows);
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_stem(const ConvProblem& p, const StemPlan& plan, int multiprocessors) {
  const auto bytes = static_cast<std::size_t>(shared_bytes(p, plan.filters));
  const auto grid = [&](std::int64_t items) {
    return dim3(static_cast<unsigned>(std::min(items, std::int64_t{multiprocessors} * plan.resident)),
                static_cast<unsigned>(ceil_div(p.k, plan.filters)));
  };
  if (p.max_pool) {
    StemPoolCall call(p);
    fill(call, p);
    call.columns_divider = FastDivider(call.columns);
    call.lines_a_pass = block_threads / call.columns;
    const std::int64_t walks = ceil_div(walk_tiles(p), plan.tiles), strips = strip_count(p);
    call.pool_top = narrow(p.max_pool.pad_top);
    call.pool_left = narrow(p.max_pool.pad_left);
    call.pooled_p = narrow(p.stored_p());
    call.pooled_q = narrow(p.stored_q());
    call.walk_rows = narrow(plan.tiles * pooled_rows);
    const HaloTile halo_tile(p);
    const std::int64_t kept_rows = p.r - p.stride_h, kept = kept_rows * halo_tile.pitch / halo_tile.word / 4;
    const bool keeps = kept_rows > 0 && kept_rows <= tile_p * p.stride_h && kept <= 2 * block_threads;
    call.kept_lines = keeps && halo_tile.copies == 1 ? narrow(p.r * p.c) : 0;
    call.kept = call.kept_lines > 0 ? narrow(kept) : 0;
    call.walks = FastDivider(walks);
    call.strips = FastDivider(strips);
    call.tiles = narrow(p.n * strips * walks);
    const StemPoolFunction kernel = stem_pool_of(p.x_storage, p.storage, narrow(plan.filters), plan.wgmma);
    return std::make_unique<OneLaunch<StemPoolCall>>(p, call, kernel, grid(call.tiles), block_threads, bytes);
  }
  StemCall call(p);
  fill(call, p);
  call.tiles = narrow(tile_count(p));
  call.tiles_q = FastDivider(ceil_div(p.q, tile_q));
  call.tiles_p = FastDivider(ceil_div(p.p, tile_p));
  const auto kernel = p.storage == DType::f32   ? kernel_for<float>(p.x_storage, plan)
                      : p.storage == DType::f16 ? kernel_for<Float16>(p.x_storage, plan)
                                                : kernel_for<BFloat16>(p.x_storage, plan);
  return std::make_unique<OneLaunch<StemCall>>(p, call, kernel, grid(call.tiles), block_threads, bytes);
}

}  // namespace lenslet::cuda

// stem's kernel with 3x3 max pooling, stride 2 (ConvProblem::max_pool), fused: the convolution's output is never
// stored.
//
// A block walks down a strip of 16 output columns, eight rows at a time, and pools them to four rows of seven. Pooling
// windows overlap by a column, which two strips compute, and by a row, which the block keeps. A lane holds 2x2 outputs
// and their maximum; the right neighbour's outputs come by shuffles, the row above from the warp above through shared
// memory, in the same lane. A walk that begins inside the image computes that row first. Outputs are rounded before
// they are compared: rounding is monotonic, so the bits equal those of a pool over stored outputs.

#include "ops/conv/cuda/stem.cuh"

namespace lenslet::cuda {
namespace {

/// Loads lines of the halo tile at (top, left) of the image at x, zeros outside of the image. A thread has a column of
/// every n-th line. All its loads are in flight before the barrier inside, after which `halo_tile` may be overwritten.
/// Then `kept` 16-byte vectors move from element kept_from to kept_to, and first_line follows them. `whole`: entirely
/// inside.
template <bool whole, int loads, typename X, typename T>
__device__ void load_lines(const StemPoolCall& call, const StemLine* lines, const X* x, int top, int left, T* halo_tile,
                           int first_line, int kept, int kept_from, int kept_to) {
  const int thread = static_cast<int>(threadIdx.x);
  const int line_in_pass = static_cast<int>(call.columns_divider.divide(threadIdx.x));
  const int column = thread - line_in_pass * call.columns;
  const bool column_inside = line_in_pass < call.lines_a_pass &&
                             (whole || static_cast<unsigned>(left + column) < static_cast<unsigned>(call.width));
  const bool writes = line_in_pass < call.lines_a_pass;
  x += top * call.width + left + column;
  constexpr int copies = 2;
  uint4 old[copies];
  const uint4* const old_at = reinterpret_cast<const uint4*>(halo_tile + kept_from);
#pragma unroll
  for (int i = 0; i < copies; ++i)
    if (thread + i * block_threads < kept) old[i] = old_at[thread + i * block_threads];

  bool first = true;
  for (int begin = first_line + line_in_pass;; begin += loads * call.lines_a_pass) {
    X value[loads];
    int to[loads];
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int line = begin + i * call.lines_a_pass;
      const StemLine at = lines[min(line, call.lines - 1)];
      const bool inside = line < call.lines && column_inside &&
                          (whole || static_cast<unsigned>(top + at.row) < static_cast<unsigned>(call.height));
      to[i] = at.to + column * call.c;
      value[i] = inside ? x[at.from] : X{};
    }
    if (first) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < copies; ++i)
        if (thread + i * block_threads < kept)
          reinterpret_cast<uint4*>(halo_tile + kept_to)[thread + i * block_threads] = old[i];
      first = false;
    }
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      if (!writes || begin + i * call.lines_a_pass >= call.lines) continue;
      const T rounded = as_multiplied<T>(value[i]);
      halo_tile[to[i]] = rounded;
      if constexpr (word_elems<T> == 2)
        if (call.copies == 2 && to[i] > 0) halo_tile[2 * call.halo_words + to[i] - 1] = rounded;
    }
    if (begin - line_in_pass + loads * call.lines_a_pass >= call.lines) break;
  }
}

/// Loads the halo tile of the outputs from row p and column q on, after all threads are done with the one before.
template <typename T, typename X>
__device__ void load_halo_tile(const StemPoolCall& call, const StemLine* lines, const X* images, int image, int p,
                               int q, std::uint32_t* words, int first_line, int kept) {
  const X* const x = images + static_cast<std::int64_t>(image) * call.c * call.height * call.width;
  const int top = p * call.stride_h - call.pad_top, left = q * call.stride_w - call.pad_left;
  const bool whole = top >= 0 && left >= 0 && top + call.rows <= call.height && left + call.columns <= call.width;
  T* const halo_tile = reinterpret_cast<T*>(words);
  // Offsets of the rows kept for the next tile, after the row of outputs above it.
  const int kept_to = call.stride_h * call.pitch, kept_from = (tile_p + 1) * kept_to;
  constexpr int loads = 16;
  if (whole)
    load_lines<true, loads>(call, lines, x, top, left, halo_tile, first_line, kept, kept_from, kept_to);
  else
    load_lines<false, loads>(call, lines, x, top, left, halo_tile, first_line, kept, kept_from, kept_to);
}

/// Maximum of both numbers of a word, or of one: NaN where either is.
template <typename T>
__device__ std::uint32_t greater(std::uint32_t a, std::uint32_t b) {
  if constexpr (std::is_same_v<T, float>)
    asm("{\n\t.reg .f32 a, b;\n\tmov.b32 a, %0;\n\tmov.b32 b, %1;\n\tmax.NaN.f32 a, a, b;\n\tmov.b32 %0, a;\n\t}"
        : "+r"(a)
        : "r"(b));
  else if constexpr (std::is_same_v<T, Float16>)
    asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  else
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
/// The least value, for positions outside.
template <typename T>
constexpr std::uint32_t least_word = std::is_same_v<T, float>     ? 0xff800000U
                                     : std::is_same_v<T, Float16> ? 0xfc00fc00U
                                                                  : 0xff80ff80U;

/// Horizontal maximum from the outputs of pixels 2g and 2g + 1; `there`: which exist.
template <typename T, int tiles_n>
__device__ std::uint32_t widest(const float (&acc)[tiles_n][4], int word, const bool (&there)[2]) {
  const std::uint32_t one = there[0] ? stored_word<T>(acc, word, 0) : least_word<T>;
  const std::uint32_t two = there[1] ? stored_word<T>(acc, word, 1) : least_word<T>;
  return greater<T>(greater<T>(one, two), __shfl_down_sync(~0U, one, 4));
}

template <typename X, typename T, int tiles_n, bool wgmma_reads>
__global__ void __launch_bounds__(block_threads, 4) stem_pool_kernel(const __grid_constant__ StemPoolCall call) {
  constexpr int words = pixel_words<T, tiles_n>, vectors = words / 4;
  const StemShared<tiles_n, StemPoolCall> shared(call);
  // Rows that warps pass to the warp below, [warps + 1][vectors][lanes]; the last warp's go to the next tile and are
  // double-buffered.
  uint4* const left = reinterpret_cast<uint4*>(shared.halo_tile + (call.copies * call.halo_words + 3) / 4 * 4);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int first_k = static_cast<int>(blockIdx.y) * 8 * tiles_n;
  shared.template begin<wgmma_reads>(call, first_k);
  const WordClamp<T> clamp(call.activation.clamp());  // does not change which is the greatest

  std::uint32_t window[warp_rows][2], window_above[1][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < warp_rows; ++i)
      window[i][half] = window_at<T>(call, shared.halo_tile, 1 + warp * warp_rows + i, 2 * g + half);
    window_above[0][half] = window_at<T>(call, shared.halo_tile, 0, 2 * g + half);
  }
  const auto vector_at = [&](int place, int vector) -> uint4& { return left[(place * vectors + vector) * 32 + lane]; };
  const auto load = [&](int image, int above, int q, bool keeps) {
    load_halo_tile<T>(call, shared.lines, static_cast<const X*>(call.x), image, above, q, shared.halo_tile,
                      keeps ? call.kept_lines : 0, keeps ? call.kept : 0);
    __syncthreads();
  };

  int kept = 0;  // slot of the row above the tile
  for (int walk = static_cast<int>(blockIdx.x); walk < call.tiles; walk += static_cast<int>(gridDim.x)) {
    int image = walk;
    const int column = call.strips.split(image) * pooled_columns, begin = call.walks.split(image) * call.walk_rows;
    const int end = min(begin + call.walk_rows, call.pooled_p);
    const int first_q = 2 * column - call.pool_left;
    const bool column_there[2] = {static_cast<unsigned>(first_q + 2 * g) < static_cast<unsigned>(call.q),
                                  static_cast<unsigned>(first_q + 2 * g + 1) < static_cast<unsigned>(call.q)};
    const int above = 2 * begin - call.pool_top;
    load(image, above, first_q, false);
    if (above >= 0) {
      float acc[1][tiles_n][4];
      begin_sums<T>(shared.bias, acc);
      multiply_windows<wgmma_reads, T>(call, shared.filters, shared.offsets, window_above, acc);
      if (!call.activation.is_clamp()) activate<T>(call.activation, acc);
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        std::uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] = widest<T>(acc[0], 4 * v + i, column_there);
        if (warp == 0) vector_at(warps - 1 + kept, v) = {word[0], word[1], word[2], word[3]};
      }
    } else if (warp == 0) {
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        vector_at(warps - 1 + kept, v) = make_uint4(least_word<T>, least_word<T>, least_word<T>, least_word<T>);
    }

    for (int row = begin; row < end; row += pooled_rows, kept ^= 1) {
      const int first_p = 2 * row - call.pool_top + 1;
      if (row > begin) load(image, first_p - 1, first_q, true);
      float acc[warp_rows][tiles_n][4];
      begin_sums<T>(shared.bias, acc);
      multiply_windows<wgmma_reads, T>(call, shared.filters, shared.offsets, window, acc);
      if (!call.activation.is_clamp()) activate<T>(call.activation, acc);

      bool there[warp_rows][2];
#pragma unroll
      for (int i = 0; i < warp_rows; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          there[i][half] = column_there[half] &&
                           static_cast<unsigned>(first_p + warp * warp_rows + i) < static_cast<unsigned>(call.p);
      std::uint32_t most[words];
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        std::uint32_t last[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          last[i] = widest<T>(acc[1], 4 * v + i, there[1]);
          most[4 * v + i] = greater<T>(widest<T>(acc[0], 4 * v + i, there[0]), last[i]);
        }
        vector_at(warp < warps - 1 ? warp : warps - 1 + (kept ^ 1), v) = {last[0], last[1], last[2], last[3]};
      }
      __syncthreads();
      const int p = row + warp, q = column + g;
      if (p < end && g < pooled_columns && q < call.pooled_q) {
        T* const y = static_cast<T*>(call.y) +
                     ((static_cast<std::int64_t>(image) * call.pooled_p + p) * call.pooled_q + q) * call.y_pixel;
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          const int k = first_k + v * (4 * thread_filters<T>)+t * thread_filters<T>;
          if (k >= call.k) continue;
          const uint4 above = vector_at(warp > 0 ? warp - 1 : warps - 1 + kept, v);
          std::uint32_t word[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) word[i] = clamp(greater<T>(most[4 * v + i], word_of(above, i)));
          store_words(y + k, word);
        }
      }
    }
  }
}

template <typename X, typename T>
StemPoolFunction kernel_of(int filters, bool wgmma_reads) {
  if (wgmma_reads) return filters == 32 ? stem_pool_kernel<X, T, 4, true> : stem_pool_kernel<X, T, 8, true>;
  return filters == 32 ? stem_pool_kernel<X, T, 4, false> : stem_pool_kernel<X, T, 8, false>;
}

}  // namespace

StemPoolFunction stem_pool_of(DType x, DType y, int filters, bool wgmma_reads) {
  if (y == DType::f32) return kernel_of<float, float>(filters, wgmma_reads);
  const bool floats = x == DType::f32;
  if (y == DType::f16)
    return floats ? kernel_of<float, Float16>(filters, wgmma_reads) : kernel_of<Float16, Float16>(filters, wgmma_reads);
  return floats ? kernel_of<float, BFloat16>(filters, wgmma_reads)
                : kernel_of<BFloat16, BFloat16>(filters, wgmma_reads);
}

}  // namespace lenslet::cuda

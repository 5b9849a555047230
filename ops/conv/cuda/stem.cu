// stem: the first layer of a network, few channels in and any number out, to NHWC on tensor cores: to 16 bit, or to
// float32 where TF32 was asked for. x is NCHW as the network's input comes, float32 or of 16 bit.
//
// A block lays the patch that 8x16 outputs read into shared memory, a row of it [columns][C] rounded to what is
// multiplied, and fetches operand a from there, in words of 32 bit: one TF32, or a pair of 16 bit. Operands of both
// kinds have the same words in the same lanes. Operand b, the filters, stays in shared memory: wgmma reads it there,
// mma.sync has it in registers. Terms are ordered r, s, c: those of a filter's row lie side by side in
// the patch, and only the row's end is padded, to a pair. A pair is one word at an even element; where windows may
// begin at an odd one, they read a second copy of the patch that is shifted by an element. What a word brings beside
// the window meets a zero filter, so that an infinity there makes a NaN, as it may in Winograd.

#include <algorithm>
#include <type_traits>

#include "base/cuda/fast_divider.h"
#include "base/cuda/wgmma.cuh"
#include "base/tf32.h"
#include "ops/conv/cuda/half_mma.cuh"
#include "ops/conv/cuda/mma.cuh"
#include "ops/conv/cuda/one_launch.cuh"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

constexpr int tile_p = 8, tile_q = 16, warps = 4, block_threads = 32 * warps;
constexpr int warp_rows = tile_p / warps;  ///< of outputs: 16 pixels each
constexpr int step_words = 8;              ///< of terms that one instruction multiplies

/// Elements of a word.
template <typename T>
constexpr int word_elems = 4 / static_cast<int>(sizeof(T));

/// Filters that a thread stores of a pixel: 16 bytes.
template <typename T>
constexpr int thread_filters = 16 / static_cast<int>(sizeof(T));
/// The filter that operand b has at `place`: products leave places 8*j + 2*t and the next to thread t of four, which in
/// this order are thread_filters side by side.
template <typename T>
constexpr std::int64_t filter_at(std::int64_t place) {
  constexpr std::int64_t each = thread_filters<T>, group = 4 * each;
  const std::int64_t in_group = place % group;
  return place - in_group + in_group % 8 / 2 * each + in_group / 8 * 2 + in_group % 2;
}

/// w [blocks of 8 * tiles_n filters][steps][bytes_a_step]. For mma.sync a step is [tiles_n / 2][lanes] of four words: a
/// lane's part of operands b of two tiles of eight filters. For wgmma it is [2][tiles_n][8 filters][4 words]: matrices
/// of 128 bytes. Filters are in the order of filter_at().
struct StemCall : UntypedConvCall {
  using UntypedConvCall::UntypedConvCall;
  int steps, words_a_row;
  int columns, lines;  ///< of the patch; lines: C times its rows
  int pitch;           ///< elements of a row: whole words, of pairs one element more than columns * C at least
  int patch_words;     ///< of a copy
  int copies;          ///< 1, or 2 where windows begin at odd elements
  int tiles;
  FastDivider tiles_q, tiles_p, rows;
};

/// Rounded to nearest.
template <typename T, typename X>
__device__ T as_multiplied(X x) {
  if constexpr (std::is_same_v<T, float>) {
    std::uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
  } else if constexpr (std::is_same_v<X, T>) {
    return x;
  } else {
    return narrowed<T>(x);
  }
}

/// Lays the patch whose first element is (top, left) of the image at x into `patch`, zeros where there is no image.
/// Eight lanes take neighbouring columns, for some lines at a time and five times eight columns: ten loads under way,
/// or twenty of large patches, so that there is no second trip to memory. `whole`: there is image everywhere.
template <bool whole, int line_loads, typename X, typename T>
__device__ void load_patch(const StemCall& call, const X* x, int top, int left, T* patch) {
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
        const int row = call.rows.split(channel), h = top + row;
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
          patch[at] = rounded;
          if constexpr (word_elems<T> == 2)
            if (call.copies == 2 && at > 0) patch[2 * call.patch_words + at - 1] = rounded;
        }
    }
}

template <bool whole, typename X, typename T>
__device__ void load_patch(const StemCall& call, const X* x, int top, int left, T* patch) {
  if (call.lines > 2 * block_threads / 8)
    load_patch<whole, 4>(call, x, top, left, patch);
  else
    load_patch<whole, 2>(call, x, top, left, patch);
}

template <typename T>
__device__ void multiply(float (&sums)[4], const std::uint32_t (&a)[4], uint2 b) {
  if constexpr (std::is_same_v<T, float>)
    Mma<float>::multiply(sums, a, b.x, b.y);
  else
    multiply_add<T>(sums, a, b);
}

/// Exactly. In a loop and its body once, because the functions are long; registers are indexed by what is known here.
template <int tiles_n>
__device__ void activate_floats(const DeviceActivation& activation, float (&sums)[warp_rows][tiles_n][4]) {
#pragma unroll 1
  for (int tile = 0; tile < warp_rows * tiles_n; ++tile) {
    float4 value{};
#pragma unroll
    for (int known = 0; known < warp_rows * tiles_n; ++known)
      if (tile == known) {
        const float(&of)[4] = sums[known / tiles_n][known % tiles_n];
        value = {of[0], of[1], of[2], of[3]};
      }
    value = activation(value);
#pragma unroll
    for (int known = 0; known < warp_rows * tiles_n; ++known)
      if (tile == known) {
        float(&of)[4] = sums[known / tiles_n][known % tiles_n];
        of[0] = value.x, of[1] = value.y, of[2] = value.z, of[3] = value.w;
      }
  }
}

/// Of all pixels of a row at once: one branch a row.
template <int tiles_n>
__device__ void activate_halves(const DeviceActivation& activation, float (&sums)[warp_rows][tiles_n][4]) {
#pragma unroll
  for (int i = 0; i < warp_rows; ++i) {
    float flat[tiles_n * 4];
#pragma unroll
    for (int j = 0; j < tiles_n * 4; ++j) flat[j] = sums[i][j / 4][j % 4];
    activation.apply_for_halves(flat);
#pragma unroll
    for (int j = 0; j < tiles_n * 4; ++j) sums[i][j / 4][j % 4] = flat[j];
  }
}

/// A thread's filters of a pixel from k on, of sums of neighbouring tiles of filters; `pair` counts pairs of sums.
template <typename T, typename Clamp, int tiles_n>
__device__ void store_filters(const StemCall& call, T* y, int k, const Clamp& clamp, const float (&sums)[tiles_n][4],
                              int first_tile, int pair) {
  const auto sum = [&](int i) { return sums[first_tile + i / 2][2 * pair + i % 2]; };
  if constexpr (std::is_same_v<T, float>) {
    if (call.k % 4 == 0) {
      *reinterpret_cast<float4*>(y) = {clamp(sum(0)), clamp(sum(1)), clamp(sum(2)), clamp(sum(3))};
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (k + i < call.k) y[i] = clamp(sum(i));
  } else {
    std::uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) word[i] = clamp(narrowed_pair<T>(sum(2 * i), sum(2 * i + 1)));
    if (call.k % 8 == 0) {
      *reinterpret_cast<uint4*>(y) = {word[0], word[1], word[2], word[3]};
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (k + i < call.k) y[i] = {static_cast<std::uint16_t>(word[i / 2] >> 16 * (i % 2))};
  }
}

/// What a warp has of a row of outputs, `tiles_n` eights of filters from first_k on, to pixels first_q + g and 8
/// behind: four lanes fill 64 bytes of a pixel.
template <typename T, typename Clamp, int tiles_n>
__device__ void store_row(const StemCall& call, T* row, int first_q, int first_k, const Clamp& clamp,
                          const float (&sums)[tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const int q = first_q + g + 8 * pair;
    if (q >= call.q) continue;
    T* const y = row + q * call.y_pixel;
#pragma unroll
    for (int n = 0; n < tiles_n; n += thread_filters<T> / 2) {
      const int k = first_k + n * 8 + t * thread_filters<T>;
      if (k < call.k) store_filters(call, y + k, k, clamp, sums, n, pair);
    }
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// Describes a step's filters: matrices of eight filters and 16 bytes, those of the same terms one after the other.
template <int tiles_n>
__device__ std::uint64_t step_operand(const uint4* filters) {
  constexpr std::uint64_t terms = tiles_n * 128 / 16, eights = 128 / 16;
  return ((shared_address(filters) & 0x3FFFFU) >> 4) | terms << 16 | eights << 32;
}
#endif

/// sums += windows * filters, all steps. `window`: where those of pixels g and g + 8 of a row begin in the patch.
template <bool wgmma_reads, typename T, int tiles_n>
__device__ void multiply_windows(const StemCall& call, const uint4* filters, const int* offsets,
                                 const std::uint32_t* patch, const int (&window)[warp_rows][2],
                                 float (&sums)[warp_rows][tiles_n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
  constexpr int step_vectors = tiles_n * 16;
  const auto load = [&](int step, std::uint32_t(&a)[warp_rows][4]) {
    const int low = offsets[step * step_words + t], high = offsets[step * step_words + t + 4];
#pragma unroll
    for (int i = 0; i < warp_rows; ++i) {
      a[i][0] = patch[window[i][0] + low];
      a[i][1] = patch[window[i][1] + low];
      a[i][2] = patch[window[i][0] + high];
      a[i][3] = patch[window[i][1] + high];
    }
  };
  if constexpr (wgmma_reads) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    // Two steps' operands a, so that one is fetched while the other is multiplied. Steps are even in number.
    std::uint32_t a[2][warp_rows][4];
    for (int step = 0; step < call.steps; step += 2)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        wgmma_wait<1>();
        load(step + half, a[half]);
        const std::uint64_t b = step_operand<tiles_n>(filters + (step + half) * step_vectors);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < warp_rows; ++i)
          wgmma_of_registers<T, 8 * tiles_n>(reinterpret_cast<float(&)[4 * tiles_n]>(sums[i]), a[half][i], b);
        wgmma_commit();
      }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < warp_rows; ++i) wgmma_hold(reinterpret_cast<float(&)[4 * tiles_n]>(sums[i]));
#endif
  } else {
#pragma unroll 1
    for (int step = 0; step < call.steps; ++step) {
      std::uint32_t a[warp_rows][4];
      load(step, a);
#pragma unroll
      for (int n = 0; n < tiles_n; n += 2) {
        const uint4 b = filters[step * step_vectors + n * 16 + lane];
#pragma unroll
        for (int i = 0; i < warp_rows; ++i) {
          multiply<T>(sums[i][n], a[i], {b.x, b.y});
          multiply<T>(sums[i][n + 1], a[i], {b.z, b.w});
        }
      }
    }
  }
}

/// Blocks stay and take tile after tile: their filters are fetched once, before the kernel ahead has ended.
template <typename X, typename T, int tiles_n, bool wgmma_reads>
__global__ void __launch_bounds__(block_threads, tiles_n == 8 ? 4 : 5)
    stem_kernel(const __grid_constant__ StemCall call) {
  extern __shared__ uint4 shared[];
  const int filter_vectors = call.steps * tiles_n / 2 * 32;
  uint4* const filters = shared;
  int* const offsets = reinterpret_cast<int*>(filters + filter_vectors);  // of the words of a window
  float* const bias = reinterpret_cast<float*>(offsets + call.steps * step_words);
  std::uint32_t* const patch = reinterpret_cast<std::uint32_t*>(bias + 8 * tiles_n);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int first_k = static_cast<int>(blockIdx.y) * 8 * tiles_n;

  const uint4* const w = static_cast<const uint4*>(call.w) + static_cast<int>(blockIdx.y) * filter_vectors;
  for (int i = thread; i < filter_vectors; i += block_threads) filters[i] = __ldg(w + i);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (wgmma_reads) order_copies_after_shared_stores();  // products read as copies do
#endif
  for (int word = thread; word < call.steps * step_words; word += block_threads) {
    const int r = word / call.words_a_row;
    offsets[word] = r < call.r ? r * (call.pitch / word_elems<T>)+word % call.words_a_row : 0;
  }
  // The ends of rows, which no patch reaches.
  for (int i = thread; i < call.copies * call.patch_words; i += block_threads) patch[i] = 0;
  wait_for_previous();
  let_next_start();
  for (int k = thread; k < 8 * tiles_n; k += block_threads)
    bias[k] = call.bias != nullptr && first_k + k < call.k ? call.bias[first_k + k] : 0.0F;

  // Of activations that are none it does nothing.
  const std::conditional_t<word_elems<T> == 1, Clamp, PairClamp<T>> clamp{call.activation.clamp().low,
                                                                          call.activation.clamp().high};
  int window[warp_rows][2];  // where those of pixels g and g + 8 begin
#pragma unroll
  for (int i = 0; i < warp_rows; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = (warp * warp_rows + i) * call.stride_h * call.pitch + (g + 8 * half) * call.stride_w * call.c;
      window[i][half] = word_elems<T> == 2 ? at / 2 + (at % 2) * call.patch_words : at;
    }

  for (int tile = static_cast<int>(blockIdx.x); tile < call.tiles; tile += static_cast<int>(gridDim.x)) {
    int image = tile;
    const int first_q = call.tiles_q.split(image) * tile_q, first_p = call.tiles_p.split(image) * tile_p;
    const X* const x =
        static_cast<const X*>(call.x) + static_cast<std::int64_t>(image) * call.c * call.height * call.width;
    __syncthreads();
    const int top = first_p * call.stride_h - call.pad_top, left = first_q * call.stride_w - call.pad_left;
    const int rows = static_cast<int>(call.rows.divisor());
    if (top >= 0 && left >= 0 && top + rows <= call.height && left + call.columns <= call.width)
      load_patch<true>(call, x, top, left, reinterpret_cast<T*>(patch));
    else
      load_patch<false>(call, x, top, left, reinterpret_cast<T*>(patch));
    __syncthreads();

    float sums[warp_rows][tiles_n][4];
    constexpr int tiles_a_group = thread_filters<T> / 2;
#pragma unroll
    for (int n = 0; n < tiles_n; ++n) {
      const float2 begin = *reinterpret_cast<const float2*>(bias + n / tiles_a_group * tiles_a_group * 8 +
                                                            thread_filters<T> * t + n % tiles_a_group * 2);
#pragma unroll
      for (int i = 0; i < warp_rows; ++i) {
        sums[i][n][0] = sums[i][n][2] = begin.x;
        sums[i][n][1] = sums[i][n][3] = begin.y;
      }
    }
    multiply_windows<wgmma_reads, T>(call, filters, offsets, patch, window, sums);

    if (!call.activation.is_clamp()) {
      if constexpr (std::is_same_v<T, float>)
        activate_floats(call.activation, sums);
      else
        activate_halves(call.activation, sums);
    }
#pragma unroll
    for (int i = 0; i < warp_rows; ++i) {
      const int p = first_p + warp * warp_rows + i;
      if (p >= call.p) continue;
      T* const row = static_cast<T*>(call.y) + (static_cast<std::int64_t>(image) * call.p + p) * call.q * call.y_pixel;
      store_row(call, row, first_q, first_k, clamp, sums[i]);
    }
  }
}

std::int64_t word_elems_of(const ConvProblem& p) { return p.storage == DType::f32 ? 1 : 2; }
std::int64_t row_words(const ConvProblem& p) { return (p.s * p.c + word_elems_of(p) - 1) / word_elems_of(p); }
/// Whole pairs of steps.
std::int64_t step_count(const ConvProblem& p) {
  return (p.r * row_words(p) + 2 * step_words - 1) / (2 * step_words) * 2;
}
std::int64_t blocks_over(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

/// Rows and columns of what a tile reads.
struct Patch {
  std::int64_t rows, columns, word, pitch, copies;  ///< word: elements of one
  explicit Patch(const ConvProblem& p)
      : rows((tile_p - 1) * p.stride_h + p.r),
        columns((tile_q - 1) * p.stride_w + p.s),
        word(word_elems_of(p)),
        pitch(word == 1 ? columns * p.c : (columns * p.c + 2) / 2 * 2),
        copies(word == 1 ? 1 : p.stride_w * p.c % 2 + 1) {}
  std::int64_t words() const { return rows * pitch / word; }
};

std::int64_t shared_bytes(const ConvProblem& p, std::int64_t filters) {
  const Patch patch(p);
  return step_count(p) * (filters * 32 + 4 * step_words) + 4 * filters + 4 * patch.copies * patch.words();
}

std::int64_t tile_count(const ConvProblem& p) { return p.n * blocks_over(p.p, tile_p) * blocks_over(p.q, tile_q); }

/// How a problem is cut: filters a block computes, blocks that a multiprocessor holds, and the instruction.
struct StemPlan {
  std::int64_t filters, resident;
  bool wgmma;
};

template <typename X, typename T>
void (*kernel_for(const StemPlan& plan))(StemCall) {
  if (plan.wgmma) return plan.filters == 32 ? stem_kernel<X, T, 4, true> : stem_kernel<X, T, 8, true>;
  return plan.filters == 32 ? stem_kernel<X, T, 4, false> : stem_kernel<X, T, 8, false>;
}
template <typename T>
void (*kernel_for(DType x, const StemPlan& plan))(StemCall) {
  return std::is_same_v<T, float> || x == DType::f32 ? kernel_for<float, T>(plan) : kernel_for<T, T>(plan);
}

/// Instructions of one architecture alone, which newer ones do not run.
bool has_wgmma(const DeviceProfile& device) {
  return device.capability == 90 && std::string_view(LENSLET_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
}

StemPlan read_plan(std::string_view config) {
  ConfigReader reader(config);
  StemPlan plan{reader.integer("filters", 32, 64), reader.integer("resident", 1, 16), false};
  if (!reader.done()) {
    if (reader.word("by") != "wgmma") reader.refuse("there is no such instruction");
    plan.wgmma = true;
  }
  reader.finish();
  if (plan.filters != 32 && plan.filters != 64) reader.refuse("filters come in blocks of 32 or 64");
  return plan;
}

class Stem final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "stem"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

 private:
  bool reads_float32() const override { return true; }

  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (p.storage == DType::f32 && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (target.device.capability < 80) return "it needs tensor cores of compute capability 8.0";
    if (p.groups != 1) return "grouped filters";
    if (p.c > 4) return "more than four input channels";
    if (p.r > 11 || p.s > 11 || p.stride_h > 4 || p.stride_w > 4) return "a filter beyond 11x11 or a stride beyond 4";
    if (p.dilation_h != 1 || p.dilation_w != 1) return "dilated filters";
    if (p.residual) return "a residual: it is for first layers";
    if (!fits_32_bits(p) || p.k > 0xffff || tile_count(p) > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    return target.device.refuse_shared(static_cast<std::size_t>(shared_bytes(p, 64)));
  }

  /// Memory or tensor cores, whichever takes longer, of whole tiles. First guesses, to be fitted.
  Plan plan(const ConvProblem& p, const Target& target) const override {
    constexpr double start_us = 2, memory_share = 0.8, product_share = 0.4;
    const DeviceProfile& device = target.device;
    const StemPlan cut{p.k <= 32 ? 32 : 64, p.k <= 32 ? 5 : 4, has_wgmma(device)};
    ConfigWriter config;
    config.add("filters", cut.filters).add("resident", cut.resident);
    if (cut.wgmma) config.add("by", std::string_view("wgmma"));
    const double products = 2.0 * static_cast<double>(tile_count(p) * tile_p * tile_q) *
                            static_cast<double>(blocks_over(p.k, cut.filters) * cut.filters) *
                            static_cast<double>(step_count(p) * step_words * word_elems_of(p));
    const double rate =
        device.flops_per_us(p.storage == DType::f32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp16);
    return {
        .format = formats::nhwc,
        .x_format = formats::nchw,
        .pitched = true,
        .config = config.str(),
        .estimated_us = device.launch_us + start_us +
                        std::max(p.bytes() / (memory_share * device.bytes_per_us), products / (product_share * rate)),
        .tolerance = tolerance(p)};
  }

  /// Of float32 both operands are rounded, as for TF32 (tf32_sum_tolerance).
  static double tolerance(const ConvProblem& p) {
    const std::int64_t terms = p.c * p.r * p.s;
    if (p.storage == DType::f32) return tf32_sum_tolerance(terms) + sum_tolerance(terms);
    if (p.x_storage == p.storage) return half_sum_tolerance(p.storage, terms);
    return 10 * unit_roundoff(p.storage) + 2 * sum_tolerance(terms);
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    const auto [filters, resident, wgmma] = read_plan(config);
    return {.floats = blocks_over(p.k, filters) * filters * step_count(p) * step_words * word_elems_of(p),
            .form = std::string(to_string(p.storage)) + " by " + std::to_string(filters) + (wgmma ? " for wgmma" : ""),
            .element_bytes = dtype_bytes(p.storage)};
  }

  void transform_bytes(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                       std::span<std::byte> to) const override {
    const StemPlan plan = read_plan(config);
    const std::int64_t filters = plan.filters, words_a_row = row_words(p), steps = step_count(p);
    dispatch(p.storage, Types<float, Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      constexpr std::int64_t elems = word_elems<T>;
      T* element = reinterpret_cast<T*>(to.data());
      // `place` of a filter in its block, and a word of a step.
      const auto write = [&](std::int64_t first_k, std::int64_t place, std::int64_t word) {
        const std::int64_t k = first_k + filter_at<T>(place);
        const std::int64_t r = word / words_a_row;
        for (std::int64_t i = 0; i < elems; ++i) {
          const std::int64_t term = word % words_a_row * elems + i, s = term / p.c, c = term % p.c;
          const bool exists = k < p.k && r < p.r && term < p.s * p.c;
          const double weight = exists ? filter.exact_weight(k, (c * p.r + r) * p.s + s) : 0.0;
          if constexpr (std::is_same_v<T, float>)
            *element++ = tf32_from_f64(weight);
          else
            *element++ = narrowed<T>(weight);
        }
      };
      for (std::int64_t first_k = 0; first_k < p.k; first_k += filters)
        for (std::int64_t step = 0; step < steps; ++step)
          if (plan.wgmma) {
            for (std::int64_t word = 0; word < step_words; word += 4)
              for (std::int64_t place = 0; place < filters; ++place)
                for (std::int64_t i = 0; i < 4; ++i) write(first_k, place, step * step_words + word + i);
          } else {
            for (std::int64_t tile = 0; tile < filters / 8; tile += 2)
              for (std::int64_t lane = 0; lane < 32; ++lane)
                for (std::int64_t part = 0; part < 4; ++part)
                  write(first_k, (tile + part / 2) * 8 + lane / 4, step * step_words + lane % 4 + part % 2 * 4);
          }
    });
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    const StemPlan plan = read_plan(config);
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    const Patch patch(p);
    StemCall call(p);
    call.steps = narrow(step_count(p));
    call.words_a_row = narrow(row_words(p));
    call.columns = narrow(patch.columns);
    call.lines = narrow(p.c * patch.rows);
    call.pitch = narrow(patch.pitch);
    call.patch_words = narrow(patch.words());
    call.copies = narrow(patch.copies);
    call.tiles = narrow(tile_count(p));
    call.tiles_q = FastDivider(blocks_over(p.q, tile_q));
    call.tiles_p = FastDivider(blocks_over(p.p, tile_p));
    call.rows = FastDivider(patch.rows);
    const auto bytes = static_cast<std::size_t>(shared_bytes(p, plan.filters));
    const auto blocks = std::min(tile_count(p), std::int64_t{device.units} * plan.resident);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_over(p.k, plan.filters)));
    const auto kernel = p.storage == DType::f32   ? kernel_for<float>(p.x_storage, plan)
                        : p.storage == DType::f16 ? kernel_for<Float16>(p.x_storage, plan)
                                                  : kernel_for<BFloat16>(p.x_storage, plan);
    return std::make_unique<OneUntypedLaunch<StemCall>>(call, kernel, grid, block_threads, bytes);
  }
};

}  // namespace

const Kernel& conv_stem() {
  static const Stem algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

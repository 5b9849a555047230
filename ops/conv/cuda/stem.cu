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
#include <cmath>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "base/tf32.h"
#include "ops/conv/cuda/stem.cuh"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

/// Loads the halo tile at (top, left) of the image at x into `patch`, zeros outside of the image. Eight lanes take
/// adjacent columns of some lines, five times eight columns: ten loads in flight, twenty for large tiles, so that there
/// is one memory latency. `whole`: entirely inside.
template <bool whole, int line_loads, typename X, typename T>
__device__ void load_apart(const StemCall& call, const X* x, int top, int left, T* patch) {
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
          patch[at] = rounded;
          if constexpr (word_elems<T> == 2)
            if (call.copies == 2 && at > 0) patch[2 * call.patch_words + at - 1] = rounded;
        }
    }
}

/// Loads the halo tile of the outputs from row p and column q on.
template <typename T, typename X>
__device__ void load_apart(const StemCall& call, const X* images, int image, int p, int q, std::uint32_t* words) {
  const X* const x = images + static_cast<std::int64_t>(image) * call.c * call.height * call.width;
  const int top = p * call.stride_h - call.pad_top, left = q * call.stride_w - call.pad_left;
  const bool whole = top >= 0 && left >= 0 && top + call.rows <= call.height && left + call.columns <= call.width;
  T* patch = reinterpret_cast<T*>(words);
  // Keeps the address in a register instead of recomputing it for each store: 0.955 of the time in TF32, 1.016 in 16
  // bits (H100 80GB HBM3, first layers of three networks at batch 1, 8 and 64).
  if constexpr (std::is_same_v<T, float>) asm("" : "+l"(patch));
  if (call.lines > 2 * block_threads / 8)
    whole ? load_apart<true, 4>(call, x, top, left, patch) : load_apart<false, 4>(call, x, top, left, patch);
  else
    whole ? load_apart<true, 2>(call, x, top, left, patch) : load_apart<false, 2>(call, x, top, left, patch);
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
      window[i][half] = window_at<T>(call, shared.patch, warp * warp_rows + i, g + 8 * half);

  for (int tile = static_cast<int>(blockIdx.x); tile < call.tiles; tile += static_cast<int>(gridDim.x)) {
    int image = tile;
    const int first_q = call.tiles_q.split(image) * tile_q, first_p = call.tiles_p.split(image) * tile_p;
    __syncthreads();
    load_apart<T>(call, static_cast<const X*>(call.x), image, first_p, first_q, shared.patch);
    __syncthreads();

    float sums[warp_rows][tiles_n][4];
    begin_sums<T>(shared.bias, sums);
    multiply_windows<wgmma_reads, T>(call, shared.filters, shared.offsets, window, sums);

    if (!call.activation.is_clamp()) activate<T>(call.activation, sums);
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
/// K-blocks, rounded up to pairs.
std::int64_t step_count(const ConvProblem& p) {
  return (p.r * row_words(p) + 2 * step_words - 1) / (2 * step_words) * 2;
}
std::int64_t blocks_over(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

/// The halo tile's size.
struct Patch {
  std::int64_t rows, columns, word, pitch, copies;  ///< word: elements of one
  explicit Patch(const ConvProblem& p)
      : rows((tile_p - 1) * p.stride_h + p.r),
        columns((tile_q - 1) * p.stride_w + p.s),
        word(word_elems_of(p)),
        pitch(word == 1 ? columns * p.c : (columns * p.c + 2) / 2 * 2),
        copies(word == 1 ? 1 : p.stride_w * p.c % 2 + 1) {
    if (!p.max_pool) return;
    rows += p.stride_h;                                        // the row of outputs above the tile
    pitch = (pitch + 4 * word - 1) / (4 * word) * (4 * word);  // rows are whole 16 bytes
  }
  std::int64_t words() const { return rows * pitch / word; }
};

std::int64_t shared_bytes(const ConvProblem& p, std::int64_t filters) {
  const Patch patch(p);
  std::int64_t bytes =
      step_count(p) * (filters * 32 + 4 * step_words) + 4 * step_words + 4 * filters + 4 * patch.copies * patch.words();
  if (!p.max_pool) return bytes;
  bytes += 16 * p.c * patch.rows;  // the table of lines
  // Rows that warps pass to the next: words of a lane's filters of a pixel.
  return (bytes + 15) / 16 * 16 + (warps + 1) * 128 * filters / 4 / patch.word;
}

std::int64_t tile_count(const ConvProblem& p) { return p.n * blocks_over(p.p, tile_p) * blocks_over(p.q, tile_q); }

/// Strips of columns of y, and (by fours) rows that the walks down a strip split.
std::int64_t strip_count(const ConvProblem& p) { return blocks_over(p.stored_q(), pooled_columns); }
std::int64_t walk_tiles(const ConvProblem& p) { return blocks_over(p.stored_p(), pooled_rows); }

/// Configuration: filters of a block, resident blocks, the instruction; with max pooling, tiles of a walk.
struct StemPlan {
  std::int64_t filters, resident;
  bool wgmma;
  std::int64_t tiles = 0;
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

StemPlan read_plan(const ConvProblem& p, std::string_view config) {
  ConfigReader reader(config);
  StemPlan plan{reader.integer("filters", 32, 64), reader.integer("resident", 1, 16), false};
  if (p.max_pool) plan.tiles = reader.integer("tiles", 1, 1 << 20);
  if (!reader.done()) {
    if (reader.word("by") != "wgmma") reader.refuse("there is no such instruction");
    plan.wgmma = true;
  }
  reader.finish();
  if (plan.filters != 32 && plan.filters != 64) reader.refuse("filters come in blocks of 32 or 64");
  return plan;
}

int narrow(std::int64_t value) { return static_cast<int>(value); }

/// Fills the arguments that both kernels share.
void fill(StemCall& call, const ConvProblem& p) {
  const Patch patch(p);
  call.steps = narrow(step_count(p));
  call.words_a_row = narrow(row_words(p));
  call.columns = narrow(patch.columns);
  call.lines = narrow(p.c * patch.rows);
  call.word = narrow(patch.word);
  call.pitch = narrow(patch.pitch);
  call.patch_words = narrow(patch.words());
  call.copies = narrow(patch.copies);
  call.rows = narrow(patch.rows);
  call.rows_divider = FastDivider(patch.rows);
}

class Stem final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "stem"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

 private:
  bool reads_float32() const override { return true; }
  bool pools(const ConvProblem& p) const override {
    const MaxWindows& pool = p.max_pool;
    const std::int64_t pad = std::max({pool.pad_top, pool.pad_left, pool.pad_bottom, pool.pad_right});
    return pool.size == 3 && pool.stride == 2 && pad <= 2;
  }

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

  /// The longer of memory and tensor cores over whole tiles: first guesses. With max pooling, waves of walks.
  Plan plan(const ConvProblem& p, const Target& target) const override {
    constexpr double start_us = 2, memory_share = 0.8, product_share = 0.4;
    const DeviceProfile& device = target.device;
    StemPlan cut{p.k <= 32 ? 32 : 64, p.k <= 32 && !p.max_pool ? 5 : 4, has_wgmma(device)};
    double tiles_us = 0;
    if (p.max_pool) {
      tiles_us = plan_walks(p, device, cut);
    } else {
      const double products = 2.0 * static_cast<double>(tile_count(p) * tile_p * tile_q) *
                              static_cast<double>(blocks_over(p.k, cut.filters) * cut.filters) *
                              static_cast<double>(step_count(p) * step_words * word_elems_of(p));
      const bool tf32 = p.storage == DType::f32;
      tiles_us =
          products / (product_share * device.flops_per_us(tf32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp16));
      // Every further block of filters loads all tiles again: 64x3x70x39, 4x4 s2, takes 8.6 us with 64, 14.3 with 128,
      // 52.3 with 512 filters (H200).
      constexpr double again_us = 1.0;
      tiles_us += again_us * static_cast<double>((blocks_over(p.k, cut.filters) - 1) * tile_count(p)) / device.units;
    }
    ConfigWriter config;
    config.add("filters", cut.filters).add("resident", cut.resident);
    if (p.max_pool) config.add("tiles", cut.tiles);
    if (cut.wgmma) config.add("by", std::string_view("wgmma"));
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = formats::nchw,
            .pitched = true,
            .config = config.str(),
            .estimated_us =
                device.launch_us + start_us + std::max(p.bytes() / (memory_share * device.bytes_per_us), tiles_us),
            .tolerance = tolerance(p)};
  }

  /// Time of `items` walks of that many tiles, in waves of blocks. A tile has a latency, and a part that serialises
  /// over a multiprocessor's blocks; both grow with its k-blocks. Fitted by hand on an H100 (lenslet-bench-stem-pool).
  static double rounds_us(const ConvProblem& p, const DeviceProfile& device, const StemPlan& cut, std::int64_t items,
                          double tiles) {
    struct Cost {
      double alone_us, alone_step_us, shared_us, shared_step_us;
    };
    const Cost cost = p.storage == DType::f32 ? Cost{1.1, 0.035, 0.88, 0.043} : Cost{1.7, 0.05, 0.51, 0.036};
    const auto steps = static_cast<double>(step_count(p)),
               blocks = static_cast<double>(items) * static_cast<double>(blocks_over(p.k, cut.filters));
    const double on_unit = std::min(static_cast<double>(cut.resident), std::ceil(blocks / device.units));
    return std::ceil(blocks / (device.units * on_unit)) * tiles *
           (cost.alone_us + cost.alone_step_us * steps + on_unit * (cost.shared_us + cost.shared_step_us * steps));
  }

  /// Chooses the length of walks; returns the time of all.
  static double plan_walks(const ConvProblem& p, const DeviceProfile& device, StemPlan& cut) {
    constexpr double above_tiles = 0.6;  // breaks ties: with one image more walks never paid
    cut.resident = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(device.shared_bytes_per_unit) / (shared_bytes(p, cut.filters) + 1024), 1,
        cut.resident);
    double least = 0;
    for (std::int64_t walks = 1; walks <= walk_tiles(p); ++walks) {
      const std::int64_t tiles = blocks_over(walk_tiles(p), walks);
      const double above = walks > 1 || p.max_pool.pad_top == 0 ? above_tiles : 0;
      const double us = rounds_us(p, device, cut, p.n * strip_count(p) * blocks_over(walk_tiles(p), tiles),
                                  static_cast<double>(tiles) + above);
      if (cut.tiles == 0 || us < least) cut.tiles = tiles, least = us;
    }
    return least;
  }

  /// Both float32 operands are rounded, as for TF32 (tf32_sum_tolerance).
  static double tolerance(const ConvProblem& p) {
    const std::int64_t terms = p.c * p.r * p.s;
    if (p.storage == DType::f32) return tf32_sum_tolerance(terms) + sum_tolerance(terms);
    if (p.x_storage == p.storage) return half_sum_tolerance(p.storage, terms);
    return 10 * unit_roundoff(p.storage) + 2 * sum_tolerance(terms);
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    const StemPlan plan = read_plan(p, config);
    const std::string filters = std::to_string(plan.filters);
    return {.floats = blocks_over(p.k, plan.filters) * plan.filters * step_count(p) * step_words * word_elems_of(p),
            .form = std::string(to_string(p.storage)) + " by " + filters + (plan.wgmma ? " for wgmma" : ""),
            .element_bytes = dtype_bytes(p.storage)};
  }

  void transform_bytes(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                       std::span<std::byte> to) const override {
    const StemPlan plan = read_plan(p, config);
    const std::int64_t filters = plan.filters, words_a_row = row_words(p), steps = step_count(p);
    dispatch(p.storage, Types<float, Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      constexpr std::int64_t elems = word_elems<T>;
      T* element = reinterpret_cast<T*>(to.data());
      // `place`: index of a filter in its block; `word`: of a k-block.
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
    const StemPlan plan = read_plan(p, config);
    const auto bytes = static_cast<std::size_t>(shared_bytes(p, plan.filters));
    const auto grid = [&](std::int64_t items) {
      return dim3(static_cast<unsigned>(std::min(items, std::int64_t{device.units} * plan.resident)),
                  static_cast<unsigned>(blocks_over(p.k, plan.filters)));
    };
    if (p.max_pool) {
      StemPoolCall call(p);
      fill(call, p);
      call.columns_divider = FastDivider(call.columns);
      call.lines_a_pass = block_threads / call.columns;
      const std::int64_t walks = blocks_over(walk_tiles(p), plan.tiles), strips = strip_count(p);
      call.pool_top = narrow(p.max_pool.pad_top);
      call.pool_left = narrow(p.max_pool.pad_left);
      call.pooled_p = narrow(p.stored_p());
      call.pooled_q = narrow(p.stored_q());
      call.walk_rows = narrow(plan.tiles * pooled_rows);
      const Patch patch(p);
      const std::int64_t kept_rows = p.r - p.stride_h, kept = kept_rows * patch.pitch / patch.word / 4;
      const bool keeps = kept_rows > 0 && kept_rows <= tile_p * p.stride_h && kept <= 2 * block_threads;
      call.kept_lines = keeps && patch.copies == 1 ? narrow(p.r * p.c) : 0;
      call.kept = call.kept_lines > 0 ? narrow(kept) : 0;
      call.walks = FastDivider(walks);
      call.strips = FastDivider(strips);
      call.tiles = narrow(p.n * strips * walks);
      const StemPoolFunction kernel = stem_pool_of(p.x_storage, p.storage, narrow(plan.filters), plan.wgmma);
      return std::make_unique<OneUntypedLaunch<StemPoolCall>>(call, kernel, grid(call.tiles), block_threads, bytes);
    }
    StemCall call(p);
    fill(call, p);
    call.tiles = narrow(tile_count(p));
    call.tiles_q = FastDivider(blocks_over(p.q, tile_q));
    call.tiles_p = FastDivider(blocks_over(p.p, tile_p));
    const auto kernel = p.storage == DType::f32   ? kernel_for<float>(p.x_storage, plan)
                        : p.storage == DType::f16 ? kernel_for<Float16>(p.x_storage, plan)
                                                  : kernel_for<BFloat16>(p.x_storage, plan);
    return std::make_unique<OneUntypedLaunch<StemCall>>(call, kernel, grid(call.tiles), block_threads, bytes);
  }
};

}  // namespace

const Kernel& conv_stem() {
  static const Stem algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

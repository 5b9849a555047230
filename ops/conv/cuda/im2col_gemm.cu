// im2col and a cuBLAS GEMM, NCHW. A column is one output pixel's window, [C/groups][R][S] with zeros outside of the
// image; Y[K/groups, P*Q] = W[K/groups, C/groups*R*S] * columns is the output in place. Inputs that already have that
// form (1x1, stride 1, no pads) are not unfolded.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/cuda/cublas.h"
#include "base/cuda/launch.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/core/activation.cuh"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
/// Columns of one chunk: enough for each product to fill the device, and not far above L2 (50 MiB on Hopper).
constexpr std::int64_t chunk_bytes = std::int64_t{64} << 20;

bool input_is_columns(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && !p.padded();
}

std::int64_t column_row_bytes(const ConvProblem& p) {
  return p.c * p.r * p.s * p.q * static_cast<std::int64_t>(sizeof(float));
}

/// A chunk: whole images, or output rows of one image. Unused where nothing is unfolded.
struct Chunks {
  std::int64_t images, rows;  ///< images > 1 only with all rows
};

Chunks chunks_of(const ConvProblem& p) {
  const std::int64_t row_bytes = column_row_bytes(p);
  return {.images = std::max<std::int64_t>(1, std::min(chunk_bytes / (row_bytes * p.p), p.n)),
          .rows = std::max<std::int64_t>(1, std::min(chunk_bytes / row_bytes, p.p))};
}

/// Workspace size.
std::size_t column_bytes(const ConvProblem& p, const Chunks& chunks) {
  return input_is_columns(p) ? 0 : static_cast<std::size_t>(column_row_bytes(p) * chunks.rows * chunks.images);
}

struct Unfold : DeviceProblem<> {
  using DeviceProblem::DeviceProblem;
  const float* x;
  float* columns;     ///< [images][C][R][S][rows*Q]
  int first_row;      ///< output row
  int pixels, items;  ///< rows*Q; images*C*pixels, what a chunk keeps below 2^24
};

/// One thread an output pixel and channel: decodes its position once and copies R*S values. Writes coalesce, and so do
/// reads at stride 1.
__global__ void __launch_bounds__(threads) unfold(const __grid_constant__ Unfold u) {
  wait_for_previous();
  const int item = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (item >= u.items) return;
  const int pixel = item % u.pixels, plane = item / u.pixels;  // plane: image * C + channel
  const int top = (u.first_row + pixel / u.q) * u.stride_h - u.pad_top, left = pixel % u.q * u.stride_w - u.pad_left;
  const float* x = u.x + static_cast<std::int64_t>(plane) * u.height * u.width;
  float* to = u.columns + static_cast<std::int64_t>(plane) * u.r * u.s * u.pixels + pixel;
  for (int r = 0; r < u.r; ++r) {
    const int row = top + r * u.dilation_h;
    const bool inside = row >= 0 && row < u.height;
    const float* line = x + static_cast<std::int64_t>(row) * u.width;
    for (int s = 0; s < u.s; ++s, to += u.pixels) {
      const int column = left + s * u.dilation_w;
      *to = inside && column >= 0 && column < u.width ? line[column] : 0.0f;
    }
  }
}

struct Finish {
  const float *bias = nullptr, *residual = nullptr;  ///< or null
  float* y = nullptr;
  std::int64_t plane, channels, items;  ///< plane: items of a channel
  DeviceActivation activation;
};

/// y = activation(y + bias + residual) in place. An item is four elements of one channel where P*Q allows it.
template <typename Vector, typename Index>
__global__ void __launch_bounds__(threads) finish(const __grid_constant__ Finish f) {
  wait_for_previous();
  const Index item = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  if (item >= static_cast<Index>(f.items)) return;
  Vector value = reinterpret_cast<const Vector*>(f.y)[item];
  const Index channel = item / static_cast<Index>(f.plane) % static_cast<Index>(f.channels);
  const float shift = f.bias == nullptr ? 0.0f : f.bias[channel];
  Vector added{};
  if (f.residual != nullptr) added = reinterpret_cast<const Vector*>(f.residual)[item];
  if constexpr (sizeof(Vector) == sizeof(float)) {
    value += shift + added;
  } else {
    value.x += shift + added.x;
    value.y += shift + added.y;
    value.z += shift + added.z;
    value.w += shift + added.w;
  }
  reinterpret_cast<Vector*>(f.y)[item] = f.activation(value);
}

class BoundIm2colGemm final : public BoundConv {
 public:
  BoundIm2colGemm(const ConvProblem& p, const Chunks& chunks, Numerics::Multiply multiply)
      : BoundConv(p, column_bytes(p, chunks)), chunks_(chunks), multiply_(multiply), unfold_(p) {
    const bool quads = p.p * p.q % 4 == 0;
    finish_.plane = p.p * p.q / (quads ? 4 : 1);
    finish_.channels = p.k;
    finish_.items = p.n * p.k * finish_.plane;
    finish_.activation = DeviceActivation(p.activation);
    if (finish_.items <= std::numeric_limits<int>::max())  // with a block added it still fits an unsigned
      finish_kernel_ = quads ? finish<float4, unsigned> : finish<float, unsigned>;
    else
      finish_kernel_ = quads ? finish<float4, std::uint64_t> : finish<float, std::uint64_t>;
  }

 private:
  void compute(const ConvRun& run) const override {
    const ConvProblem& p = problem;
    if (p.n == 0) return;
    // cuBLAS overwrites y: a residual in place is added by the product (beta = 1).
    const bool in_place = run.residual == run.y;
    if (input_is_columns(p)) {
      multiply(run, run.x, p.p * p.q, 0, p.n, 0, in_place);
    } else {
      auto* const columns = reinterpret_cast<float*>(run.workspace.data());
      for (std::int64_t image = 0; image < p.n; image += chunks_.images)
        for (std::int64_t row = 0; row < p.p; row += chunks_.rows) {
          const std::int64_t images = std::min(chunks_.images, p.n - image), rows = std::min(chunks_.rows, p.p - row);
          unfold_rows(run, image, images, row, rows, columns);
          multiply(run, columns, rows * p.q, image, images, row * p.q, in_place);
        }
    }
    Finish call = finish_;
    call.bias = run.bias;
    call.residual = in_place ? nullptr : run.residual;
    call.y = run.y;
    if (call.bias == nullptr && call.residual == nullptr && p.activation.kind == Activation::Kind::none) return;
    launch(*run.cuda, finish_kernel_, blocks_for(call.items, threads), threads, 0, call);
  }

  void unfold_rows(const ConvRun& run, std::int64_t image, std::int64_t images, std::int64_t row, std::int64_t rows,
                   float* columns) const {
    Unfold call = unfold_;
    call.x = run.x + image * problem.c * problem.h * problem.w;
    call.columns = columns;
    call.first_row = static_cast<int>(row);
    call.pixels = static_cast<int>(rows * problem.q);
    call.items = static_cast<int>(images * problem.c * rows * problem.q);
    launch(*run.cuda, unfold, blocks_for(call.items, threads), threads, 0, call);
  }

  /// Output pixels [first, first + width) of images [image, image + images) from columns
  /// [images][groups][C/groups*R*S][width]. Several images always come with all pixels.
  void multiply(const ConvRun& run, const float* columns, std::int64_t width, std::int64_t image, std::int64_t images,
                std::int64_t first, bool accumulate) const {
    const ConvProblem& p = problem;
    const std::int64_t terms = p.group_c() * p.r * p.s, pixels = p.p * p.q, group_k = p.group_k();
    float* const y = run.y + image * p.k * pixels + first;
    const float beta = accumulate ? 1.0f : 0.0f;
    const Cublas& cublas = *run.cuda->cublas;
    if (p.groups == 1) {
      cublas.gemm(p.k, width, terms, {run.filter, terms, false, 0}, {columns, width, false, terms * width}, y, pixels,
                  beta, images, p.k * pixels, multiply_);
      return;
    }
    for (std::int64_t i = 0; i < images; ++i)
      cublas.gemm(group_k, width, terms, {run.filter, terms, false, group_k * terms},
                  {columns + i * p.groups * terms * width, width, false, terms * width}, y + i * p.k * pixels, pixels,
                  beta, p.groups, group_k * pixels, multiply_);
  }

  Chunks chunks_;
  Numerics::Multiply multiply_;
  Unfold unfold_;
  Finish finish_;
  void (*finish_kernel_)(Finish);
};

class Im2colGemm final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "im2col_gemm"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  ComputedFilters computed_filters() const override { return ComputedFilters::as_loaded; }
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (const std::string& reason = target.device.cublas_reason; !reason.empty()) return reason;
    constexpr std::int64_t most = std::numeric_limits<int>::max() / 2;
    const ConvProblem padded = p.with_explicit_padding();
    if (padded.h > most || padded.w > most || p.p * p.q > most || p.k > most || p.c * p.r * p.s > most)
      return "a size exceeds 2^30";
    if (!input_is_columns(p) && column_row_bytes(p) > chunk_bytes) return "the columns of one output row exceed 64 MiB";
    return std::nullopt;
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const std::int64_t terms = p.group_c() * p.r * p.s;
    const bool tf32 = target.numerics.multiply == Numerics::Multiply::tf32;
    const Chunks chunks = chunks_of(p);
    Plan plan;
    plan.format = formats::nchw;
    plan.needs_cublas = true;
    plan.tolerance = tf32 ? tf32_sum_tolerance(terms) : sum_tolerance(terms);
    plan.estimated_us = estimate_us(p, chunks, target);
    ConfigWriter config;
    if (!input_is_columns(p)) config.add("images", chunks.images).add("rows", chunks.rows);
    plan.config = config.add("tf32", tf32).str();
    return plan;
  }

  /// The product at cuBLAS's share of peak, in tiles of 64 pixels and 32 filters, split-K where tiles are few (plus a
  /// reduction kernel); columns written, and read back where L2 does not hold them; the epilogue's pass. Within 25 %
  /// for most of 55 layers on an H200 in fp32, 5 to 390 us.
  static double estimate_us(const ConvProblem& p, const Chunks& chunks, const Target& target) {
    constexpr double product_start_us = 1.0, unfold_start_us = 1.2, split_us = 3.6;
    constexpr double least_terms = 64;       // gemm_k of a split
    constexpr double cached_columns = 0.72;  // columns that stay in L2, relative to a pass over memory
    constexpr double finish_rate = 0.67;     // of memory's
    constexpr std::int64_t tile_pixels = 64, tile_filters = 32;
    const DeviceProfile& device = target.device;
    const auto covered = [](std::int64_t size, std::int64_t tile) {
      return static_cast<double>((size + tile - 1) / tile * tile);
    };
    const double terms = static_cast<double>(p.group_c() * p.r * p.s);
    const double cells =
        covered(p.group_k(), tile_filters) * covered(p.p * p.q, tile_pixels) * static_cast<double>(p.n * p.groups);
    // cuBLAS does not split K for several images or groups: 2x512x32x32 -> 96, 9x9 s4, TF32 took 222 us.
    const double calls = input_is_columns(p)
                             ? 1
                             : std::ceil(static_cast<double>(p.n) / static_cast<double>(chunks.images)) *
                                   std::ceil(static_cast<double>(p.p) / static_cast<double>(chunks.rows));
    const double tiles = cells / (64 * 64) / calls;
    const double splits =
        p.n * p.groups > 1 ? 1 : std::min(std::max(1.0, terms / least_terms), std::max(1.0, device.units / tiles));
    const double busy = std::min(1.0, tiles * splits / device.units);
    // TF32 needs rows aligned to 16 bytes: 8x1024x7x7 -> 1024, 3x3, took 187 us, 1x1024x16x16 49.
    const bool tf32 = target.numerics.multiply == Numerics::Multiply::tf32;
    const bool aligned = chunks.rows * p.q % 4 == 0;
    const double share_of_peak = !tf32 ? 0.74 : aligned ? 0.45 : 0.15;
    const double peak = device.flops_per_us(target.numerics.multiply);
    double us = device.launch_us + product_start_us + 2 * cells * terms / (share_of_peak * peak * busy);
    if (splits > 1) us += split_us;

    const double floats = sizeof(float) / device.bytes_per_us;  // us a float
    const double x = static_cast<double>(p.n * p.c) * static_cast<double>(p.h * p.w);
    const double y = static_cast<double>(p.n * p.k) * static_cast<double>(p.p * p.q);
    if (!input_is_columns(p)) {
      const double columns = terms * static_cast<double>(p.groups * p.n) * static_cast<double>(p.p * p.q);
      const double steps = std::ceil(static_cast<double>(p.n) / static_cast<double>(chunks.images)) *
                           std::ceil(static_cast<double>(p.p) / static_cast<double>(chunks.rows));
      const bool cached = sizeof(float) * columns < static_cast<double>(device.l2_bytes) / 2;
      // A thread writes all taps of a channel and pixel in sequence: 1x30x14x18 -> 16, 32x32 s2, takes 75 us.
      const double taps_us = 0.045 * static_cast<double>(p.r * p.s);
      us += (2 * steps - 1) * device.launch_us + unfold_start_us + steps * taps_us +
            (x + (cached ? cached_columns : 2) * columns) * floats;
    }
    // One call an image, 2 us overhead each: 16x12x30x30 -> 96, 5x5 in 4 groups takes 83 us, 35 without them.
    constexpr double call_us = 2.0;
    if (p.groups > 1) us += (static_cast<double>(p.n) - 1) * (device.launch_us + call_us);
    if (p.bias || p.residual || p.activation.kind != Activation::Kind::none)
      us += device.launch_us + (2 + (p.residual ? 1 : 0)) * y * floats / finish_rate;
    return us;
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    ConfigReader reader(config);
    Chunks chunks{p.n, p.p};
    if (!input_is_columns(p)) {
      const Chunks most = chunks_of(p);
      chunks.images = reader.integer("images", 1, most.images);
      chunks.rows = reader.integer("rows", 1, most.rows);
      if (chunks.images > 1 && chunks.rows != p.p) reader.refuse("more than one image comes with all rows");
    }
    const bool tf32 = reader.flag("tf32");
    reader.finish();
    return std::make_unique<BoundIm2colGemm>(p, chunks, tf32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp32);
  }
};

}  // namespace

const Kernel& conv_im2col_gemm() {
  static const Im2colGemm algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

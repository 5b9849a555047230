// Filters times columns, NCHW. A column of the column matrix is one output pixel's window, [C/groups][R][S] with zeros
// where it leaves the image; Y[K/groups, P*Q] = W[K/groups, C/groups*R*S] * columns is the output as it lies in memory.
// The products are cuBLAS's. Where the input itself has that form (1x1, stride 1, no pads) nothing is unfolded.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/cuda/cublas.h"
#include "base/cuda/launch.h"
#include "ops/conv/cpu/packed_filter.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/device_filter.h"
#include "ops/conv/cuda/layout_cost.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
/// Columns made at a time. Enough that each product fills the device, and not far above its L2 (50 MiB on Hopper).
constexpr std::int64_t chunk_bytes = std::int64_t{64} << 20;

bool input_is_columns(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && !p.padded();
}

/// What is unfolded at a time: whole images, or output rows of one image.
struct Chunks {
  std::int64_t row_bytes;     ///< columns of one output row, all channels
  std::int64_t images, rows;  ///< images > 1 only with all rows
};

Chunks chunks_of(const ConvProblem& p) {
  Chunks chunks{};
  chunks.row_bytes = p.c * p.r * p.s * p.q * static_cast<std::int64_t>(sizeof(float));
  chunks.rows = std::max<std::int64_t>(1, std::min(chunk_bytes / chunks.row_bytes, p.p));
  chunks.images = std::max<std::int64_t>(1, std::min(chunk_bytes / (chunks.row_bytes * p.p), p.n));
  return chunks;
}

struct Unfold {
  const float* x;
  float* columns;  ///< [images][C][R][S][rows*Q]
  int height, width, r, s, q;
  int stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int first_row;      ///< of the output
  int pixels, items;  ///< rows*Q; images*C*pixels, what a chunk keeps below 2^24
};

/// A thread an output pixel and channel: it decodes its place once and copies R*S values. Neighbouring threads write
/// neighbouring floats, and read such at stride 1.
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

/// y = activation(y + bias + residual) in place. Four elements of one channel a thread where P*Q allows it.
template <typename Vector, typename Index>
__global__ void __launch_bounds__(threads) finish(float* y, const float* bias, const float* residual, Index plane,
                                                  Index channels, Index items, DeviceActivation activation) {
  wait_for_previous();
  const Index item = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  if (item >= items) return;
  Vector value = reinterpret_cast<const Vector*>(y)[item];
  const float shift = bias == nullptr ? 0.0f : bias[item / plane % channels];
  Vector added{};
  if (residual != nullptr) added = reinterpret_cast<const Vector*>(residual)[item];
  if constexpr (sizeof(Vector) == sizeof(float)) {
    value += shift + added;
  } else {
    value.x += shift + added.x;
    value.y += shift + added.y;
    value.z += shift + added.z;
    value.w += shift + added.w;
  }
  reinterpret_cast<Vector*>(y)[item] = activation(value);
}

template <typename Vector>
void launch_finish(const ConvRun& run, const float* residual) {
  constexpr auto lanes = static_cast<std::int64_t>(sizeof(Vector) / sizeof(float));
  const ConvProblem& p = run.problem;
  const std::int64_t plane = p.p * p.q / lanes, items = p.n * p.k * plane;
  const DeviceActivation activation(p.activation);
  const auto go = [&](auto kernel) {
    launch(*run.cuda, kernel, blocks_for(items, threads), threads, 0, run.y, run.bias, residual, plane, p.k, items,
           activation);
  };
  if (items <= std::numeric_limits<int>::max())  // + a block still fits an unsigned
    go(finish<Vector, unsigned>);
  else
    go(finish<Vector, std::uint64_t>);
}

class Im2colGemm final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "im2col_gemm"; }
  Format format() const override { return formats::nchw; }

  std::optional<std::string> refuse(const ConvProblem& p) const override {
    if (const std::string& reason = cublas_unavailable_reason(); !reason.empty()) return reason;
    constexpr std::int64_t most = std::numeric_limits<int>::max() / 2;
    const ConvProblem padded = p.with_explicit_padding();
    if (padded.h > most || padded.w > most || p.p * p.q > most || p.k > most || p.c * p.r * p.s > most)
      return "a size exceeds 2^30";
    if (!input_is_columns(p) && chunks_of(p).row_bytes > chunk_bytes)
      return "the columns of one output row exceed 64 MiB";
    return std::nullopt;
  }

  double tolerance(const ConvProblem& problem) const override { return packed_tolerance(problem); }

  /// The product at cuBLAS's share of the peak, in whole tiles of 64 pixels and 32 filters, split over the sum where
  /// tiles are few, for which a second kernel sums; the columns written, and read where L2 does not keep them; the
  /// epilogue's pass. Within 25 % of most of 55 layers measured on an H200, 5 to 390 us.
  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    constexpr double share_of_peak = 0.74, product_start_us = 1.0, unfold_start_us = 1.6, split_us = 3.6;
    constexpr double least_terms = 64;       // of a split sum
    constexpr double cached_columns = 0.72;  // written and read within L2, beside a pass over memory
    constexpr double finish_rate = 0.67;     // of memory's
    constexpr std::int64_t tile_pixels = 64, tile_filters = 32;
    const auto covered = [](std::int64_t size, std::int64_t tile) {
      return static_cast<double>((size + tile - 1) / tile * tile);
    };
    const double terms = static_cast<double>(p.group_c() * p.r * p.s);
    const double cells =
        covered(p.group_k(), tile_filters) * covered(p.p * p.q, tile_pixels) * static_cast<double>(p.n * p.groups);
    const double tiles = cells / (64 * 64);
    const double splits = std::min(std::max(1.0, terms / least_terms), std::max(1.0, rates.threads / tiles));
    const double busy = std::min(1.0, tiles * splits / rates.threads);
    double us = rates.launch_us + product_start_us + 2 * cells * terms / (share_of_peak * rates.flops_per_us * busy);
    if (splits > 1) us += split_us;

    const double floats = sizeof(float) / rates.bytes_per_us;  // microseconds a float
    const double x = static_cast<double>(p.n * p.c) * static_cast<double>(p.h * p.w);
    const double y = static_cast<double>(p.n * p.k) * static_cast<double>(p.p * p.q);
    if (!input_is_columns(p)) {
      const Chunks chunks = chunks_of(p);
      const double columns = terms * static_cast<double>(p.groups * p.n) * static_cast<double>(p.p * p.q);
      const double steps = std::ceil(static_cast<double>(p.n) / static_cast<double>(chunks.images)) *
                           std::ceil(static_cast<double>(p.p) / static_cast<double>(chunks.rows));
      const double passes = sizeof(float) * columns < rates.l2_bytes / 2 ? cached_columns : 2;
      us += (2 * steps - 1) * rates.launch_us + unfold_start_us + (x + passes * columns) * floats;
    }
    if (p.groups > 1) us += (static_cast<double>(p.n) - 1) * rates.launch_us;
    if (needs_finish(p)) us += rates.launch_us + (2 + (p.residual ? 1 : 0)) * y * floats / finish_rate;
    return us + nchw_conversions_us(p, rates);
  }

  std::size_t workspace_bytes(const ConvProblem& p, int) const override {
    if (input_is_columns(p)) return 0;
    const Chunks chunks = chunks_of(p);
    return static_cast<std::size_t>(chunks.row_bytes * chunks.rows * chunks.images);
  }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& p, const ConvFilter& filter) const override {
    const auto terms = static_cast<std::size_t>(p.group_c() * p.r * p.s);
    std::vector<float> w(static_cast<std::size_t>(p.k) * terms);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = scaled_weight(filter, i / terms, i % terms, terms);
    return std::make_unique<DeviceFilter>(w);
  }

  void run(const ConvRun& run) const override {
    const ConvProblem& p = run.problem;
    if (p.n * p.k * p.p * p.q == 0) return;
    // cuBLAS overwrites y: a residual that lies there is added by the product itself.
    const bool in_place = run.residual == run.y;
    const std::int64_t pixels = p.p * p.q;
    if (input_is_columns(p)) {
      multiply(run, run.x, pixels, 0, p.n, 0, in_place);
    } else {
      auto* const columns = reinterpret_cast<float*>(run.workspace.data());
      const Chunks chunks = chunks_of(p);
      for (std::int64_t image = 0; image < p.n; image += chunks.images)
        for (std::int64_t row = 0; row < p.p; row += chunks.rows) {
          const std::int64_t images = std::min(chunks.images, p.n - image), rows = std::min(chunks.rows, p.p - row);
          launch_unfold(run, image, images, row, rows, columns);
          multiply(run, columns, rows * p.q, image, images, row * p.q, in_place);
        }
    }
    const float* residual = in_place ? nullptr : run.residual;
    if (run.bias == nullptr && residual == nullptr && p.activation.kind == Activation::Kind::none) return;
    if (pixels % 4 == 0)
      launch_finish<float4>(run, residual);
    else
      launch_finish<float>(run, residual);
  }

 private:
  static bool needs_finish(const ConvProblem& p) {
    return p.bias || p.residual || p.activation.kind != Activation::Kind::none;
  }

  static void launch_unfold(const ConvRun& run, std::int64_t image, std::int64_t images, std::int64_t row,
                            std::int64_t rows, float* columns) {
    const ConvProblem& p = run.problem;
    const auto to_int = [](std::int64_t value) { return static_cast<int>(value); };
    const std::int64_t items = images * p.c * rows * p.q;
    const Unfold call{.x = run.x + image * p.c * p.h * p.w,
                      .columns = columns,
                      .height = to_int(p.h),
                      .width = to_int(p.w),
                      .r = to_int(p.r),
                      .s = to_int(p.s),
                      .q = to_int(p.q),
                      .stride_h = to_int(p.stride_h),
                      .stride_w = to_int(p.stride_w),
                      .dilation_h = to_int(p.dilation_h),
                      .dilation_w = to_int(p.dilation_w),
                      .pad_top = to_int(p.pad_top),
                      .pad_left = to_int(p.pad_left),
                      .first_row = to_int(row),
                      .pixels = to_int(rows * p.q),
                      .items = to_int(items)};
    launch(*run.cuda, unfold, blocks_for(items, threads), threads, 0, call);
  }

  /// Output pixels [first, first + width) of images [image, image + images) from their columns
  /// [images][groups][terms][width]. More than one image comes with all pixels.
  static void multiply(const ConvRun& run, const float* columns, std::int64_t width, std::int64_t image,
                       std::int64_t images, std::int64_t first, bool accumulate) {
    const ConvProblem& p = run.problem;
    const std::int64_t terms = p.group_c() * p.r * p.s, pixels = p.p * p.q, group_k = p.group_k();
    const float* const w = static_cast<const DeviceFilter&>(*run.filter).w.data();
    float* const y = run.y + image * p.k * pixels + first;
    const float beta = accumulate ? 1.0f : 0.0f;
    const Cublas& cublas = *run.cuda->cublas;
    if (p.groups == 1) {
      cublas.gemm(p.k, width, terms, {w, terms, false, 0}, {columns, width, false, terms * width}, y, pixels, beta,
                  images, p.k * pixels);
      return;
    }
    for (std::int64_t i = 0; i < images; ++i)
      cublas.gemm(group_k, width, terms, {w, terms, false, group_k * terms},
                  {columns + i * p.groups * terms * width, width, false, terms * width}, y + i * p.k * pixels, pixels,
                  beta, p.groups, group_k * pixels);
  }
};

}  // namespace

const ConvAlgorithm& conv_im2col_gemm() {
  static const Im2colGemm algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

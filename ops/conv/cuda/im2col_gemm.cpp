// im2col_gemm: refusals and cost. Launches: im2col_gemm.cu.

#include "ops/conv/cuda/im2col_gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

using namespace im2col_gemm_sizes;

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

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const std::int64_t gemm_k = p.group_c() * p.r * p.s;
    const bool tf32 = target.numerics.multiply == Numerics::Multiply::tf32;
    const Chunks chunks = chunks_of(p);
    ConvCandidate candidate;
    candidate.format = formats::nchw;
    candidate.needs_cublas = true;
    candidate.tolerance = tf32 ? tf32_sum_tolerance(gemm_k) : sum_tolerance(gemm_k);
    candidate.estimated_us = estimate_us(p, chunks, target);
    ConfigWriter config;
    if (!input_is_columns(p)) config.add("images", chunks.images).add("rows", chunks.rows);
    candidate.config = config.add("tf32", tf32).str();
    return candidate;
  }

  /// The product at cuBLAS's share of peak, in tiles of 64 pixels and 32 filters, split-K where tiles are few (plus a
  /// reduction kernel); columns written, and read back where L2 does not hold them; the epilogue's pass. Within 25 %
  /// for most of 55 layers on an H200 in fp32, 5 to 390 us.
  static double estimate_us(const ConvProblem& p, const Chunks& chunks, const Target& target) {
    constexpr double product_start_us = 1.0, unfold_start_us = 1.2, split_us = 3.6;
    constexpr double min_gemm_k = 64;        // gemm_k of a split
    constexpr double cached_columns = 0.72;  // columns that stay in L2, relative to a pass over memory
    constexpr double finish_rate = 0.67;     // of memory's
    constexpr std::int64_t tile_pixels = 64, tile_filters = 32;
    const DeviceProfile& device = target.device;
    const auto covered = [](std::int64_t size, std::int64_t tile) {
      return static_cast<double>((size + tile - 1) / tile * tile);
    };
    const double gemm_k = static_cast<double>(p.group_c() * p.r * p.s);
    const double cells =
        covered(p.group_k(), tile_filters) * covered(p.p * p.q, tile_pixels) * static_cast<double>(p.n * p.groups);
    // cuBLAS does not split K for several images or groups: 2x512x32x32 -> 96, 9x9 s4, TF32 took 222 us.
    const double calls = input_is_columns(p)
                             ? 1
                             : std::ceil(static_cast<double>(p.n) / static_cast<double>(chunks.images)) *
                                   std::ceil(static_cast<double>(p.p) / static_cast<double>(chunks.rows));
    const double tiles = cells / (64 * 64) / calls;
    const double splits =
        p.n * p.groups > 1 ? 1 : std::min(std::max(1.0, gemm_k / min_gemm_k), std::max(1.0, device.units / tiles));
    const double busy = std::min(1.0, tiles * splits / device.units);
    // TF32 needs rows aligned to 16 bytes: 8x1024x7x7 -> 1024, 3x3, took 187 us, 1x1024x16x16 49.
    const bool tf32 = target.numerics.multiply == Numerics::Multiply::tf32;
    const bool aligned = chunks.rows * p.q % 4 == 0;
    const double share_of_peak = !tf32 ? 0.74 : aligned ? 0.45 : 0.15;
    const double peak = device.flops_per_us(target.numerics.multiply);
    double us = device.launch_us + product_start_us + 2 * cells * gemm_k / (share_of_peak * peak * busy);
    if (splits > 1) us += split_us;

    const double floats = sizeof(float) / device.bytes_per_us;  // us a float
    const double x = static_cast<double>(p.n * p.c) * static_cast<double>(p.h * p.w);
    const double y = static_cast<double>(p.n * p.k) * static_cast<double>(p.p * p.q);
    if (!input_is_columns(p)) {
      const double columns = gemm_k * static_cast<double>(p.groups * p.n) * static_cast<double>(p.p * p.q);
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
    if constexpr (cuda_built)
      return bind_im2col_gemm(p, chunks, tf32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp32);
    else
      return not_built(column_bytes(p, chunks));
  }
};

}  // namespace

const Kernel& conv_im2col_gemm() {
  static const Im2colGemm algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

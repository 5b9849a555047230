// thin_mma: refusals, cost and filters. Kernel: thin_mma.cu.

#include "ops/conv/cuda/thin_mma.h"

#include <algorithm>
#include <string>

#include "base/aligned_format.h"
#include "base/convert.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

using namespace thin_mma_sizes;

class ThinMma final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "thin_mma"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16>>; }

 private:
  static std::int64_t sets_of(const ConvProblem& p) { return (p.k + set_filters - 1) / set_filters; }

  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.groups != 1) return "several groups";
    if (p.r * p.s != 1 || p.stride_h != 1 || p.stride_w != 1 || p.padded()) return "more than a product by pixel";
    if (p.c > most_channels) return "more than 32 channels";
    if (p.k > set_filters * most_sets) return "more than 512 filters";
    if (p.n > (std::int64_t{1} << 30) / p.p / p.q) return "more than 2^30 pixels";
    return std::nullopt;
  }

  static std::int64_t blocks_of(const ConvProblem& p) {
    constexpr std::int64_t block_pixels = warps * warp_pixels;
    return (p.n * p.p * p.q + block_pixels - 1) / block_pixels;
  }
  /// Resident blocks a multiprocessor.
  static std::int64_t resident_of(const ConvProblem& p) { return sets_of(p) == 1 ? 4 : 3; }

  /// A start, plus bytes at memory's rate or the warp's sets one after the other. Within 13 % of four layers from 2.0
  /// to 55.8 us (docs/results/cuda-cost-model-cases-2026-11-27.csv). A set costs 0.7 us more than wgmma_gemm where
  /// pixels are few (1x16x112x112 -> 96).
  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    constexpr double start_us = 0.55, held_share = 0.95, shared_share = 0.77, set_us = 0.6;
    ConvProblem stored = p;
    stored.c = aligned_channels(p.c, p.storage);
    stored.k = aligned_channels(p.k, p.storage);
    const DeviceProfile& device = target.device;
    const double share = sets_of(p) > most_held ? shared_share : held_share;
    const std::int64_t at_once = resident_of(p) * std::max(device.units, 1);
    const auto turns = static_cast<double>((blocks_of(p) + at_once - 1) / at_once * sets_of(p));
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = aligned_nhwc(p.c, p.storage),
            .pitched = true,
            .config = ConfigWriter().add("sets", sets_of(p)).str(),
            .estimated_us =
                device.launch_us + start_us + std::max(stored.bytes() / (share * device.bytes_per_us), turns * set_us),
            .tolerance = half_sum_tolerance(p.storage, p.c)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = sets_of(p) * set_filters * most_channels,
            .form = std::string(to_string(p.storage)),
            .element_bytes = 2};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    dispatch(p.storage, Types<Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      T* element = reinterpret_cast<T*>(to.data());
      for (std::int64_t set = 0; set < sets_of(p); ++set)
        for (std::int64_t four = 0; four < 4; ++four)
          for (std::int64_t half = 0; half < 2; ++half)
            for (std::int64_t lane = 0; lane < 32; ++lane)
              for (std::int64_t i = 0; i < 4; ++i, ++element) {
                const std::int64_t column = lane / 4;  // column of operand B
                const std::int64_t k = set * set_filters + column / 2 * 8 + four * 2 + column % 2;
                const std::int64_t c = lane % 4 * 8 + half * 4 + i;
                *element = narrowed<T>(k < p.k && c < p.c ? filter.exact_weight(k, c) : 0.0);
              }
    });
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    ConfigReader reader(config);
    const std::int64_t sets = reader.integer("sets", 1, most_sets);
    reader.finish();
    if (sets != sets_of(p)) reader.refuse("the problem has fewer filters");
    // As many as are resident at once, so that a warp's filters serve many pixels.
    const std::int64_t at_once = resident_of(p) * std::max(device.units, 1);
    if constexpr (cuda_built)
      return bind_thin_mma(p, sets, std::min(blocks_of(p), at_once));
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_thin_mma() {
  static const ThinMma algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

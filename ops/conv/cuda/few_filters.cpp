// few_filters: refusals, cost and filters. Kernel: few_filters.cu.

#include "ops/conv/cuda/few_filters.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/conv/cuda/device_problem.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

using namespace few_filters_sizes;

constexpr std::int64_t most_filters = 8;

/// Outputs of a pixel that the kernel computes: a power of two with an instance.
int filters_of(const ConvProblem& p) { return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(p.k))); }

class FewFilters final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "few_filters"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.groups != 1) return "grouped filters";
    if (p.r * p.s != 1 || p.stride_h != 1 || p.stride_w != 1 || p.padded()) return "more than a product by pixel";
    if (p.k > most_filters) return "more than 8 filters";
    if (p.c % 4 != 0) return "the number of channels is not a multiple of 4";
    if (!fits_32_bits(p) || p.n * p.p * p.q > 0x7fffff00) return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  static int lanes_of(const ConvProblem& p) {
    return static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.c / 4)), 32));
  }
  static std::int64_t blocks_of(const ConvProblem& p) {
    const std::int64_t block_pixels = warps * ahead * (32 / lanes_of(p));
    return (p.n * p.p * p.q + block_pixels - 1) / block_pixels;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    // Latency of the first bytes, and of each further iteration of a thread; shares of peak rates (memory_share:
    // cached_share where x is in L2). First guesses, for an H100.
    constexpr double start_us = 1.0, turn_us = 0.25, memory_share = 0.9, cached_share = 1.9, issue_share = 0.5;
    const DeviceProfile& device = target.device;
    const int lanes = lanes_of(p), filters = filters_of(p);
    const double turns = std::ceil(static_cast<double>(p.c) / 4 / lanes);
    // Instructions of a thread for `ahead` pixels: products, exchanges, epilogue, overhead.
    const double all = ahead * filters;
    const double instructions =
        turns * (ahead * (3 + 4.0 * filters) + filters) + 3 * all + 25 * std::ceil(all / lanes) + 60;
    const double issue =
        static_cast<double>(blocks_of(p) * block_threads) * instructions / (issue_share * device.fp32_flops_per_us / 2);
    const double share = p.bytes() < static_cast<double>(device.l2_bytes) / 2 ? cached_share : memory_share;
    return {.pitched = true,
            .estimated_us = device.launch_us + start_us + (turns - 1) * turn_us +
                            std::max(issue, p.bytes() / (share * device.bytes_per_us)),
            .tolerance = sum_tolerance(p.c)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = filters_of(p) * p.c};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    const std::span<float> to = as_floats(bytes);
    std::fill(to.begin(), to.end(), 0.0F);
    for (std::int64_t k = 0; k < p.k; ++k)
      for (std::int64_t c = 0; c < p.c; ++c) to[static_cast<std::size_t>(k * p.c + c)] = filter.weight(k, c);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    ConfigReader(config).finish();
    if constexpr (cuda_built)
      return bind_few_filters(p, filters_of(p), lanes_of(p), blocks_of(p));
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_few_filters() {
  static const FewFilters algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

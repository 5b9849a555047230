// direct_pixel, direct_block: refusals, cost and filters. Kernel: direct_pixel.cu.

#include "ops/conv/cuda/ladder/direct_pixel.h"

#include <algorithm>

#include "ops/conv/cuda/direct_mappings.h"
#include "ops/core/not_built.h"

namespace lenslet::cuda {
namespace {

class DirectPixel final : public ConvAlgorithm {
 public:
  DirectPixel(std::string_view name, bool all_filters) : name_(name), all_filters_(all_filters) {}
  std::string_view name() const override { return name_; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override { return refuse_direct(p); }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    // Share of peak, or the latency chain of a thread; wait for the first inputs; scalar stores a us where a thread has
    // several groups. Five layers on an H100 and H200: estimates within 9 %, but 5.5 us for 3.4 at the shortest
    // (docs/results/cuda-cost-model-cases-2026-11-27.csv).
    constexpr double share = 0.2, us_per_k = 0.1, start_us = 2.5, stores_a_us = 44e3;
    const DeviceProfile& device = target.device;
    const auto groups = static_cast<double>(group_count(p.k, group_floats));
    const auto pixels = static_cast<double>(p.n * p.p * p.q), gemm_k = static_cast<double>(p.c * p.r * p.s);
    const double busy = 2 * pixels * groups * group_floats * gemm_k / (share * device.fp32_flops_per_us);
    const double serial = us_per_k * gemm_k * (all_filters_ ? groups : 1);
    const double stores = groups > 1 ? pixels * static_cast<double>(p.k) / stores_a_us : 0;
    return {
        .config = ConfigWriter().add("quads", p.c % 4 == 0).str(),
        .estimated_us = device.launch_us + start_us + std::max(busy, serial) + stores + p.bytes() / device.bytes_per_us,
        .tolerance = direct_tolerance(p)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = grouped_floats(p, group_floats)};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    group_filters(p, filter, group_floats, as_floats(bytes));
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    ConfigReader reader(config);
    const bool quads = reader.flag("quads");
    reader.finish();
    if (quads && p.c % 4 != 0) reader.refuse("the number of channels is not a multiple of 4");
    if constexpr (cuda_built)
      return bind_direct_pixel(p, all_filters_, quads);
    else
      return not_built();
  }

  std::string_view name_;
  bool all_filters_;
};

}  // namespace

const Kernel& conv_direct_pixel() {
  static const DirectPixel algorithm("direct_pixel", true);
  return algorithm;
}

const Kernel& conv_direct_block() {
  static const DirectPixel algorithm("direct_block", false);
  return algorithm;
}

}  // namespace lenslet::cuda

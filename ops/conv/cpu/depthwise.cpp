// Depthwise convolution in NHWC: each output channel reads one input channel. Filters 3, 5 and 7 columns wide keep
// blocks of output pixels in registers; all others go pixel by pixel.

#include <cmath>

#include "base/simd/targets.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cpu/lines.h"
#include "ops/conv/taps_inside.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/depthwise.cpp"
// foreach_target.h comes first.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "ops/conv/cpu/lines-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

void depthwise_lines(const ConvLines& lines, const ConvProblem& problem) { over_own_channels(lines, problem); }

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(depthwise_lines);
HWY_EXPORT(vector_lanes);
HWY_EXPORT(busy_share);

class Depthwise final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "depthwise"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  static constexpr double max_workspace_a_thread = 64 << 20;

  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.groups != p.c) return "groups differ from the input channels";
    const double row_bytes = 4.0 * static_cast<double>(p.w) * static_cast<double>(p.k);
    if (p.k != p.c && static_cast<double>(p.r) * row_bytes > max_workspace_a_thread)
      return "the repeated rows of one output line exceed 64 MiB";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    const bool blocked = (p.stride_w == 1 && (p.s == 3 || p.s == 5 || p.s == 7)) ||
                         (p.stride_w == 2 && p.dilation_w == 1 && (p.s == 3 || p.s == 5));
    const auto k = static_cast<double>(p.k), lanes = static_cast<double>(HWY_DYNAMIC_DISPATCH(vector_lanes)());
    // Padding lanes are computed, taps outside of the image are not. Where pixels are not whole vectors, a vector of a
    // cache line mostly straddles two.
    const double idle = std::ceil(k / lanes) * lanes / k;
    const bool whole = lanes < 16 || p.k % 16 == 0;
    const double any_share = whole ? 0.8 : 0.4;
    const double columns =
        blocked ? mean_columns_inside(p) / HWY_DYNAMIC_DISPATCH(busy_share)(p.stride_w) : any_taps(p) / any_share;
    const double flops = 2 * static_cast<double>(p.n * p.p * p.q) * k * mean_rows_inside(p) * columns;
    // Rows with each channel repeated, rebuilt for each output row.
    const double repeated = p.k == p.c ? 0 : static_cast<double>(p.n * p.p * p.r * p.w) * k;
    ConvCandidate candidate;
    // As for direct sums of r * s products.
    candidate.tolerance = 3e-6 + 4e-7 * std::sqrt(static_cast<double>(p.r * p.s));
    // Each vector reads the repeated rows, from beyond L2 where they do not fit.
    const auto l2_bytes = static_cast<double>(rates.l2_bytes);
    const double repeat_us = 4 * static_cast<double>(p.r * p.w) * k < l2_bytes ? 0.00027 : 0.001;
    // Pixels that are not whole vectors come from memory line by line: 3x115x7x1220, 1x4, 4.5 ms.
    const bool apart = !blocked && !whole && p.bytes() > 8 * l2_bytes;
    candidate.estimated_us = 1 + idle * flops / rates.fp32_flops_per_us + repeat_us * repeated / rates.units +
                             p.bytes() / ((apart ? 0.5 : 4) * rates.bytes_per_us);
    return candidate;
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = line_filter_floats(p)};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    transform_lines(p, filter, line_block(p), as_floats(bytes));
  }
  ComputedFilters computed_filters() const override { return ComputedFilters::packed; }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundLines>(p, depthwise_lines_of(p), device);
  }
};

}  // namespace

LineKernel depthwise_lines_of(const ConvProblem& p) {
  const bool undilated = p.dilation_h == 1 && p.dilation_w == 1;
  const bool even = p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1 && (p.s == 3 || p.s == 5 || p.s == 7);
  const bool halved = p.stride_h == 2 && p.stride_w == 2 && undilated && (p.s == 3 || p.s == 5);
  return {.compute =
              [](const ConvLines& lines, const ConvProblem& problem) {
                HWY_DYNAMIC_DISPATCH(depthwise_lines)
                (lines, problem);
              },
          .pairs = (even || halved) && p.r > p.stride_h && p.k == p.c};
}

const Kernel& conv_depthwise() {
  static const Depthwise algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif

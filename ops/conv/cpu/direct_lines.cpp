// Direct sums in NHWC for groups of few channels: as depthwise, with a loop over a group's input channels. Specialised
// for filters 3 columns wide. No columns and no padded copy.

#include <cmath>

#include "base/simd/targets.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cpu/lines.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/direct_lines.cpp"
// foreach_target.h comes first.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "ops/conv/cpu/lines-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

template <class Inputs>
void lines_from(const ConvLines& lines, const ConvProblem& problem) {
  if (problem.s == 3 && problem.stride_w == 1)
    over_vectors<Inputs, FixedLines<3, 1>>(lines, problem);
  else if (problem.s == 3 && problem.stride_w == 2 && problem.dilation_w == 1)
    over_vectors<Inputs, FixedLines<3, 2>>(lines, problem);
  else
    over_vectors<Inputs, AnyLines>(lines, problem);
}

/// Masks are for blocks that end in a partial vector with several groups.
void direct_lines(const ConvLines& lines, const ConvProblem& problem) {
  const std::int64_t lanes = vector_lanes();
  if constexpr (masked<float>)
    if (lines.group_c == lines.group_k && lines.group_c < lanes && lanes % lines.group_c == 0)
      return lines_from<WithinVector>(lines, problem);
  lines_from<OneGroup>(lines, problem);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(direct_lines);
HWY_EXPORT(vector_lanes);
HWY_EXPORT(busy_share);

LineKernel line_kernel(const ConvProblem& p) {
  const bool even = p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1;
  const bool halved = p.stride_h == 2 && p.stride_w == 2 && p.dilation_h == 1 && p.dilation_w == 1;
  return {.compute =
              [](const ConvLines& lines, const ConvProblem& problem) {
                HWY_DYNAMIC_DISPATCH(direct_lines)
                (lines, problem);
              },
          .pairs = p.s == 3 && p.r > p.stride_h && (even || halved)};
}

constexpr double cached_bytes = 4 << 20;

class DirectLines final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct_lines"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.group_c() == 1) return "it is depthwise";
    if (p.r * p.s * p.group_c() > 1024) return "the filters of one vector of channels would leave L1";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    const bool blocked = p.s == 3 && p.q > 3 && (p.stride_w == 1 || (p.stride_w == 2 && p.dilation_w == 1));
    const auto group = static_cast<double>(p.k / p.groups),
               lanes = static_cast<double>(HWY_DYNAMIC_DISPATCH(vector_lanes)());
    const bool within = p.k == p.c && group < lanes && std::fmod(lanes, group) == 0;
    const double idle = within ? 1 : std::ceil(group / lanes) * lanes / group;
    const double share =
        blocked ? HWY_DYNAMIC_DISPATCH(busy_share)(p.stride_w) : 0.6 * static_cast<double>(p.s) / any_taps(p);
    const double filter_bytes = 4 * static_cast<double>(line_filter_floats(p));
    // Stores that miss the caches stall; four times as long where each block of channels writes a part of a pixel.
    const double y_bytes = 4 * static_cast<double>(p.n * p.p * p.q * p.k);
    const double stores = y_bytes <= cached_bytes ? 0 : line_block(p) < p.k ? 4 : 1;
    ConvCandidate candidate;
    candidate.pitched = true;
    candidate.tolerance = 3e-6 + 4e-7 * std::sqrt(static_cast<double>(p.r * p.s * p.group_c()));
    // A vector's filters come from memory.
    candidate.estimated_us = 1 + idle * p.flops() / (share * rates.fp32_flops_per_us) +
                             (p.bytes() / 4 + filter_bytes + stores * y_bytes) / rates.bytes_per_us;
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
    return std::make_unique<BoundLines>(p, line_kernel(p), device);
  }
};

}  // namespace

const Kernel& conv_direct_lines() {
  static const DirectLines algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif

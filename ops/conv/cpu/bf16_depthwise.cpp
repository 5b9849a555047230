// Depthwise convolution of bfloat16 in NHWC: depthwise's lines load bfloat16 and leave some rows of 32 channels (a
// cache line of x) in L1 as float32, from where they are rounded. Filters stay float32.
#include <algorithm>

#include "base/simd/targets.h"
#include "ops/conv/cpu/lines.h"
#include "ops/core/sum_tolerance.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/bf16_depthwise.cpp"
// foreach_target.h comes first.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "ops/conv/cpu/lines-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

void lines_of_bf16(const LinesOf<BFloat16>& lines, const ConvProblem& problem) { over_own_channels(lines, problem); }

template <typename From, typename To>
void convert(const From* from, std::int64_t from_pixel, To* to, std::int64_t to_pixel, std::int64_t pixels,
             std::int64_t channels) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, from += from_pixel, to += to_pixel)
    over_channels(hn::ScalableTag<float>(), 0, channels,
                  [&](auto d, std::int64_t i) HWY_ATTR { store(load(d, from + i), d, to + i); });
}

/// `pixels` of `channels` elements each, pixels from_pixel and to_pixel elements apart.
void widen(const BFloat16* from, std::int64_t from_pixel, float* to, std::int64_t to_pixel, std::int64_t pixels,
           std::int64_t channels) {
  convert(from, from_pixel, to, to_pixel, pixels, channels);
}
void narrow(const float* from, std::int64_t from_pixel, BFloat16* to, std::int64_t to_pixel, std::int64_t pixels,
            std::int64_t channels) {
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
  // At most 32 channels.
  const __mmask32 stored = first_elements(channels);
  const auto first = static_cast<__mmask16>(stored), second = static_cast<__mmask16>(stored >> 16);
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, from += from_pixel, to += to_pixel)
    _mm512_mask_storeu_epi16(to, stored,
                             rounded_pair(hn::Vec512<float>{_mm512_maskz_loadu_ps(first, from)},
                                          hn::Vec512<float>{_mm512_maskz_loadu_ps(second, from + 16)}));
#else
  convert(from, from_pixel, to, to_pixel, pixels, channels);
#endif
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(lines_of_bf16);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);

/// Channels at a time.
constexpr std::int64_t block = 32;

std::int64_t blocks_of(const ConvProblem& p) { return (p.k + block - 1) / block; }

/// Output rows at a time: 16 KiB of sums, or two rows.
std::int64_t rows_at_once(const ConvProblem& p) {
  return std::min(p.p, std::max<std::int64_t>(1, 4096 / (p.q * block) / 2) * 2);
}

/// Of a worker: sums, and what is added to them.
std::int64_t scratch_floats(const ConvProblem& p) { return (p.residual ? 2 : 1) * rows_at_once(p) * p.q * block; }

class BoundBf16Depthwise final : public BoundConv {
 public:
  BoundBf16Depthwise(const ConvProblem& p, const DeviceProfile& device)
      : BoundConv(p, static_cast<std::size_t>(scratch_floats(p) * device.units) * sizeof(float)),
        pairs_(depthwise_lines_of(p).pairs) {}

 private:
  /// As BoundLines: threads keep to their rows of an image, or to channels where there are few pixels.
  void compute(const ConvRun& run) const override {
    const ConvProblem& p = problem;
    const std::int64_t threads = run.pool->threads(), blocks = blocks_of(p);
    const bool by_rows = p.n % threads != 0 && p.n * p.p * p.q >= 26 * threads;
    const std::int64_t parts = by_rows ? std::min(p.p, threads) : 1;
    run.pool->parallel_for(p.n * parts * blocks, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const scratch = as_floats(run.workspace).data() + worker * scratch_floats(p);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t part = i / blocks % parts;
        compute_rows(run, i / blocks / parts, i % blocks * block, {p.p * part / parts, p.p * (part + 1) / parts},
                     scratch);
      }
    });
  }

  void compute_rows(const ConvRun& run, std::int64_t n, std::int64_t k, Rows rows, float* sums) const {
    const ConvProblem& p = problem;
    const std::int64_t row = p.w * p.c, at_once = rows_at_once(p);
    LinesOf<BFloat16> lines;
    lines.x = {run.x<BFloat16>() + n * p.h * row + k, 0, row};
    lines.x_row = p.dilation_h * row;
    lines.x_pixel = p.c;
    lines.w = run.filter<float>() + k * p.r * p.s;
    lines.block = std::min(block, p.k - k);
    lines.bias = run.bias<float>() == nullptr ? nullptr : run.bias<float>() + k;
    lines.y_pixel = lines.block;
    lines.columns = {0, p.q};
    lines.pairs = pairs_;
    const std::int64_t row_floats = p.q * lines.block;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += at_once) {
      lines.rows = {begin, std::min(begin + at_once, rows.end)};
      const std::int64_t first = (n * p.p + begin) * p.q, pixels = lines.rows.count() * p.q;
      if (p.residual) {
        float* const residual = sums + at_once * row_floats;
        HWY_DYNAMIC_DISPATCH(widen)
        (run.residual<BFloat16>() + first * p.k + k, p.k, residual, lines.block, pixels, lines.block);
        lines.residual = residual - begin * row_floats;
      }
      lines.y = {sums, begin, row_floats};
      HWY_DYNAMIC_DISPATCH(lines_of_bf16)(lines, p);
      HWY_DYNAMIC_DISPATCH(narrow)
      (sums, lines.block, run.y<BFloat16>() + first * run.y_pixel + k, run.y_pixel, pixels, lines.block);
    }
  }

  const bool pairs_;
};

class Bf16Depthwise final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "bf16_depthwise"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<Types<BFloat16>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.groups != p.c || p.k != p.c) return "groups, input and output channels differ";
    constexpr std::int64_t most_floats = 16 << 20;
    if (scratch_floats(p) > most_floats) return "two rows of 32 channels exceed 64 MiB";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const double outputs = static_cast<double>(p.n * p.p * p.q * p.k),
                 inputs = static_cast<double>(p.n * p.h * p.w * p.c);
    ConvCandidate candidate;
    candidate.pitched = true;
    candidate.tolerance = sum_tolerance(p.r * p.s);
    // Some three multiply-adds an element are as long as widening or rounding it.
    candidate.estimated_us = 1 + (1.5 * p.flops() + 6 * (outputs + inputs)) / target.device.fp32_flops_per_us +
                             p.bytes() / (4 * target.device.bytes_per_us);
    return candidate;
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = line_filter_floats(p), .form = "blocks of 32"};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    transform_lines(p, filter, block, as_floats(bytes));
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundBf16Depthwise>(p, device);
  }
};

}  // namespace

const Kernel& conv_bf16_depthwise() {
  static const Bf16Depthwise algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif

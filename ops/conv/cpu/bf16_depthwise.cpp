// Depthwise convolution of bfloat16 in NHWC: a strip of rows of a block of channels is widened to float32, computed by
// depthwise's lines, and rounded as it is stored. Filters stay float32.
#include <algorithm>
#include <type_traits>

#include "base/simd/targets.h"
#include "ops/conv/cpu/lines.h"
#include "ops/core/sum_tolerance.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/bf16_depthwise.cpp"
// foreach_target.h comes first.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "base/simd/bf16-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

template <typename From, typename To>
void convert(const From* from, std::int64_t from_pixel, To* to, std::int64_t to_pixel, std::int64_t pixels,
             std::int64_t channels) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, from += from_pixel, to += to_pixel) {
    std::int64_t i = 0;
#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
    if constexpr (std::is_same_v<To, BFloat16>)
      for (; i + 32 <= channels; i += 32)
        _mm512_storeu_si512(to + i, rounded_pair(hn::LoadU(d, from + i), hn::LoadU(d, from + i + 16)));
#endif
    for (; i + lanes <= channels; i += lanes) store(load(d, from + i), d, to + i);
    for (; i < channels; ++i) store(load(one, from + i), one, to + i);
  }
}

/// `pixels` of `channels` elements each, pixels from_pixel and to_pixel elements apart.
void widen(const BFloat16* from, std::int64_t from_pixel, float* to, std::int64_t to_pixel, std::int64_t pixels,
           std::int64_t channels) {
  convert(from, from_pixel, to, to_pixel, pixels, channels);
}
void narrow(const float* from, std::int64_t from_pixel, BFloat16* to, std::int64_t to_pixel, std::int64_t pixels,
            std::int64_t channels) {
  convert(from, from_pixel, to, to_pixel, pixels, channels);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);

/// How the work is cut: strips of output rows of a block of channels, with what they read an eighth of L2.
struct Strips {
  std::int64_t block, blocks, rows, strips;

  Strips(const ConvProblem& p, const DeviceProfile& device) : block(line_block(p)), blocks((p.k + block - 1) / block) {
    const std::int64_t row = (std::min(p.stride_h, p.h) * p.w + (p.residual ? 2 : 1) * p.q) * block * 4;
    const std::int64_t at_once = std::max<std::int64_t>(1, static_cast<std::int64_t>(device.l2_bytes) / 8 / row);
    // Strips for all threads, where images and blocks are fewer.
    const std::int64_t wanted = (2 * device.units + p.n * blocks - 1) / (p.n * blocks);
    rows = std::clamp<std::int64_t>(device.units > 1 ? (p.p + wanted - 1) / wanted : p.p, 1, at_once);
    rows = std::min(p.p, rows + rows % 2);
    strips = (p.p + rows - 1) / rows;
  }
  std::int64_t x_rows(const ConvProblem& p) const {
    return std::min(p.h, (rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1);
  }
  std::int64_t x_floats(const ConvProblem& p) const { return (x_rows(p) * p.w * block + 15) / 16 * 16; }
  std::int64_t y_floats(const ConvProblem& p) const { return (rows * p.q * block + 15) / 16 * 16; }
  /// Of a worker: what is read, computed and added.
  std::int64_t floats(const ConvProblem& p) const { return x_floats(p) + (p.residual ? 2 : 1) * y_floats(p); }
};

class BoundBf16Depthwise final : public BoundConv {
 public:
  BoundBf16Depthwise(const ConvProblem& p, const DeviceProfile& device)
      : BoundConv(p, static_cast<std::size_t>(Strips(p, device).floats(p) * device.units) * sizeof(float)),
        kernel_(depthwise_lines_of(p)),
        strips_(p, device) {}

 private:
  void compute(const ConvRun& run) const override {
    const std::int64_t count = problem.n * strips_.strips * strips_.blocks;
    run.pool->parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const scratch = as_floats(run.workspace).data() + worker * strips_.floats(problem);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t strip = i / strips_.blocks % strips_.strips, n = i / strips_.blocks / strips_.strips;
        compute_strip(run, n, strip, i % strips_.blocks * strips_.block, scratch);
      }
    });
  }

  void compute_strip(const ConvRun& run, std::int64_t n, std::int64_t strip, std::int64_t k, float* x) const {
    const ConvProblem& p = problem;
    float* const y = x + strips_.x_floats(p);
    const std::int64_t block = std::min(strips_.block, p.k - k);
    const Rows rows{strip * strips_.rows, std::min(p.p, (strip + 1) * strips_.rows)};
    // The rows of the image that the strip reads: none where it meets only padding.
    const std::int64_t top = rows.begin * p.stride_h - p.pad_top;
    const std::int64_t last = (rows.end - 1) * p.stride_h - p.pad_top + (p.r - 1) * p.dilation_h;
    const std::int64_t first = std::clamp<std::int64_t>(top, 0, p.h),
                       end = std::clamp<std::int64_t>(last + 1, first, p.h);
    HWY_DYNAMIC_DISPATCH(widen)
    (run.x<BFloat16>() + (n * p.h + first) * p.w * p.c + k, p.c, x, block, (end - first) * p.w, block);
    ConvLines lines;
    lines.x = {x, first, p.w * block};
    lines.x_row = p.dilation_h * p.w * block;
    lines.x_pixel = block;
    lines.w = run.filter<float>() + k * p.r * p.s;
    lines.block = block;
    lines.bias = run.bias<float>() == nullptr ? nullptr : run.bias<float>() + k;
    const std::int64_t first_y = (n * p.p + rows.begin) * p.q, pixels = rows.count() * p.q;
    if (p.residual) {
      float* const residual = y + strips_.y_floats(p);
      HWY_DYNAMIC_DISPATCH(widen)(run.residual<BFloat16>() + first_y * p.k + k, p.k, residual, block, pixels, block);
      lines.residual = residual - rows.begin * p.q * block;
    }
    lines.y = {y, rows.begin, p.q * block};
    lines.y_pixel = block;
    lines.rows = rows;
    lines.columns = {0, p.q};
    lines.pairs = kernel_.pairs;
    kernel_.compute(lines, p);
    HWY_DYNAMIC_DISPATCH(narrow)(y, block, run.y<BFloat16>() + first_y * run.y_pixel + k, run.y_pixel, pixels, block);
  }

  const LineKernel kernel_;
  const Strips strips_;
};

class Bf16Depthwise final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "bf16_depthwise"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<Types<BFloat16>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (p.groups != p.c || p.k != p.c) return "groups, input and output channels differ";
    constexpr std::int64_t most_floats = 16 << 20;
    if (Strips(p, target.device).floats(p) > most_floats) return "a thread's copy of its rows exceeds 64 MiB";
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
    return {.elements = line_filter_floats(p)};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    transform_lines(p, filter, as_floats(bytes));
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

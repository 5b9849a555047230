// One GEMM a filter tap, over exactly the pixels that the tap finds inside of the image, accumulated into the outputs.
// No columns, and no products with padding: with a dilation of 12 on 14x14 pixels a fifth remains. NHWC; after kn2row
// of Vasudevan, Anderson, Gregg: Parallel Multi Channel Convolution using General Matrix Multiplication (2017), arXiv
// 1704.04428.

#include <algorithm>
#include <vector>

#include "ops/conv/cpu/packed_filter.h"

namespace lenslet {
namespace {

/// Size of a tap's separate results, one image at least: they should stay in L2 until they are added.
constexpr std::int64_t few_sums = 128 << 10, most_sums = 4 << 20;

/// Outputs [begin, end) of a line whose tap is inside of the image.
struct Outputs {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

/// Those of `outputs` with output*stride + offset in [0, size).
Outputs inside(std::int64_t outputs, std::int64_t stride, std::int64_t offset, std::int64_t size) {
  const std::int64_t begin = offset < 0 ? std::min(outputs, (-offset + stride - 1) / stride) : 0;
  const std::int64_t end = offset < size ? std::clamp((size - 1 - offset) / stride + 1, begin, outputs) : begin;
  return {begin, end};
}

struct Tap {
  std::int64_t index;  ///< r*S + s
  Outputs p, q;
  std::int64_t x;  ///< input offset of output (p.begin, q.begin), in pixels

  std::int64_t pixels() const { return p.count() * q.count(); }
  bool reads_for_all(const ConvProblem& problem) const { return pixels() == problem.p * problem.q; }
};

/// Without taps that meet only padding; taps inside for every output come last.
std::vector<Tap> taps_of(const ConvProblem& p) {
  std::vector<Tap> taps;
  for (std::int64_t r = 0; r < p.r; ++r)
    for (std::int64_t s = 0; s < p.s; ++s) {
      const std::int64_t h = r * p.dilation_h - p.pad_top, w = s * p.dilation_w - p.pad_left;
      Tap tap{r * p.s + s, inside(p.p, p.stride_h, h, p.h), inside(p.q, p.stride_w, w, p.w), 0};
      if (tap.pixels() == 0) continue;
      tap.x = (tap.p.begin * p.stride_h + h) * p.w + tap.q.begin * p.stride_w + w;
      taps.push_back(tap);
    }
  std::stable_partition(taps.begin(), taps.end(), [&](const Tap& tap) { return !tap.reads_for_all(p); });
  return taps;
}

/// Pixels of separate results: those of the largest tap that is not inside for every output.
std::int64_t pixels_apart(const ConvProblem& p, const std::vector<Tap>& taps) {
  std::int64_t most = 0;
  for (const Tap& tap : taps)
    if (!tap.reads_for_all(p)) most = std::max(most, tap.pixels());
  return most;
}

std::int64_t images_at_once(const ConvProblem& p, const std::vector<Tap>& taps) {
  const std::int64_t sums = std::max<std::int64_t>(1, pixels_apart(p, taps) * p.group_k());
  return std::clamp<std::int64_t>(few_sums / sums, 1, p.n);
}

PackedFilter taps_apart(const ConvProblem& p) { return PackedFilter(p, p.r * p.s); }

class BoundKn2col final : public BoundConv {
 public:
  BoundKn2col(const ConvProblem& p, std::vector<Tap> taps)
      : BoundConv(
            p, static_cast<std::size_t>(images_at_once(p, taps) * pixels_apart(p, taps) * p.group_k()) * sizeof(float)),
        filter_(taps_apart(p)),
        taps_(std::move(taps)),
        images_(images_at_once(p, taps_)) {}

 private:
  void compute(const ConvRun& run) const override {
    const ConvProblem& p = problem;
    if (!taps_.front().reads_for_all(p)) begin_sums(run);
    for (std::int64_t image = 0; image < p.n; image += images_)
      for (std::int64_t g = 0; g < p.groups; ++g)
        for (const Tap& tap : taps_) add_tap(run, image, std::min(images_, p.n - image), g, tap);
  }

  void begin_sums(const ConvRun& run) const {
    if (run.residual<float>() == run.y<float>()) return;
    const std::int64_t k = problem.k;
    run.pool->parallel_for(
        problem.n * problem.p * problem.q, 1 + (32 << 10) / k, [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t pixel = begin; pixel < end; ++pixel) {
            float* const to = run.y<float>() + pixel * run.y_pixel;
            if (run.residual<float>() == nullptr)
              std::fill(to, to + k, 0.0F);
            else
              std::copy(run.residual<float>() + pixel * k, run.residual<float>() + (pixel + 1) * k, to);
          }
        });
  }

  void add_tap(const ConvRun& run, std::int64_t image, std::int64_t images, std::int64_t g, const Tap& tap) const {
    const ConvProblem& p = problem;
    const std::int64_t channel = g * p.group_k(), pixels = image * p.p * p.q;
    float* const y = run.y<float>() + pixels * run.y_pixel + channel;
    Gemm call{.m = images * tap.pixels(),
              .n = p.group_k(),
              .k = p.group_c(),
              .a = {.base = run.x<float>() + (image * p.h * p.w + tap.x) * p.c + g * p.group_c(),
                    .stride = p.stride_w * p.c,
                    .width = tap.q.count(),
                    .line_stride = p.stride_h * p.w * p.c,
                    .height = tap.p.count(),
                    .image_stride = p.h * p.w * p.c},
              .b = filter_.group(run.filter<float>(), g, tap.index),
              .activation = {}};
    if (tap.reads_for_all(p)) {
      const bool first = &tap == &taps_.front(), last = &tap == &taps_.back();
      call.c = y;
      call.ldc = run.y_pixel;
      call.accumulate = !first;
      if (first && run.residual<float>() != nullptr) call.residual = run.residual<float>() + pixels * p.k + channel;
      if (last && run.bias<float>() != nullptr) call.bias = run.bias<float>() + channel;
      if (last) call.activation = p.activation;
      return gemm(call, *run.pool);
    }
    auto* const sums = reinterpret_cast<float*>(run.workspace.data());
    call.c = sums;
    call.ldc = call.n;
    gemm(call, *run.pool);
    const std::int64_t lines = images * tap.p.count(), width = tap.q.count();
    run.pool->parallel_for(lines, 1 + (8 << 10) / (width * call.n), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t line = begin; line < end; ++line) {
        const std::int64_t at = line / tap.p.count() * p.p + tap.p.begin + line % tap.p.count();
        const float* from = sums + line * width * call.n;
        float* to = y + (at * p.q + tap.q.begin) * run.y_pixel;
        for (std::int64_t q = 0; q < width; ++q, from += call.n, to += run.y_pixel)
          for (std::int64_t i = 0; i < call.n; ++i) to[i] += from[i];
      }
    });
  }

  PackedFilter filter_;
  std::vector<Tap> taps_;
  std::int64_t images_;
};

class Kn2col final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "kn2col"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    const PackedFilter filter = taps_apart(p);
    return {.elements = filter.floats(), .form = "taps " + filter.form()};
  }

  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    taps_apart(p).pack(p, filter, as_floats(bytes).data());
  }

  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    const std::vector<Tap> taps = taps_of(p);
    if (taps.empty() || !taps.back().reads_for_all(p)) return "no tap lies in the image for every output";
    if (pixels_apart(p, taps) * p.group_k() > most_sums) return "the partial sums of a tap exceed 16 MiB";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    ConvCandidate candidate;
    candidate.pitched = true;
    candidate.tolerance = packed_tolerance(p);
    double floats = 0;  // added to y, or read and written again by a GEMM
    for (const Tap& tap : taps_of(p)) {
      candidate.estimated_us += gemm_estimate_us(p.n * tap.pixels(), p.group_k(), p.group_c(), 1, p.groups, rates);
      floats += static_cast<double>(p.n * tap.pixels()) * static_cast<double>(p.k);
    }
    constexpr double float_us = 0.0002;
    candidate.estimated_us += floats * float_us / rates.units;
    return candidate;
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile&) const override {
    return std::make_unique<BoundKn2col>(p, taps_of(p));
  }
};

}  // namespace

const Kernel& conv_kn2col() {
  static const Kn2col algorithm;
  return algorithm;
}

}  // namespace lenslet

// Convolution by definition, NCHW: the fallback where faster algorithms refuse.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "ops/conv/algorithm.h"

namespace lenslet {
namespace {

/// Tap s reads image column q*stride + first for output column q; only `begin` <= q < `end` are inside.
struct TapRange {
  std::int64_t begin, end, first;
};

TapRange tap_range(std::int64_t tap, std::int64_t dilation, std::int64_t stride, std::int64_t pad, std::int64_t size,
                   std::int64_t out) {
  const std::int64_t first = tap * dilation - pad;
  const std::int64_t begin = first >= 0 ? 0 : (-first + stride - 1) / stride;
  const std::int64_t end = first >= size ? 0 : (size - 1 - first) / stride + 1;
  return {std::min(begin, out), std::min(end, out), first};
}

// Unit stride is a template argument, so that the compiler vectorises consecutive loads.
template <bool unit_stride>
void add_scaled(float* __restrict sum, const float* __restrict x, float w, std::int64_t count, std::int64_t stride) {
  for (std::int64_t q = 0; q < count; ++q) sum[q] += w * x[unit_stride ? q : q * stride];
}

// Channels of one partial sum. Rounding errors of long sums drift on inputs whose mean is not zero: 4e-5 of the
// output's rms over 256 channels (ResNet-50), 1.8e-5 over 64 (waifu2x).
constexpr std::int64_t channels_a_run = 16;

/// sum[q] = sum over r, s and c in [c_begin, c_end) of x * w for output row p; `x` and `w` belong to one image, group
/// and filter.
void sum_channels(const ConvProblem& problem, const float* x, const float* w, std::int64_t p, std::int64_t c_begin,
                  std::int64_t c_end, float* sum) {
  std::fill(sum, sum + problem.q, 0.0F);
  const std::int64_t taps = problem.r * problem.s;
  for (std::int64_t s = 0; s < problem.s; ++s) {
    const TapRange range = tap_range(s, problem.dilation_w, problem.stride_w, problem.pad_left, problem.w, problem.q);
    const std::int64_t count = range.end - range.begin;
    if (count <= 0) continue;
    const std::int64_t column = range.begin * problem.stride_w + range.first;
    for (std::int64_t r = 0; r < problem.r; ++r) {
      const std::int64_t row = p * problem.stride_h - problem.pad_top + r * problem.dilation_h;
      if (row < 0 || row >= problem.h) continue;
      const float* x_tap = x + row * problem.w + column;
      const float* w_tap = w + r * problem.s + s;
      for (std::int64_t c = c_begin; c < c_end; ++c) {
        const float* x_plane = x_tap + c * problem.h * problem.w;
        if (problem.stride_w == 1)
          add_scaled<true>(sum + range.begin, x_plane, w_tap[c * taps], count, 1);
        else
          add_scaled<false>(sum + range.begin, x_plane, w_tap[c * taps], count, problem.stride_w);
      }
    }
  }
}

/// sum[q] = sum over c, r, s; `part` is scratch of the same length.
void sum_row(const ConvProblem& problem, const float* x, const float* w, std::int64_t p, float* sum, float* part) {
  const std::int64_t channels = problem.group_c();
  sum_channels(problem, x, w, p, 0, std::min(channels_a_run, channels), sum);
  for (std::int64_t c = channels_a_run; c < channels; c += channels_a_run) {
    sum_channels(problem, x, w, p, c, std::min(c + channels_a_run, channels), part);
    for (std::int64_t q = 0; q < problem.q; ++q) sum[q] += part[q];
  }
}

void activate_row(const Activation& activation, float* y, std::int64_t count) {
  const float alpha = activation.alpha;
  const float beta = activation.beta;
  const auto each = [&](auto f) { std::transform(y, y + count, y, f); };
  switch (activation.kind) {
    case Activation::Kind::none:
      return;
    case Activation::Kind::relu:
      return each([](float v) { return std::max(v, 0.0F); });
    case Activation::Kind::clip:
      return each([=](float v) { return std::min(std::max(v, alpha), beta); });
    case Activation::Kind::leaky_relu:
      return each([=](float v) { return v < 0 ? alpha * v : v; });
    case Activation::Kind::hard_swish:
      return each([=](float v) { return v * std::min(std::max(v * alpha + beta, 0.0F), 1.0F); });
    case Activation::Kind::hard_sigmoid:
      return each([=](float v) { return std::min(std::max(v * alpha + beta, 0.0F), 1.0F); });
    case Activation::Kind::affine_relu:
      return each([=](float v) { return std::max(v, 0.0F) * alpha + beta; });
    case Activation::Kind::star_relu:
      return each([=](float v) { return std::max(v, 0.0F) * std::max(v, 0.0F) * alpha + beta; });
    case Activation::Kind::sigmoid:
    case Activation::Kind::silu:
    case Activation::Kind::swish:
    case Activation::Kind::gelu:
    case Activation::Kind::gelu_tanh:
      return each([&](float v) { return static_cast<float>(apply(activation, static_cast<double>(v))); });
  }
}

/// A worker's row of sums in floats: whole cache lines, so that workers share none.
std::int64_t row_stride(const ConvProblem& problem) { return (problem.q + 15) / 16 * 16; }

class BoundDirect final : public BoundConv {
 public:
  BoundDirect(const ConvProblem& p, int threads)
      : BoundConv(p, static_cast<std::size_t>(2 * threads * row_stride(p)) * sizeof(float)) {}

 private:
  void compute(const ConvRun& run) const override {
    const std::int64_t rows = problem.n * problem.k * problem.p;
    const std::int64_t gemm_k = problem.group_c() * problem.r * problem.s;
    const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, gemm_k * problem.q));
    auto* scratch = reinterpret_cast<float*>(run.workspace.data());

    run.pool->parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* sum = scratch + 2 * worker * row_stride(problem);
      float* part = sum + row_stride(problem);
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t p = row % problem.p;
        const std::int64_t k = row / problem.p % problem.k;
        const std::int64_t n = row / problem.p / problem.k;
        const std::int64_t first_c = k / problem.group_k() * problem.group_c();
        const float* x = run.x<float>() + (n * problem.c + first_c) * problem.h * problem.w;
        sum_row(problem, x, run.filter<float>() + k * gemm_k, p, sum, part);

        const float bias = run.bias<float>() == nullptr ? 0.0F : run.bias<float>()[k];
        for (std::int64_t q = 0; q < problem.q; ++q) sum[q] += bias;
        if (run.residual<float>() != nullptr)
          for (std::int64_t q = 0; q < problem.q; ++q) sum[q] += run.residual<float>()[row * problem.q + q];
        activate_row(problem.activation, sum, problem.q);
        std::memcpy(run.y<float>() + row * problem.q, sum, static_cast<std::size_t>(problem.q) * sizeof(float));
      }
    });
  }
};

class Direct final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  bool takes_anything() const override { return true; }
  std::optional<std::string> refuse(const ConvProblem&, const Target&) const override { return std::nullopt; }

  ConvCandidate candidate(const ConvProblem& problem, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    ConvCandidate candidate;
    candidate.format = formats::nchw;
    // Sums are in order; rounding errors behave like a random walk: 1.7e-5 of the output's rms at worst for 4608
    // products (C = 512, 3x3, rectified input, 3e4 outputs), half of the bound.
    candidate.tolerance = 3e-6 + 5e-7 * std::sqrt(static_cast<double>(problem.group_c() * problem.r * problem.s));
    // Bound by reading and writing the row of sums: a tenth of the FMA peak at best; short rows pay loop overhead.
    const double strided = problem.stride_w == 1 ? 1 : 3;
    const bool from_l2 = problem.bytes() < static_cast<double>(rates.l2_bytes);
    candidate.estimated_us =
        strided * (1 + 24 / static_cast<double>(problem.q)) * problem.flops() / (0.1 * rates.fp32_flops_per_us) +
        problem.bytes() / ((from_l2 ? 4 : 1) * rates.bytes_per_us);
    return candidate;
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundDirect>(p, device.units);
  }
};

}  // namespace

const Kernel& conv_direct() {
  static const Direct algorithm;
  return algorithm;
}

}  // namespace lenslet

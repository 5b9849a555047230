#include "tools/measuring/conv_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "lenslet/error.h"
#include "oracle/oracle.h"
#include "tools/measuring/machine_peak.h"

namespace lenslet::tool {
namespace {

// Large tensors are drawn for each problem: a generator of two operations a value.
void fill_uniform(std::span<float> values, float scale, std::uint32_t seed) {
  std::uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = (static_cast<float>(state >> 8) * (2.0F / (1 << 24)) - 1) * scale;
  }
}

Tensor zero_padded(const Tensor& x, const ConvProblem& p) {
  const ConvProblem to = p.with_explicit_padding();
  Tensor padded(DType::f32, {to.n, to.c, to.h, to.w});
  std::ranges::fill(padded.values<float>(), 0.0F);
  const float* from = x.values<float>().data();
  float* const out = padded.values<float>().data();
  for (std::int64_t line = 0; line < p.n * p.c * p.h; ++line, from += p.w)
    std::copy_n(from, p.w, out + (line / p.h * to.h + line % p.h + p.pad_top) * to.w + p.pad_left);
  return padded;
}

constexpr std::int64_t most_places = 2048;

class CpuConvTimer final : public ConvTimer {
 public:
  explicit CpuConvTimer(int threads) : pool_(threads) {}
  DeviceKind device() const override { return DeviceKind::cpu; }
  MachineRates rates() const override { return cpu_rates(pool_.threads()); }

  DevicePeak peak() override {
    const MachinePeak peak = measure_machine_peak(pool_.threads());
    return {peak.fma_flops_per_s / 1e6, peak.bytes_per_s / 1e6, "FMAs in registers, copy in memory"};
  }

  ConvTime time(const ConvAlgorithm& algorithm, const ConvProblem& problem, const ConvOperands& operands,
                const ConvReference& reference, double seconds) override {
    using Clock = std::chrono::steady_clock;
    const ConvProblem seen = algorithm.wants_padded() ? problem.with_explicit_padding() : problem;
    const Tensor x = operands.x_for(algorithm, problem);
    Tensor y(DType::f32, {problem.n, problem.k, problem.p, problem.q}, algorithm.format());
    Tensor workspace(DType::u8, {static_cast<std::int64_t>(algorithm.workspace_bytes(seen, pool_.threads()))});
    const auto filter = algorithm.prepare(seen, {operands.w.values<float>().data(), nullptr});
    const ConvRun run{.problem = seen,
                      .x = static_cast<const float*>(x.data()),
                      .filter = filter.get(),
                      .bias = problem.bias ? static_cast<const float*>(operands.bias.data()) : nullptr,
                      .y = static_cast<float*>(y.data()),
                      .workspace = {static_cast<std::byte*>(workspace.data()), workspace.bytes()},
                      .pool = &pool_};
    algorithm.run(run);
    const double error = reference.error(run.y, algorithm.format());
    std::vector<double> samples;
    for (const auto begin = Clock::now();
         samples.size() < 7 || std::chrono::duration<double>(Clock::now() - begin).count() < seconds;) {
      const auto start = Clock::now();
      algorithm.run(run);
      samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    ConvTime result = summarise(std::move(samples));
    result.error = error;
    return result;
  }

 private:
  ThreadPool pool_;
};

}  // namespace

ConvOperands::ConvOperands(const ConvProblem& p)
    : x(DType::f32, {p.n, p.c, p.h, p.w}), w(DType::f32, {p.k, p.group_c(), p.r, p.s}), bias(DType::f32, {p.k}) {
  fill_uniform(x.values<float>(), 1, 1);
  // A uniform value in [-1,1] has variance 1/3, and so does a product of two divided by the scale of one.
  fill_uniform(w.values<float>(), static_cast<float>(3 / std::sqrt(static_cast<double>(p.group_c() * p.r * p.s))), 2);
  fill_uniform(bias.values<float>(), 1, 3);
}

Tensor ConvOperands::x_for(const ConvAlgorithm& algorithm, const ConvProblem& problem) const {
  const bool pads = algorithm.wants_padded() && problem.padded();
  if (!pads && algorithm.format() == formats::nchw)
    return Tensor::view(DType::f32, x.shape(), const_cast<void*>(x.data()));
  return (pads ? zero_padded(x, problem) : x).to_format(algorithm.format());
}

ConvReference::ConvReference(const ConvProblem& p, const ConvOperands& operands) : problem_(p) {
  const std::int64_t outputs = p.n * p.k * p.p * p.q;
  if (outputs <= most_places) {
    for (std::int64_t i = 0; i < outputs; ++i) places_.push_back(i);
  } else {
    std::mt19937_64 random(1);
    std::uniform_int_distribution<std::int64_t> place(0, outputs - 1);
    places_ = {0, p.q - 1, (p.p - 1) * p.q, outputs - 1};  // corners, where the pads are
    while (places_.size() < static_cast<std::size_t>(most_places)) places_.push_back(place(random));
  }
  // Each place as a convolution of its own window that has one output; the oracle does many at once, as groups.
  const std::int64_t c = p.group_c(), window = c * p.r * p.s, at_once = std::max<std::int64_t>(1, (1 << 20) / window);
  const float* const x = operands.x.values<float>().data();
  const float* const w = operands.w.values<float>().data();
  for (std::size_t begin = 0; begin < places_.size(); begin += static_cast<std::size_t>(at_once)) {
    const auto count = std::min(at_once, static_cast<std::int64_t>(places_.size() - begin));
    oracle::Array inputs[] = {{{1, count * c, p.r, p.s}, {}}, {{count, c, p.r, p.s}, {}}, {{count}, {}}};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = places_[begin + static_cast<std::size_t>(i)];
      const std::int64_t q = place % p.q, row = place / p.q % p.p, k = place / (p.q * p.p) % p.k,
                         n = place / (p.q * p.p * p.k);
      for (std::int64_t e = 0; e < window; ++e) {
        const std::int64_t channel = k / p.group_k() * c + e / (p.r * p.s);
        const std::int64_t in_h = row * p.stride_h - p.pad_top + e / p.s % p.r * p.dilation_h;
        const std::int64_t in_w = q * p.stride_w - p.pad_left + e % p.s * p.dilation_w;
        const bool inside = in_h >= 0 && in_h < p.h && in_w >= 0 && in_w < p.w;
        inputs[0].values.push_back(inside ? double{x[((n * p.c + channel) * p.h + in_h) * p.w + in_w]} : 0.0);
        inputs[1].values.push_back(double{w[k * window + e]});
      }
      inputs[2].values.push_back(p.bias ? double{operands.bias.values<float>()[static_cast<std::size_t>(k)]} : 0.0);
    }
    const AttributeList attributes{{"strides", std::vector<std::int64_t>{1, 1}},
                                   {"dilations", std::vector<std::int64_t>{1, 1}},
                                   {"pads", std::vector<std::int64_t>{0, 0, 0, 0}},
                                   {"group", count},
                                   {"activation", std::string(to_string(p.activation.kind))},
                                   {"activation_alpha", double{p.activation.alpha}},
                                   {"activation_beta", double{p.activation.beta}}};
    const auto outputs_here = oracle::run("Conv", attributes, inputs).value().at(0);
    exact_.insert(exact_.end(), outputs_here.values.begin(), outputs_here.values.end());
  }
  for (const double value : exact_) rms_ += value * value;
  rms_ = std::sqrt(rms_ / static_cast<double>(exact_.size()));
}

double ConvReference::error(const float* y, Format layout) const {
  const ConvProblem& p = problem_;
  double worst = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::int64_t place = places_[i], pixel = place % (p.p * p.q), plane = place / (p.p * p.q);
    const std::int64_t at = layout == formats::nchw ? place : (plane / p.k * p.p * p.q + pixel) * p.k + plane % p.k;
    const double off = std::abs(double{y[at]} - exact_[i]);
    worst = std::max(worst, std::isnan(off) ? std::numeric_limits<double>::infinity() : off);
  }
  return worst / rms_;
}

ConvTime summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return {.median_us = samples[n / 2],
          .p10_us = samples[n / 10],
          .p90_us = samples[std::min(n - 1, n * 9 / 10)],
          .samples = n};
}

std::unique_ptr<ConvTimer> cpu_conv_timer(int threads) { return std::make_unique<CpuConvTimer>(threads); }

}  // namespace lenslet::tool

// Requantized convolutions of 8-bit integers by definition, NHWC: the fallback where faster algorithms refuse.

#include <algorithm>
#include <memory>

#include "base/dtypes.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cpu/int8_windows.h"

namespace lenslet {
namespace {

using EightBits = Types<std::int8_t, std::uint8_t>;

/// Filters of a group side by side, so that the compiler vectorises over them.
class BoundInt8Direct final : public BoundConv {
 public:
  BoundInt8Direct(const ConvProblem& p, int threads)
      : BoundConv(p, static_cast<std::size_t>(threads * p.group_k()) * sizeof(std::int32_t)) {}

 private:
  void compute(const ConvRun& run) const override {
    dispatch(problem.x_storage, EightBits(), [&]<typename X>(std::type_identity<X>) {
      dispatch(problem.storage, EightBits(), [&]<typename Y>(std::type_identity<Y>) { compute<X, Y>(run); });
    });
  }

  template <typename X, typename Y>
  void compute(const ConvRun& run) const {
    const std::int64_t pixels = problem.n * problem.p * problem.q;
    const std::int64_t products = problem.k * problem.group_c() * problem.r * problem.s;
    run.pool->parallel_for(pixels, 1 + 100000 / (products + 1), [&](std::int64_t begin, std::int64_t end, int worker) {
      auto* const sums = reinterpret_cast<std::int32_t*>(run.workspace.data()) + worker * problem.group_k();
      for (std::int64_t pixel = begin; pixel < end; ++pixel)
        for (std::int64_t group = 0; group < problem.groups; ++group) {
          sum(run, run.x<X>(), pixel, group, sums);
          for (std::int64_t i = 0; i < problem.group_k(); ++i) {
            const std::int64_t k = group * problem.group_k() + i;
            const int code = run.requantization.stored<Y>(sums[i], k);
            run.y<Y>()[pixel * run.y_pixel + k] =
                static_cast<Y>(std::min(std::max(code, problem.y_least), problem.y_most));
          }
        }
    });
  }

  template <typename X>
  void sum(const ConvRun& run, const X* x, std::int64_t pixel, std::int64_t group, std::int32_t* sums) const {
    const ConvProblem& of = problem;
    const std::int64_t column = pixel % of.q, row = pixel / of.q % of.p, image = pixel / of.q / of.p;
    const std::int64_t channels = of.group_c(), filters = of.group_k();
    if (of.bias)
      std::copy_n(run.bias<std::int32_t>() + group * filters, filters, sums);
    else
      std::fill_n(sums, filters, 0);
    for (std::int64_t tap = 0; tap < of.r * of.s; ++tap) {
      const std::int64_t h = row * of.stride_h - of.pad_top + tap / of.s * of.dilation_h;
      const std::int64_t w = column * of.stride_w - of.pad_left + tap % of.s * of.dilation_w;
      if (h < 0 || h >= of.h || w < 0 || w >= of.w) continue;
      const X* const from = x + ((image * of.h + h) * of.w + w) * of.c + group * channels;
      const auto* weights = run.filter<std::int8_t>() + (group * of.r * of.s + tap) * channels * filters;
      for (std::int64_t c = 0; c < channels; ++c, weights += filters) {
        const std::int32_t value = from[c] - of.x_zero_point;
        for (std::int64_t i = 0; i < filters; ++i) sums[i] += value * weights[i];
      }
    }
  }
};

class Int8Direct final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "int8_direct"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<EightBits>; }

 protected:
  DType filter_type() const override { return DType::i8; }
  DType accumulator_type() const override { return DType::i32; }
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    return refuse_more_than_codes(p);
  }
  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    // A product a nanosecond.
    return {.pitched = true, .estimated_us = 1 + p.flops() / 2000 / target.device.units};
  }
  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = p.k * p.group_c() * p.r * p.s, .form = "int8", .element_bytes = 1};
  }
  /// [group][tap][C/groups][K/groups].
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    const std::int64_t taps = p.r * p.s, channels = p.group_c(), filters = p.group_k();
    const auto* const from = filter.elements<std::byte>();
    for (std::int64_t k = 0; k < p.k; ++k)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int64_t line = (k / filters * taps + tap) * channels + c;
          to[static_cast<std::size_t>(line * filters + k % filters)] = from[(k * channels + c) * taps + tap];
        }
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundInt8Direct>(p, device.units);
  }
};

}  // namespace

const Kernel& conv_int8_direct() {
  static const Int8Direct kernel;
  return kernel;
}

}  // namespace lenslet

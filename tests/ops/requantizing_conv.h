#pragma once
// A convolution of 8-bit integers by its definition, which shows what ConvAlgorithm offers to such kernels: element
// types, int32 accumulators, and an epilogue that requantizes. Beside each runner of operators: on the CPU in
// requantizing_conv_cpu.cpp, on a device in tests/cuda/requantizing_conv.cu.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/cuda/host_device.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/device_problem.h"

namespace lenslet::test {

/// What a thread needs for an element of y: nhwc, filters [K][C/groups][R][S] of int8, either 8-bit type.
template <typename X>
struct RequantizingCall : cuda::DeviceProblem<> {
  std::int32_t groups;
  bool relu;
  const X* x = nullptr;
  const std::int8_t* filter = nullptr;
  const std::int32_t* bias = nullptr;
  std::int32_t y_pixel = 0;
  Requantization requantization = {};
  int x_zero, y_least, y_most;

  explicit RequantizingCall(const ConvProblem& problem)
      : DeviceProblem(problem),
        groups(static_cast<std::int32_t>(problem.groups)),
        relu(problem.activation.kind == Activation::Kind::relu),
        x_zero(problem.x_zero_point),
        y_least(problem.y_least),
        y_most(problem.y_most) {}

  void point_at(const ConvRun& run) {
    x = run.x<X>();
    filter = run.filter<std::int8_t>();
    bias = run.bias<std::int32_t>();
    y_pixel = static_cast<std::int32_t>(run.y_pixel);
    requantization = run.requantization;
  }

  /// Writes element `i` of y, which is counted in nhwc.
  template <typename Y>
  LENSLET_HOST_DEVICE void store(std::int64_t i, Y* y) const {
    const auto of_k = static_cast<int>(i % k);
    const std::int64_t pixel = i / k;
    const int column = static_cast<int>(pixel % q), row = static_cast<int>(pixel / q % p);
    const std::int64_t image = pixel / q / p;
    const int group_c = c / groups, first_c = of_k / (k / groups) * group_c;
    std::int32_t acc = bias == nullptr ? 0 : bias[of_k];
    for (int tap = 0; tap < r * s; ++tap) {
      const int h = row * stride_h - pad_top + tap / s * dilation_h;
      const int w = column * stride_w - pad_left + tap % s * dilation_w;
      if (h < 0 || h >= height || w < 0 || w >= width) continue;
      for (int j = 0; j < group_c; ++j)
        acc += (x[((image * height + h) * width + w) * c + first_c + j] - x_zero) *
               filter[(of_k * group_c + j) * r * s + tap];
    }
    if (relu && acc < 0) acc = 0;
    const int code = requantization.stored<Y>(acc, of_k);
    y[pixel * y_pixel + of_k] = static_cast<Y>(code < y_least ? y_least : code > y_most ? y_most : code);
  }
};

class RequantizingConv : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "requantizing"; }
  DTypeSet types() const override { return dtypes<Types<std::int8_t, std::uint8_t>>; }

 protected:
  DType filter_type() const override { return DType::i8; }
  DType accumulator_type() const override { return DType::i32; }
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (!p.requantized) return "its output is not requantized";
    if (p.residual) return "it has a residual";
    return std::nullopt;
  }
  ConvCandidate candidate(const ConvProblem&, const Target&) const override {
    return {.pitched = true, .estimated_us = 1};
  }
  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = p.k * p.group_c() * p.r * p.s, .form = "int8", .element_bytes = 1};
  }
  void transform(const ConvProblem&, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::byte>(static_cast<std::int8_t>(filter.exact_weight(0, static_cast<std::int64_t>(i))));
  }
};

/// The runner's.
const Kernel& requantizing_conv();

}  // namespace lenslet::test

#include "tests/ops/conv_data.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace lenslet::test {
namespace {

Tensor random_tensor(const Shape& shape, double deviation, bool rectified, std::mt19937& random) {
  Tensor tensor(DType::f32, shape);
  std::normal_distribution<double> normal(0, deviation);
  for (float& value : tensor.values<float>()) {
    value = static_cast<float>(normal(random));
    if (rectified) value = std::max(value, 0.0F);
  }
  return tensor;
}

// What Op::attributes() says of such a convolution; the oracle reads nothing else.
AttributeList attributes_of(const ConvProblem& p, const std::vector<float>& scale) {
  using Integers = std::vector<std::int64_t>;
  AttributeList list{{"strides", Integers{p.stride_h, p.stride_w}},
                     {"dilations", Integers{p.dilation_h, p.dilation_w}},
                     {"pads", Integers{p.pad_top, p.pad_left, p.pad_bottom, p.pad_right}},
                     {"group", p.groups},
                     {"activation", std::string(to_string(p.activation.kind))},
                     {"activation_alpha", static_cast<double>(p.activation.alpha)},
                     {"activation_beta", static_cast<double>(p.activation.beta)}};
  if (!scale.empty()) list.emplace_back("weight_scale", std::vector<double>(scale.begin(), scale.end()));
  return list;
}

double rms(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(values.size(), 1)));
}

}  // namespace

ConvData make_conv_data(const ConvProblem& p, std::mt19937& random) {
  ConvData data;
  // Inputs as networks have them: after a ReLU, or symmetric. Filters keep the output's scale near one.
  const bool rectified = (random() & 1U) != 0;
  const double terms = static_cast<double>(p.group_c() * p.r * p.s);
  data.x = random_tensor({p.n, p.c, p.h, p.w}, rectified ? 1.4 : 1.0, rectified, random);
  data.w = random_tensor({p.k, p.group_c(), p.r, p.s}, 1 / std::sqrt(terms), false, random);
  if (p.bias) data.bias = random_tensor({p.k}, 0.5, false, random);
  if (p.residual) data.residual = random_tensor({p.n, p.k, p.p, p.q}, 0.5, false, random);
  if ((random() & 1U) != 0) {
    std::uniform_real_distribution<float> factor(0.5F, 2.0F);
    for (std::int64_t k = 0; k < p.k; ++k)
      data.scale.push_back((random() & 1U) != 0 ? factor(random) : -factor(random));
  }
  oracle::Array inputs[] = {oracle::from_tensor(data.x), oracle::from_tensor(data.w), oracle::from_tensor(data.bias),
                            oracle::from_tensor(data.residual)};
  data.exact = oracle::run("Conv", attributes_of(p, data.scale), inputs).value().at(0);
  // A stated tolerance speaks of outputs as random data give them. Where an activation clips nearly all of them away,
  // or the few there are happen to cancel, what is left is smaller than the terms that were rounded: then the rms that
  // independent terms of these sizes sum to counts, the root of the same convolution of all squares.
  for (oracle::Array& input : inputs)
    for (double& value : input.values) value *= value;
  std::vector<float> squared_scale = data.scale;
  for (float& factor : squared_scale) factor *= factor;
  ConvProblem linear = p;
  linear.activation = {};
  const oracle::Array variance = oracle::run("Conv", attributes_of(linear, squared_scale), inputs).value().at(0);
  double sum = 0;
  for (const double value : variance.values) sum += value;
  data.rms = std::max(rms(data.exact.values), std::sqrt(sum / static_cast<double>(variance.values.size())));
  return data;
}

std::vector<float> in_layout(const Tensor& tensor, Format layout) {
  const Tensor moved = tensor.to_format(layout);
  const auto values = moved.values<float>();
  return {values.begin(), values.end()};
}

// The Pad step that runs before algorithms with wants_padded().
Tensor zero_padded(const Tensor& x, const ConvProblem& p) {
  const ConvProblem q = p.with_explicit_padding();
  Tensor padded(DType::f32, {q.n, q.c, q.h, q.w});
  std::ranges::fill(padded.values<float>(), 0.0F);
  const auto from = x.values<float>();
  const auto to = padded.values<float>();
  for (std::int64_t i = 0; i < p.n * p.c * p.h; ++i)
    for (std::int64_t w = 0; w < p.w; ++w) {
      const std::int64_t row = i / p.h * q.h + i % p.h + p.pad_top;
      to[static_cast<std::size_t>(row * q.w + w + p.pad_left)] = from[static_cast<std::size_t>(i * p.w + w)];
    }
  return padded;
}

void compare(const ConvAlgorithm& algorithm, const ConvProblem& p, const ConvData& data, float* y,
             const std::string& where) {
  Tensor output = Tensor::view(DType::f32, {p.n, p.k, p.p, p.q}, y, algorithm.format()).to_format(formats::nchw);
  const auto got = output.values<float>();
  const double allowed = algorithm.tolerance(p) * data.rms;
  double worst = -1;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double error = std::abs(static_cast<double>(got[i]) - data.exact.values[i]);
    if (!(error <= std::numeric_limits<double>::max())) error = std::numeric_limits<double>::infinity();
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  if (worst > allowed) {
    const auto i = static_cast<std::int64_t>(at);
    FAIL_CHECK(fmt::format("{}: y[n={},k={},p={},q={}] is {:.9g} instead of {:.9g}: error {:.3g}, allowed {:.3g}",
                           where, i / (p.k * p.p * p.q), i / (p.p * p.q) % p.k, i / p.q % p.p, i % p.q, got[at],
                           data.exact.values[at], worst, allowed));
  }
}

/// A small problem of any kind, drawn.
ConvProblem random_problem(std::mt19937& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto one_of = [&](std::initializer_list<std::int64_t> list) {
    return *(list.begin() + draw(0, static_cast<std::int64_t>(list.size()) - 1));
  };
  for (;;) {
    ConvGeometry geometry;
    const bool depthwise = draw(0, 2) == 0;
    const bool plain = draw(0, 1) == 0;  // what Winograd takes
    const std::int64_t c = draw(1, 40);
    geometry.groups = depthwise ? c : 1;
    const std::int64_t k = depthwise ? c * one_of({1, 1, 1, 2}) : draw(1, 40);
    const std::int64_t r = plain ? 3 : one_of({1, 2, 3, 5, 7}), s = plain ? 3 : one_of({1, 2, 3, 5, 7});
    if (!plain) {
      geometry.stride = {draw(1, 3), draw(1, 3)};
      geometry.dilation = {one_of({1, 1, 2}), one_of({1, 1, 2})};
    }
    geometry.pads = {draw(0, r), draw(0, s), draw(0, r), draw(0, s)};
    const std::int64_t h = draw(1, 24), w = draw(1, 24);
    if (h + geometry.pads[0] + geometry.pads[2] < geometry.dilation[0] * (r - 1) + 1) continue;
    if (w + geometry.pads[1] + geometry.pads[3] < geometry.dilation[1] * (s - 1) + 1) continue;
    ConvProblem problem = resolve_conv({draw(1, 3), c, h, w}, {k, c / geometry.groups, r, s}, geometry);
    problem.bias = draw(0, 1) == 0;
    problem.residual = draw(0, 2) == 0;
    if (draw(0, 1) == 0) problem.activation.kind = Activation::Kind::relu;
    return problem;
  }
}

}  // namespace lenslet::test

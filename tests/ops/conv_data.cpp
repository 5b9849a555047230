#include "tests/ops/conv_data.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "ops/conv/conv.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

ConvData judged_by_oracle(std::string op, AttributeList attributes, std::span<const Tensor> inputs) {
  std::vector<oracle::Array> arrays;
  for (const Tensor& input : inputs) arrays.push_back(oracle::from_tensor(input));
  ConvData data;
  data.reference = [=](std::int64_t reach) { return oracle::run(op, attributes, arrays, reach).value().at(0); };
  return data;
}

Tensor normal(const Shape& shape, double deviation, std::mt19937& random, bool rectified) {
  Tensor tensor(DType::f32, shape);
  std::normal_distribution<double> draw(0, deviation);
  for (float& value : tensor.values<float>()) {
    value = static_cast<float>(draw(random));
    if (rectified) value = std::max(value, 0.0F);
  }
  return tensor;
}

ConvData make_conv_data(const ConvProblem& p, std::mt19937& random) {
  ConvData data;
  // Inputs as in networks: after a ReLU, or symmetric. The filters keep the output's magnitude near one.
  const bool rectified = (random() & 1U) != 0;
  const double terms = static_cast<double>(p.group_c() * p.r * p.s);
  data.x = normal({p.n, p.c, p.h, p.w}, rectified ? 1.4 : 1.0, random, rectified).to_dtype(p.x_storage);
  data.w = normal({p.k, p.group_c(), p.r, p.s}, 1 / std::sqrt(terms), random);
  if (p.bias) data.bias = normal({p.k}, 0.5, random);
  if (p.residual) data.residual = normal({p.n, p.k, p.p, p.q}, 0.5, random).to_dtype(p.storage);
  if ((random() & 1U) != 0) {
    std::uniform_real_distribution<float> factor(0.5F, 2.0F);
    for (std::int64_t k = 0; k < p.k; ++k)
      data.scale.push_back((random() & 1U) != 0 ? factor(random) : -factor(random));
  }
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  data.reference = judged_by_oracle("Conv", ConvOp(p, data.scale).attributes(), inputs).reference;
  return data;
}

const oracle::Array& ConvData::exact(std::int64_t reach) const {
  const auto at = computed_.find(reach);
  return at != computed_.end() ? at->second : computed_.emplace(reach, reference(reach)).first->second;
}

void compare(const Tensor& y, const ConvData& data, double tolerance, const std::string& where,
             std::string_view algorithm) {
  const std::vector<double> got = oracle::from_tensor(y.to_format(formats::nchw)).values;
  REQUIRE(y.shape() == data.exact().shape);
  const oracle::Array* exact = &data.exact();
  double worst = 0;
  std::size_t at = 0;
  const auto judge = [&] {
    worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      if (const double error = oracle::error_at(got[i], *exact, i, y.dtype()); error > worst) {
        worst = error;
        at = i;
      }
    return worst <= tolerance;
  };
  if (judge()) return;
  if (const std::int64_t reach = oracle::tile_reach(algorithm); reach > 0) {
    exact = &data.exact(reach);
    if (judge()) return;
  }
  FAIL_CHECK(fmt::format("{}: element {} of {} is {:.9g} instead of {:.9g}: error {:.3g} of {:.3g}, allowed {:.3g}",
                         where, at, y.shape().str(), got[at], exact->values[at], worst, oracle::scale_at(*exact, at),
                         tolerance));
}

bool accepts(const Kernel& algorithm, const ConvProblem& p, const Numerics& numerics) {
  const auto problem = pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s}));
  return algorithm.offer(*problem, {.device = op_runner().profiles(1).at(0), .numerics = numerics}).refusal.empty();
}

void check_conv(std::span<const Kernel* const> algorithms, const ConvProblem& p, unsigned seed, int threads,
                const Numerics& numerics) {
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  for (const Tensor& known : {data.w, Tensor()}) {
    const auto problem = pose(p, known, data.scale);
    const auto run_call = [&](const Call& call) {
      const std::string where =
          fmt::format("{} on {} (seed {}{})", call.str(), p.str(), seed, data.scale.empty() ? "" : ", scaled");
      compare(run_between_guards(op_runner(), call, inputs, where).at(0), data, call.candidate.tolerance, where,
              call.str());
    };
    for (const Kernel* algorithm : algorithms)
      for_each_call(op_runner(), *problem, *algorithm, threads, run_call, numerics);
  }
}

void check_conv(const Kernel& algorithm, const ConvProblem& p, unsigned seed, int threads, const Numerics& numerics) {
  const Kernel* const one[] = {&algorithm};
  check_conv(one, p, seed, threads, numerics);
}

ConvProblem random_problem(std::mt19937& random) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto one_of = [&](std::initializer_list<std::int64_t> list) {
    return *(list.begin() + draw(0, static_cast<std::int64_t>(list.size()) - 1));
  };
  for (;;) {
    ConvGeometry geometry;
    const std::int64_t kind = draw(0, 3);  // depthwise, grouped, dense
    const bool plain = draw(0, 1) == 0;    // accepted by Winograd
    const std::int64_t group_c = kind == 0 ? 1 : kind == 1 ? one_of({2, 3, 4, 4, 8, 8, 16, 20}) : draw(1, 40);
    geometry.groups = kind == 0 ? draw(1, 40) : kind == 1 ? draw(1, 9) : 1;
    const std::int64_t c = geometry.groups * group_c;
    const std::int64_t group_k = kind == 0   ? one_of({1, 1, 1, 2})
                                 : kind == 1 ? one_of({group_c, group_c, 5})
                                             : draw(1, 40);
    const std::int64_t k = geometry.groups * group_k;
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

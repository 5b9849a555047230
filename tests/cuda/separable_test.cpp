// separable in every tile configuration on random problems, compared with the double-precision oracle.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ops/conv/cuda/separable_plan.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/cuda/tf32_rounding.h"
#include "tests/random_seed.h"
#include "tools/measuring/separable_layer.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

using Op = SeparableConvOp;

struct Drawn {
  Tensor inputs[6];
  AttributeList scales;  ///< of filters, as from fold_batch_norm
  ConvData judged;
};

Drawn draw(const SeparableProblem& problem, std::mt19937& random) {
  const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
  Drawn drawn;
  drawn.inputs[Op::input] = normal({d.n, d.c, d.h, d.w}, 1, random).to_dtype(d.storage);
  drawn.inputs[Op::depthwise_filter] = normal({d.c, 1, 3, 3}, 1.0 / 3, random);
  if (d.bias) drawn.inputs[Op::depthwise_bias] = normal({d.c}, 0.5, random);
  drawn.inputs[Op::filter] = normal({p.k, p.c, 1, 1}, 1 / std::sqrt(static_cast<double>(p.c)), random);
  if (p.bias) drawn.inputs[Op::bias] = normal({p.k}, 0.5, random);
  if (p.residual) drawn.inputs[Op::residual] = normal({p.n, p.k, p.p, p.q}, 0.5, random).to_dtype(p.storage);
  if (random() % 2 == 0) {
    std::uniform_real_distribution<double> factor(0.5, 2);
    std::vector<double> first(static_cast<std::size_t>(d.c)), second(static_cast<std::size_t>(p.k));
    for (std::vector<double>* list : {&first, &second})
      for (double& value : *list) value = static_cast<double>(static_cast<float>(factor(random)));
    drawn.scales = {{"depthwise_weight_scale", first}, {"weight_scale", second}};
  }
  AttributeList attributes = separable_attributes(ConvOp(d), ConvOp(p));
  attributes.insert(attributes.end(), drawn.scales.begin(), drawn.scales.end());
  drawn.judged = judged_by_oracle("SeparableConv", attributes, drawn.inputs);
  return drawn;
}

SeparableProblem random_separable(std::mt19937& random) {
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const Activation activations[] = {
      {},
      {Activation::Kind::relu, 0, 0},
      {Activation::Kind::clip, 0, 6},
      {Activation::Kind::silu, 0, 0},
      {Activation::Kind::hard_swish, 1.0F / 6, 0.5F},
  };
  ConvGeometry geometry;
  const std::int64_t stride = between(1, 2), c = between(0, 3) == 0 ? between(1, 200) : 8 * between(1, 40);
  geometry.stride = {stride, stride};
  if (between(0, 3) == 0)
    for (std::int64_t& pad : geometry.pads) pad = between(0, 3);
  else
    geometry.pads.fill(1);
  geometry.groups = c;
  SeparableProblem problem;
  ConvProblem& d = problem.depthwise;
  d = resolve_conv({between(1, 5), c, between(3, 20), between(3, 20)}, {c, 1, 3, 3}, geometry);
  d.bias = between(0, 3) != 0;
  d.activation = activations[between(0, 4)];
  const std::int64_t k = between(0, 2) == 0 ? between(1, 200) : 8 * between(1, 40);
  ConvProblem& p = problem.pointwise;
  p = resolve_conv({d.n, c, d.p, d.q}, {k, c, 1, 1}, {});
  p.bias = between(0, 3) != 0;
  p.residual = between(0, 1) != 0;
  p.activation = activations[between(0, 4)];
  return problem;
}

std::unique_ptr<const Problem> posed(const SeparableProblem& problem, std::span<const Tensor> inputs,
                                     const AttributeList& scales = {}) {
  return pose(problem, inputs[Op::depthwise_filter], inputs[Op::depthwise_bias], inputs[Op::filter], inputs[Op::bias],
              scales);
}

void check(const SeparableProblem& problem, unsigned seed, std::size_t most_tilings) {
  std::mt19937 random(seed);
  const Drawn drawn = draw(problem, random);
  const auto node = posed(problem, drawn.inputs, drawn.scales);
  const OnDevice kernel(kernel_named("SeparableConv", "separable"), *node, numerics_of(problem.depthwise.storage),
                        drawn.inputs, fmt::format("{} (seed {})", problem.str(), seed));
  const std::string& planned = kernel.planned().config;
  std::vector<Tiling> tilings{{planned, "planned"}};
  if (problem.pointwise.residual) tilings.push_back({.config = planned, .bits = "planned", .in_place = Op::residual});
  std::vector<SeparableTiling> others = separable_tilings(problem, kernel.device());
  std::shuffle(others.begin(), others.end(), random);
  for (std::size_t i = 0; i < std::min(others.size(), most_tilings); ++i) {
    if (i % 3 == 0) others[i].blocks = (others[i].blocks + 2) / 3;  // the most rounds possible
    tilings.push_back({others[i].str(), others[i].str()});
  }
  check_tilings(kernel, drawn.judged, tilings);
}

}  // namespace

TEST_CASE("cuda/separable/drawn") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const DType types[] = {DType::f16, DType::bf16, DType::f32};
  for (int i = 0; i < (reduced() ? 9 : 60); ++i)
    check(stored(random_separable(random), types[i % 3]), seed + static_cast<unsigned>(i), reduced() ? 3 : 8);
}

// The distinct layers of MobileNetV2, at a batch size at which blocks process several items.
TEST_CASE("cuda/separable/mobilenet_v2") {
  struct Row {
    std::int64_t n;
    SeparableLayer layer;
  };
  const Row rows[] = {{1, {32, 112, 1, 16}},  {3, {96, 112, 2, 24}},       {2, {144, 56, 1, 24, true}},
                      {1, {144, 56, 2, 32}},  {5, {192, 28, 2, 64}},       {1, {576, 14, 1, 96, true}},
                      {9, {576, 14, 2, 160}}, {1, {960, 7, 1, 160, true}}, {33, {960, 7, 1, 320}}};
  const unsigned seed = random_seed();
  for (const Row& row : rows) {
    if (reduced() && row.n * row.layer.c > 600) continue;
    for (const DType storage : {DType::f16, DType::f32})
      check(stored(row.layer.problem(row.n), storage), seed, reduced() ? 1 : 3);
  }
}

// Both filters copy: y is the 3x3's result as rounded for the 1x1.
TEST_CASE("cuda/separable/what_lies_between_is_rounded_to_the_nearest_tf32") {
  const SeparableProblem problem = [] {
    SeparableProblem of = SeparableLayer{40, 13, 1, 40}.problem(2);
    for (ConvProblem* half : {&of.depthwise, &of.pointwise}) {
      half->bias = false;
      half->activation = {};
    }
    return of;
  }();
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const ConvProblem& d = problem.depthwise;
  Tensor inputs[6];
  inputs[Op::input] = normal({d.n, d.c, d.h, d.w}, 1, random);
  Tensor& taps = inputs[Op::depthwise_filter] = Tensor(DType::f32, {d.c, 1, 3, 3});
  for (std::size_t i = 0; i < taps.values<float>().size(); ++i) taps.values<float>()[i] = i % 9 == 4 ? 1.0F : 0.0F;
  Tensor& filters = inputs[Op::filter] = Tensor(DType::f32, {d.c, d.c, 1, 1});
  const auto next = static_cast<std::size_t>(d.c) + 1;
  for (std::size_t i = 0; i < filters.values<float>().size(); ++i)
    filters.values<float>()[i] = i % next == 0 ? 1.0F : 0.0F;
  const auto node = posed(problem, inputs);
  const OnDevice kernel(kernel_named("SeparableConv", "separable"), *node, parse_numerics("tf32"), inputs,
                        problem.str());
  for (const SeparableTiling& tiling : separable_tilings(problem, kernel.device())) {
    const OnDevice::Ran ran = kernel.run(tiling.str());
    const std::size_t wrong = not_rounded_to_tf32(inputs[Op::input].values<float>(), ran.y.values<float>());
    CHECK_MESSAGE(wrong == 0, ran.where, ", seed ", seed, ": ", wrong, " numbers");
  }
}

}  // namespace lenslet::test

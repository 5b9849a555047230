// wgmma_preactivated and wgmma_layer_norm in every tile configuration, compared with the double-precision oracle.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ops/conv/cuda/wgmma_preactivated.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;
using Op = PreactivatedConvOp;

/// Activations before the convolution: none, and both kinds of limits.
AttributeList drawn_activation(std::mt19937& random) {
  const Activation activations[] = {{}, {Activation::Kind::relu, 0, 0}, {Activation::Kind::clip, -0.25, 1.5}};
  return preactivation_attributes(activations[random() % 3]);
}

/// Every tiling on these inputs.
void check_all(const ConvProblem& p, const AttributeList& attributes, std::span<const Tensor> inputs, double epsilon,
               unsigned seed) {
  const ConvData judged = judged_by_oracle("PreactivatedConv", attributes, inputs);

  std::vector<InputInfo> infos;
  for (const Tensor& input : inputs) {
    const bool there = input.shape().rank() > 0, computed = infos.empty() || infos.size() == Op::residual;
    infos.push_back({.present = there,
                     .type = {there ? input.dtype() : DType::f32, there ? input.shape() : Shape()},
                     .constant = there && !computed ? &input : nullptr});
  }
  const Problem node(make_normalised_op("PreactivatedConv", attributes, infos.size()), infos,
                     {{p.storage, {p.n, p.k, p.p, p.q}}});
  const char* const name = epsilon < 0 ? "wgmma_preactivated" : "wgmma_layer_norm";
  const OnDevice kernel(kernel_named("PreactivatedConv", name), node, numerics_of(p.storage), inputs,
                        fmt::format("{} (seed {})", node.as<Op>().describe(node.inputs()), seed));
  std::vector<Tiling> tilings;
  for (const WgmmaGemmPlan& plan :
       preactivated_tilings({.conv = p, .activation = {}, .epsilon = static_cast<float>(epsilon)}))
    tilings.push_back({plan.str(), "all"});
  check_tilings(kernel, judged, tilings, 1);
  // Not among other channels: the residual's pixels are not padded.
  if (p.residual)
    check_tilings(kernel, judged, std::vector<Tiling>{{.config = kernel.planned().config, .in_place = Op::residual}},
                  0);
}

/// x has the mean `mean` in each pixel. `epsilon`: of a LayerNormalization; below 0: a BatchNormalization.
void check(ConvProblem p, DType storage, unsigned seed, double epsilon = -1, float mean = 0) {
  std::mt19937 random(seed);
  p.storage = p.x_storage = storage;
  AttributeList attributes = ConvOp(p).attributes();
  if (epsilon < 0)
    for (const auto& attribute : drawn_activation(random)) attributes.push_back(attribute);
  else
    attributes.emplace_back("x_epsilon", epsilon);
  std::vector<double> scale(static_cast<std::size_t>(p.k));
  std::uniform_real_distribution<double> factor(0.5, 2);
  for (double& value : scale) value = static_cast<double>(static_cast<float>(factor(random)));
  if (random() % 2 == 0) attributes.emplace_back("weight_scale", scale);  // as from fold_batch_norm

  Tensor inputs[6];
  Tensor x = normal({p.n, p.c, p.h, p.w}, 1, random);
  for (float& value : x.values<float>()) value += mean;
  inputs[Op::input] = x.to_dtype(storage);
  inputs[Op::scale] = normal({p.c}, 1, random);
  inputs[Op::shift] = normal({p.c}, 0.5, random);
  inputs[Op::filter] = normal({p.k, p.c, 1, 1}, 1 / std::sqrt(static_cast<double>(p.c)), random);
  const Shape y{p.n, p.k, p.p, p.q};
  if (p.bias) inputs[Op::bias] = normal({p.k}, 0.5, random);
  if (p.residual) inputs[Op::residual] = normal(y, 0.5, random).to_dtype(storage);
  check_all(p, attributes, inputs, epsilon, seed);
}

}  // namespace

// Channels and filters that end within vectors, k-blocks and tiles; strides; more tiles than multiprocessors, so that
// stages and staging boxes cycle.
HOPPER_CASE("cuda/preactivated/every_tiling") {
  const unsigned seed = random_seed();
  unsigned draw = seed;
  for (const ConvProblem& p : convs({
           "1x64x16x16 -> 64, 1x1 s1 p0 g1",
           "1x8x3x3 -> 8, 1x1 s1 p0 g1 +bias",
           "3x256x13x11 -> 328, 1x1 s1 p0 g1 +bias +residual +relu",
           "2x200x14x14 -> 72, 1x1 s2 p0 g1 +bias +residual",
           "2x100x14x13 -> 100, 1x1 s2x1 p0 g1 +bias +relu",
           "1x65x8x8 -> 63, 1x1 s1 p0 g1",
           "1x270x7x7 -> 131, 1x1 s1 p0 g1 +bias +residual +silu",
           "12x72x61x60 -> 264, 1x1 s1 p0 g1 +bias +residual +hard_swish",
           "9x20x61x60 -> 13, 1x1 s1 p0 g1 +bias +residual +relu",
           "64x512x7x7 -> 2048, 1x1 s1 p0 g1 +bias",
       }))
    for (const DType storage : {DType::f16, DType::bf16}) check(p, storage, draw++);
}

HOPPER_CASE("cuda/preactivated/drawn") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (unsigned i = 0; i < (reduced() ? 6 : 60); ++i) {
    ConvGeometry geometry;
    geometry.stride = {between(1, 2), between(1, 2)};
    const std::int64_t c = between(0, 3) == 0 ? between(1, 400) : 8 * between(1, 60), k = between(1, 500);
    ConvProblem p = resolve_conv({between(1, 5), c, between(1, 30), between(1, 30)}, {k, c, 1, 1}, geometry);
    p.bias = between(0, 3) != 0;
    p.residual = between(0, 1) != 0;
    if (between(0, 1) != 0) p.activation = {Activation::Kind::relu, 0, 0};
    check(p, i % 2 == 0 ? DType::f16 : DType::bf16, seed + i);
  }
}

// Channels that end within k-blocks, few and many of them, filters that end within tiles and vectors; rows whose mean
// is far larger than their deviation.
HOPPER_CASE("cuda/layer_norm_conv/every_tiling") {
  const unsigned seed = random_seed();
  unsigned draw = seed;
  for (const ConvProblem& p : convs({
           "1x64x16x16 -> 64, 1x1 s1 p0 g1",
           "1x8x3x3 -> 8, 1x1 s1 p0 g1 +bias",
           "2x96x13x11 -> 288, 1x1 s1 p0 g1 +bias +gelu",
           "1x384x1x197 -> 1152, 1x1 s1 p0 g1 +bias",
           "1x40x14x13 -> 101, 1x1 s1 p0 g1 +bias +relu",
           "3x72x31x30 -> 264, 1x1 s1 p0 g1 +silu",
           "1x768x7x7 -> 3000, 1x1 s1 p0 g1 +bias",
       }))
    for (const DType storage : {DType::f16, DType::bf16})
      for (const float mean : {0.0F, 60.0F}) check(p, storage, draw++, 1e-5, mean);
}

HOPPER_CASE("cuda/layer_norm_conv/rows_of_one_number_give_the_shift") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  Tensor inputs[6];
  inputs[Op::scale] = normal({72}, 1, random);
  inputs[Op::shift] = normal({72}, 1, random);
  inputs[Op::filter] = normal({40, 72, 1, 1}, 0.1, random);
  ConvProblem p = resolve_conv({1, 72, 9, 9}, {40, 72, 1, 1}, {});
  p.storage = p.x_storage = DType::f16;
  const auto check_rows = [&](const auto& number_of, double epsilon) {
    Tensor x(DType::f32, {1, 72, 9, 9});
    const auto values = x.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = number_of(i % 81);
    inputs[Op::input] = x.to_dtype(DType::f16);
    AttributeList attributes = ConvOp(p).attributes();
    attributes.emplace_back("x_epsilon", epsilon);
    check_all(p, attributes, inputs, epsilon, seed);
  };
  check_rows([](std::size_t) { return 0.0F; }, 1e-6);
  // The products, and the mean times the sum of a filter, differ by float32's rounding, which 1 / sqrt(epsilon)
  // multiplies.
  check_rows([](std::size_t pixel) { return static_cast<float>(pixel) - 40; }, 1e-2);
}

}  // namespace lenslet::test

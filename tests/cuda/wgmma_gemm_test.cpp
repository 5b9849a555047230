// wgmma_gemm cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/convert.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/core/sum_tolerance.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

Tensor as(DType dtype, const Tensor& tensor) {
  if (tensor.empty()) return tensor;
  Tensor converted(dtype, tensor.shape());
  convert_elements(tensor.dtype(), tensor.data(), dtype, converted.data(), tensor.shape().elems());
  return converted;
}

void check_cuts(ConvProblem p, DType storage, unsigned seed) {
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  p.storage = p.x_storage = storage;
  const Tensor inputs[] = {as(storage, data.x), data.w, data.bias, as(storage, data.residual)};
  const auto problem = pose(p, data.w, data.scale);
  const DeviceProfile device = op_runner().profiles(1).at(0);
  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, "wgmma_gemm");
  const Offer offer = algorithm.offer(*problem, {.device = device});
  REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
  Candidate candidate = offer.candidates.at(0);
  // What is stated, once more because x is rounded here, too, and what residual and y lose where they are 5 rms large.
  const double tolerance = 2 * candidate.tolerance + 10 * unit_roundoff(storage);
  Tensor first;
  for (std::size_t tile = 0; tile < wgmma_tiles.size(); ++tile)
    for (const int cluster : {1, 2}) {
      candidate.config = cut_wgmma(p, static_cast<WgmmaTile>(tile), cluster).str();
      const std::string where = fmt::format("{} (seed {}, {})", p.str(), seed, candidate.config);
      const Call call{.problem = *problem, .kernel = algorithm, .candidate = candidate, .device = device};
      const Tensor y = run_between_guards(op_runner(), call, inputs, where).at(0);
      compare(as(DType::f32, y), data, tolerance, where);
      if (first.empty()) first = y;
      CHECK_MESSAGE(std::memcmp(first.data(), y.data(), y.bytes()) == 0, where, ": other bits than another tile's");
      if (!candidate.pitched_output) continue;
      candidate.outputs[0].pixel_pitch = p.k + 16;
      const Tensor among_others = run_between_guards(op_runner(), call, inputs, where).at(0);
      CHECK_MESSAGE(std::memcmp(among_others.data(), y.data(), y.bytes()) == 0, where,
                    ": other bits among other channels");
      candidate.outputs[0].pixel_pitch = 0;
    }
}

ConvProblem activated(ConvProblem problem, Activation activation) {
  problem.bias = true;
  problem.activation = activation;
  return problem;
}
ConvProblem fused(ConvProblem problem, Activation activation) {
  problem.residual = true;
  return activated(problem, activation);
}

}  // namespace

TEST_CASE("cuda/wgmma_gemm/every_cut") {
  const DeviceProfile device = op_runner().profiles(1).at(0);
  if (device.capability != 90 || !device.clusters) return;
  const unsigned seed = std::random_device{}();
  const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};
  const Activation clip{Activation::Kind::clip, -0.5F, 0.75F}, hard_swish{Activation::Kind::hard_swish, 1.0F / 6, 0.5F};
  // One step, pointwise; several tiles both ways, none full at the end, and an odd number of them; channels that end
  // within a step; strides, dilations and pads of different width; more tiles than multiprocessors, so that stages and
  // buffers of results go round through several, with parts that lie outside of y.
  const ConvProblem problems[] = {
      resolve_conv({1, 64, 16, 16}, {64, 64, 1, 1}, {}),
      resolve_conv({1, 8, 3, 3}, {8, 8, 1, 1}, {}),
      fused(resolve_conv({3, 256, 13, 11}, {328, 256, 1, 1}, {}), relu),
      resolve_conv({1, 64, 16, 16}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}}),
      fused(resolve_conv({2, 72, 23, 22}, {136, 72, 3, 3}, {.stride = {1, 2}, .pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({5, 40, 17, 19}, {264, 40, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}}), relu),
      fused(resolve_conv({2, 200, 14, 14}, {72, 200, 1, 1}, {.stride = {2, 2}}), {}),
      fused(resolve_conv({12, 64, 60, 60}, {128, 64, 3, 3}, {.pads = {1, 1, 1, 1}}), relu),
      fused(resolve_conv({12, 16, 61, 60}, {96, 16, 1, 1}, {}), clip),
      fused(resolve_conv({12, 72, 61, 60}, {264, 72, 1, 1}, {}), hard_swish),
      activated(resolve_conv({7, 64, 61, 60}, {264, 64, 1, 1}, {}), clip),
      activated(resolve_conv({7, 64, 61, 60}, {72, 64, 1, 1}, {}), silu),
  };
  for (const ConvProblem& p : problems)
    for (const DType storage : {DType::f16, DType::bf16}) check_cuts(p, storage, seed);
}

// Functions that are approximate for results of 16 bits, where they have limits, and NaN.
TEST_CASE("cuda/wgmma_gemm/activations_of_special_numbers") {
  const DeviceProfile device = op_runner().profiles(1).at(0);
  if (device.capability != 90 || !device.clusters) return;
  using Kind = Activation::Kind;
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::array numbers{0.0F,  -0.0F,  1.0F,     -1.0F,     5.0F,  -5.0F, 0x1p-12F, -0x1p-12F,
                           20.0F, -20.0F, 16384.0F, -16384.0F, 90.0F, inf,   -inf,     std::nanf("")};
  // Each number at a pixel, and every filter gives it back.
  ConvProblem p = resolve_conv({1, 8, 4, 4}, {8, 8, 1, 1}, {});
  Tensor x(DType::f32, {1, 8, 4, 4}), w(DType::f32, {8, 8, 1, 1});
  std::ranges::fill(x.values<float>(), 0.0F);
  std::ranges::fill(w.values<float>(), 0.0F);
  std::ranges::copy(numbers, x.values<float>().begin());
  for (std::size_t k = 0; k < 8; ++k) w.values<float>()[k * 8] = 1;

  const Kernel& algorithm = *find_kernel("Conv", DeviceKind::cuda, "wgmma_gemm");
  for (const Activation& activation : {Activation{},
                                       {Kind::relu, 0, 0},
                                       {Kind::clip, -2, 6},
                                       {Kind::leaky_relu, 0.125F, 0},
                                       {Kind::sigmoid, 0, 0},
                                       {Kind::silu, 0, 0},
                                       {Kind::hard_swish, 1.0F / 6, 0.5F},
                                       {Kind::hard_sigmoid, 0.25F, 0.5F}})
    for (const DType storage : {DType::f16, DType::bf16}) {
      p.activation = activation;
      p.storage = p.x_storage = storage;
      const Tensor inputs[] = {as(storage, x), w, Tensor(), Tensor()};
      const auto problem = pose(p, w);
      const Offer offer = algorithm.offer(*problem, {.device = device});
      REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
      const Call call{.problem = *problem, .kernel = algorithm, .candidate = offer.candidates.at(0), .device = device};
      const Tensor y = run_between_guards(op_runner(), call, inputs, p.str()).at(0);
      const std::vector<double> got = oracle::from_tensor(y.to_format(formats::nchw)).values;
      REQUIRE(got.size() == 8 * numbers.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double exact = apply(activation, double{numbers[i % numbers.size()]});
        const double error = oracle::error_beyond_rounding(got[i], exact, storage);
        CHECK_MESSAGE((error == 0 || error <= 0x1p-16 * std::abs(exact) + 1e-30), to_string(activation), " of ",
                      numbers[i % numbers.size()], " in ", to_string(storage), " is ", got[i]);
      }
    }
}

}  // namespace lenslet::test

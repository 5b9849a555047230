// wgmma_tf32 cut in every way there are kernels for, and how it rounds: the planner takes one way a problem,
// conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

constexpr Numerics tf32{.multiply = Numerics::Multiply::tf32};

const Kernel& wgmma_tf32() { return *find_kernel("Conv", DeviceKind::cuda, "wgmma_tf32"); }

bool can_run() {
  const DeviceProfile device = op_runner().profiles(1).at(0);
  return device.capability == 90 && device.clusters;
}

void check_cuts(const ConvProblem& p, unsigned seed) {
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  const auto problem = pose(p, data.w, data.scale);
  const DeviceProfile device = op_runner().profiles(1).at(0);
  const Offer offer = wgmma_tf32().offer(*problem, {.device = device, .numerics = tf32});
  REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
  Candidate candidate = offer.candidates.at(0);
  Tensor first;
  for (std::size_t tile = 0; tile < wgmma_tiles.size(); ++tile) {
    candidate.config = cut_wgmma_tf32(p, static_cast<WgmmaTile>(tile)).str();
    const std::string where = fmt::format("{} (seed {}, {})", p.str(), seed, candidate.config);
    const Call call{.problem = *problem, .kernel = wgmma_tf32(), .candidate = candidate, .device = device};
    const Tensor y = run_between_guards(op_runner(), call, inputs, where).at(0);
    compare(y, data, candidate.tolerance, where);
    if (first.empty()) first = y;
    CHECK_MESSAGE(std::memcmp(first.data(), y.data(), y.bytes()) == 0, where, ": other bits than another tile's");
  }
}

ConvProblem fused(ConvProblem problem, Activation activation) {
  problem.bias = problem.residual = true;
  problem.activation = activation;
  return problem;
}

/// y of filters that are ones on the diagonal of their middle tap: x as it was multiplied.
Tensor copied(const ConvProblem& p, const Tensor& x) {
  Tensor w(DType::f32, {p.k, p.c, p.r, p.s});
  std::fill(w.values<float>().begin(), w.values<float>().end(), 0.0F);
  for (std::int64_t k = 0; k < p.k; ++k)
    w.values<float>()[static_cast<std::size_t>(((k * p.c + k) * p.r + p.r / 2) * p.s + p.s / 2)] = 1;
  const auto problem = pose(p, w);
  const DeviceProfile device = op_runner().profiles(1).at(0);
  const Offer offer = wgmma_tf32().offer(*problem, {.device = device, .numerics = tf32});
  REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
  const Call call{.problem = *problem, .kernel = wgmma_tf32(), .candidate = offer.candidates.at(0), .device = device};
  const Tensor inputs[] = {x, w, Tensor(), Tensor()};
  return run_between_guards(op_runner(), call, inputs, p.str()).at(0);
}

}  // namespace

TEST_CASE("cuda/wgmma_tf32/every_cut") {
  if (!can_run()) return;
  const unsigned seed = std::random_device{}();
  const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};
  // One step, pointwise; several tiles both ways, none full at the end, and an odd number of them; channels that end
  // within a step; strides, dilations and pads of different width; more tiles than multiprocessors, so that stages go
  // round through several.
  const ConvProblem problems[] = {
      resolve_conv({1, 32, 16, 16}, {64, 32, 1, 1}, {}),
      resolve_conv({1, 4, 3, 3}, {4, 4, 1, 1}, {}),
      fused(resolve_conv({3, 256, 13, 11}, {324, 256, 1, 1}, {}), relu),
      resolve_conv({1, 64, 16, 16}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}}),
      fused(resolve_conv({2, 36, 23, 22}, {132, 36, 3, 3}, {.stride = {1, 2}, .pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({5, 20, 17, 19}, {260, 20, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}}), relu),
      fused(resolve_conv({2, 100, 14, 14}, {68, 100, 1, 1}, {.stride = {2, 2}}), {}),
      fused(resolve_conv({12, 32, 60, 60}, {128, 32, 3, 3}, {.pads = {1, 1, 1, 1}}), relu),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

TEST_CASE("cuda/wgmma_tf32/windows_are_rounded_to_nearest") {
  if (!can_run()) return;
  // By both kinds of copies.
  for (const ConvProblem& p : {resolve_conv({2, 64, 12, 12}, {64, 64, 1, 1}, {}),
                               resolve_conv({2, 64, 12, 12}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}})}) {
    const unsigned seed = std::random_device{}();
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Tensor x(DType::f32, {p.n, p.c, p.h, p.w});
    for (float& value : x.values<float>()) value = normal(random);
    const Tensor y = copied(p, x);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
      // The nearest number of 10 mantissa bits; of two, either.
      const double exact = x.values<float>()[i], got = y.values<float>()[i];
      const bool short_enough = (std::bit_cast<std::uint32_t>(y.values<float>()[i]) & 0x1FFFU) == 0;
      if (!short_enough || std::abs(got - exact) > std::ldexp(1, std::ilogb(exact) - 11)) ++wrong;
    }
    CHECK_MESSAGE(wrong == 0, p.str(), ", seed ", seed);
  }
}

TEST_CASE("cuda/wgmma_tf32/what_is_not_finite_stays_so") {
  if (!can_run()) return;
  const ConvProblem p = resolve_conv({1, 32, 8, 8}, {32, 32, 1, 1}, {});
  Tensor x(DType::f32, {p.n, p.c, p.h, p.w});
  std::fill(x.values<float>().begin(), x.values<float>().end(), 1.0F);
  // The NaN that the device makes has all bits that rounding could carry out of; that of the host has one.
  x.values<float>()[0] = std::bit_cast<float>(0x7FFFFFFFU);
  x.values<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  x.values<float>()[2] = std::numeric_limits<float>::infinity();
  const Tensor y = copied(p, x);
  CHECK(std::isnan(y.values<float>()[0]));
  CHECK(std::isnan(y.values<float>()[1]));
  CHECK(y.values<float>()[2] == std::numeric_limits<float>::infinity());
  CHECK(y.values<float>()[3] == 1);
}

}  // namespace lenslet::test

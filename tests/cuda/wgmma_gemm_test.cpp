// wgmma_gemm in every compiled tile configuration. The planner's choice is tested by conv_test.cpp.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "oracle/oracle.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/cuda/wgmma_problems.h"
#include "tests/ops/exact_activation.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// Bits depend on the order of accumulation: split-K factor, k-blocks, and the set of groups, which moves channels.
std::string bits_of(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const bool whole_groups = plan.split_k == 0 && plan.k_groups_per_block == 1;
  if (whole_groups && goes_by_channels(group_set(p, plan.together))) return fmt::format("channels {}", plan.together);
  return plan.split_k <= 1 ? fmt::format("set {}", plan.together) : fmt::format("{} {}", plan.split_k, plan.width);
}

/// Configurations that `wanted` selects, in both types.
void check_tilings(const ConvProblem& p, unsigned seed, const std::function<bool(const WgmmaGemmPlan&)>& wanted) {
  const auto tilings_of = [&](const Planned& planned) {
    std::vector<Tiling> tilings;
    for (const WgmmaGemmPlan& plan : wgmma_tilings(planned.problem))
      if (wanted(plan)) tilings.push_back({plan.str(), bits_of(planned.problem, plan)});
    return tilings;
  };
  for (const char* const precision : {"fp16", "bf16"})
    test::check_tilings("wgmma_gemm", p, precision, seed, tilings_of, 1);
}

bool persistent(const WgmmaGemmPlan& plan) { return plan.split_k == 0 && plan.width == wgmma_step; }
bool has_split_k(const WgmmaGemmPlan& plan) { return plan.split_k > 0 && plan.width == wgmma_step; }
bool narrow(const WgmmaGemmPlan& plan) { return plan.width != wgmma_step; }

ConvProblem as_halves(ConvProblem problem) {
  problem.storage = problem.x_storage = DType::f16;
  return problem;
}

// One k-block, pointwise; an odd number of partial tiles in both dimensions; channels that end within a k-block;
// strides, dilations and uneven pads; more tiles than multiprocessors, so that stages and staging boxes cycle through
// several, with parts outside y.
std::vector<ConvProblem> problems() {
  return convs({
      "1x64x16x16 -> 64, 1x1 s1 p0 g1",
      "1x8x3x3 -> 8, 1x1 s1 p0 g1",
      "3x256x13x11 -> 328, 1x1 s1 p0 g1 +bias +residual +relu",
      "1x64x16x16 -> 64, 3x3 s1 p1 g1",
      "2x72x23x22 -> 136, 3x3 s1x2 p1,0,2,1 g1 +bias +residual +silu",
      "5x40x17x19 -> 264, 3x2 s1 p2,1,1,3 g1 d2x3 +bias +residual +relu",
      "2x200x14x14 -> 72, 1x1 s2 p0 g1 +bias +residual",
      "12x64x60x60 -> 128, 3x1 s1 p1x0 g1 +bias +residual +relu",
      "12x16x61x60 -> 96, 1x1 s1 p0 g1 +bias +residual +clip(-0.5,0.75)",
      "12x72x61x60 -> 264, 1x1 s1 p0 g1 +bias +residual +hard_swish",
      "7x64x61x60 -> 264, 1x1 s1 p0 g1 +bias +clip(-0.5,0.75)",
      "7x64x61x60 -> 72, 1x1 s1 p0 g1 +bias +silu",
  });
}

// Channels and filters that need padding to 16 bytes; the padding channels hold NaN. One more and one less than whole
// vectors, odd numbers, and fewer than a vector.
std::vector<ConvProblem> padded_problems() {
  return convs({
      "1x65x8x8 -> 63, 1x1 s1 p0 g1",
      "2x100x14x13 -> 100, 3x3 s1 p1 g1 +bias +relu",
      "2x58x28x28 -> 58, 1x1 s1 p0 g1 +bias +residual +clip(-0.5,0.75)",
      "3x33x13x11 -> 65, 3x2 s2x1 p1,0,2,1 g1 +bias +residual +silu",
      "2x12x30x31 -> 21, 3x3 s1 p2x1 g1 d2x1 +bias +residual +relu",
      "2x6x30x31 -> 6, 4x4 s1 p2,1,1,2 g1 +bias +residual +hard_swish",
      "3x3x9x9 -> 1, 3x3 s1 p1 g1 +bias +relu",
      "9x20x61x60 -> 13, 1x1 s1 p0 g1 +bias +residual +relu",
      "1x270x7x7 -> 131, 3x3 s1 p1 g1 +bias +residual +relu",
  });
}

}  // namespace

HOPPER_CASE("cuda/wgmma_gemm/sets") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems_with_groups()) check_tilings(p, seed, [](const WgmmaGemmPlan&) { return true; });
}

HOPPER_CASE("cuda/wgmma_gemm/persistent") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems()) check_tilings(p, seed, persistent);
}

// Several groups of channels, each with all taps; then more tiles than multiprocessors.
HOPPER_CASE("cuda/wgmma_gemm/by_channels") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({"3x136x21x18 -> 72, 3x2 s2x1 p1,0,2,1 g1 d1x2 +bias +residual +silu",
                                     "40x72x29x30 -> 136, 3x3 s2 p1 g1 +bias +relu"}))
    check_tilings(p, seed, persistent);
}

// A tap's last channels by one and two instructions (KTail), in every tile, full and partial: by channels, with filters
// that stay in their stages and that are reloaded, with padding channels; and adjacent group sets.
HOPPER_CASE("cuda/wgmma_gemm/tails") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x80x8x8 -> 64, 1x2 s1 p0 g1",
           "2x96x15x17 -> 136, 7x1 s1 p3x0 g1 +bias +relu",
           "2x160x17x15 -> 200, 1x7 s1 p0x3 g1 +bias +silu",
           "3x90x21x18 -> 104, 3x2 s2 p1,0,2,1 g1 d1x2 +bias +clip(-0.5,0.75)",
           "2x141x14x13 -> 65, 2x2 s1 p1 g1 +bias +hard_swish",
           "12x72x61x60 -> 24, 2x1 s1 p0 g1 +bias +relu",
           "9x80x61x60 -> 24, 2x2 s1 p1 g1 +bias +relu",
           "2x144x15x13 -> 192, 3x3 s2x1 p1 g2 +bias +relu",
       })) {
    CHECK(KTail(as_halves(group_set(p, 1)), wgmma_step).exists());
    check_tilings(p, seed, persistent);
  }
}

HOPPER_CASE("cuda/wgmma_gemm/split_k") {
  const unsigned seed = random_seed();
  // Each adds one feature to the one before: one tile of 64x64 with two k-blocks; a tile with a single pixel and eight
  // filters; more k-blocks than stages, and an odd number of them.
  for (const ConvProblem& p : convs({
           "1x128x8x8 -> 64, 1x1 s1 p0 g1",
           "1x512x1x1 -> 8, 1x1 s1 p0 g1 +bias +relu",
           "1x2048x7x7 -> 512, 1x1 s1 p0 g1 +bias +residual +relu",
           "1x72x7x7 -> 200, 3x3 s1 p1 g1 +bias +residual +hard_swish",
           // ResNet-50's at batch 1.
           "1x512x7x7 -> 512, 3x3 s1 p1 g1 +bias +relu",
           "1x256x14x14 -> 256, 3x3 s1 p1 g1 +bias +clip(-0.5,0.75)",
           "1x512x14x14 -> 512, 3x3 s2 p1 g1 +bias +residual +silu",
       }))
    check_tilings(p, seed, has_split_k);
  for (const ConvProblem& p : problems()) check_tilings(p, seed, has_split_k);
}

HOPPER_CASE("cuda/wgmma_gemm/room") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : padded_problems()) check_tilings(p, seed, [](const WgmmaGemmPlan&) { return true; });
}

// All configurations, to compare bits with those of k-blocks of 64 channels.
HOPPER_CASE("cuda/wgmma_gemm/narrow") {
  const unsigned seed = random_seed();
  const auto narrow_and_one = [](const WgmmaGemmPlan& plan) {
    return narrow(plan) || (plan.tile == WgmmaTile::t128x64 && persistent(plan));
  };
  // One group of 16 and of 32 channels; half and three quarters of it; two and four groups a k-block, with a partial
  // last one; several groups of channels, the last padded with zeros; then the features of problems().
  for (const ConvProblem& p : convs({
           "1x16x8x8 -> 64, 1x1 s1 p0 g1",
           "1x32x8x8 -> 64, 1x1 s1 p0 g1",
           "1x8x9x9 -> 24, 1x1 s1 p0 g1 +bias +residual +relu",
           "2x24x28x28 -> 144, 1x1 s1 p0 g1 +bias +residual +clip(-0.5,0.75)",
           "1x16x8x8 -> 64, 2x2 s1 p0 g1",
           "1x32x8x8 -> 64, 1x2 s1 p0 g1",
           "1x16x55x55 -> 64, 3x3 s1 p1 g1 +bias +relu",
           "2x32x27x27 -> 128, 3x3 s1 p1 g1 +bias +relu",
           "2x24x15x14 -> 72, 3x3 s2x1 p1,0,2,1 g1 +bias +residual +silu",
           "1x8x21x20 -> 40, 5x3 s1 p4,2,3,1 g1 d2x3 +bias +residual +hard_swish",
           "1x80x19x17 -> 136, 1x1 s1 p0 g1 +bias +residual +relu",
           "1x40x19x17 -> 264, 3x3 s1 p1 g1 +bias +residual +relu",
           "24x16x61x60 -> 64, 3x3 s1 p1 g1 +bias +residual +clip(-0.5,0.75)",
           "24x32x61x60 -> 192, 1x1 s1 p0 g1 +bias +relu",
       }))
    check_tilings(p, seed, narrow_and_one);
  for (const ConvProblem& p : problems())
    if (wgmma_tilings(p).back().width != wgmma_step) check_tilings(p, seed, narrow_and_one);
}

// The zeros that fill up a k-block must come from both operands: other elements of x may be infinite.
HOPPER_CASE("cuda/wgmma_gemm/infinities_stay_where_they_are") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const ConvProblem p = as_halves(parse_conv("1x16x6x6 -> 8, 3x3 s1 p0 g1"));
  Tensor x(DType::f32, {1, 16, 6, 6}), w(DType::f32, {8, 16, 3, 3});
  std::ranges::fill(x.values<float>(), 1.0F);
  std::ranges::fill(w.values<float>(), 0.5F);
  x.values<float>()[0] = inf;  // in the first window only
  for (const WgmmaGemmPlan& plan : wgmma_tilings(p)) {
    if (!asked_for(plan.str())) continue;
    CAPTURE(plan.str());
    const std::vector<double> got = oracle::from_tensor(convolved("wgmma_gemm", p, "fp16", x, w, plan.str())).values;
    REQUIRE(got.size() == 8 * 16);
    bool right = true;
    for (std::size_t i = 0; i < got.size(); ++i) right = right && (i % 16 == 0 ? got[i] == double{inf} : got[i] == 72);
    CHECK(right);
  }
}

// Approximate functions for 16-bit results at their limits, and NaN.
HOPPER_CASE("cuda/wgmma_gemm/activations_of_special_numbers") {
  using Kind = Activation::Kind;
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::array numbers{0.0F,  -0.0F,  1.0F,     -1.0F,     5.0F,  -5.0F, 0x1p-12F, -0x1p-12F,
                           20.0F, -20.0F, 16384.0F, -16384.0F, 90.0F, inf,   -inf,     std::nanf("")};
  // One number for each pixel, which every filter copies.
  ConvProblem p = parse_conv("1x8x4x4 -> 8, 1x1 s1 p0 g1");
  Tensor x(DType::f32, {1, 8, 4, 4}), w(DType::f32, {8, 8, 1, 1});
  std::ranges::fill(x.values<float>(), 0.0F);
  std::ranges::fill(w.values<float>(), 0.0F);
  std::ranges::copy(numbers, x.values<float>().begin());
  for (std::size_t k = 0; k < 8; ++k) w.values<float>()[k * 8] = 1;

  for (const Activation& activation : {Activation{},
                                       {Kind::relu, 0, 0},
                                       {Kind::clip, -2, 6},
                                       {Kind::leaky_relu, 0.125F, 0},
                                       {Kind::sigmoid, 0, 0},
                                       {Kind::silu, 0, 0},
                                       {Kind::hard_swish, 1.0F / 6, 0.5F},
                                       {Kind::hard_sigmoid, 0.25F, 0.5F},
                                       {Kind::gelu, 0, 0}})
    for (const char* const precision : {"fp16", "bf16"}) {
      p.activation = activation;
      const auto exact_of = exact_activation(activation);
      const double limit = activation.kind == Kind::gelu ? 0x1p-14 : 0x1p-16;
      const Tensor y = convolved("wgmma_gemm", p, precision, x, w);
      const std::vector<double> got = oracle::from_tensor(y).values;
      REQUIRE(got.size() == 8 * numbers.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double exact = exact_of(double{numbers[i % numbers.size()]});
        const double error = oracle::error_beyond_rounding(got[i], exact, y.dtype());
        CHECK_MESSAGE((error == 0 || error <= limit * std::abs(exact) + 1e-30), to_string(activation), " of ",
                      numbers[i % numbers.size()], " in ", std::string(precision), " is ", got[i]);
      }
    }
}

}  // namespace lenslet::test

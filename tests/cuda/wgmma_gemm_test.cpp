// wgmma_gemm cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that.

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
#include "tests/cuda/every_cut.h"
#include "tests/cuda/wgmma_problems.h"
#include "tests/ops/exact_activation.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// Bits depend on where sums are cut: on the number of slices, and on what their steps are; and on the set of groups,
/// in which the same channels lie elsewhere.
std::string bits_of(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const bool whole_groups = plan.slices == 0 && plan.groups_a_step == 1;
  if (whole_groups && goes_by_channels(group_set(p, plan.together))) return fmt::format("channels {}", plan.together);
  return plan.slices <= 1 ? fmt::format("set {}", plan.together) : fmt::format("{} {}", plan.slices, plan.width);
}

/// Cuts of which `wanted` says so, in both types.
void check_cuts(const ConvProblem& p, unsigned seed, const std::function<bool(const WgmmaGemmPlan&)>& wanted) {
  const auto cuts_of = [&](const Planned& planned) {
    std::vector<Cut> cuts;
    for (const WgmmaGemmPlan& plan : wgmma_cuts(planned.problem))
      if (wanted(plan)) cuts.push_back({plan.str(), bits_of(planned.problem, plan)});
    return cuts;
  };
  for (const char* const precision : {"fp16", "bf16"}) test::check_cuts("wgmma_gemm", p, precision, seed, cuts_of, 1);
}

bool persistent(const WgmmaGemmPlan& plan) { return plan.slices == 0 && plan.width == wgmma_step; }
bool sliced(const WgmmaGemmPlan& plan) { return plan.slices > 0 && plan.width == wgmma_step; }
bool narrow(const WgmmaGemmPlan& plan) { return plan.width != wgmma_step; }

ConvProblem as_halves(ConvProblem problem) {
  problem.storage = problem.x_storage = DType::f16;
  return problem;
}

// One step, pointwise; several tiles both ways, none full at the end, and an odd number of them; channels that end
// within a step; strides, dilations and pads of different width; more tiles than multiprocessors, so that stages and
// buffers of results go round through several, with parts that lie outside of y.
std::vector<ConvProblem> problems() {
  return {
      resolve_conv({1, 64, 16, 16}, {64, 64, 1, 1}, {}),
      resolve_conv({1, 8, 3, 3}, {8, 8, 1, 1}, {}),
      fused(resolve_conv({3, 256, 13, 11}, {328, 256, 1, 1}, {}), relu),
      resolve_conv({1, 64, 16, 16}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}}),
      fused(resolve_conv({2, 72, 23, 22}, {136, 72, 3, 3}, {.stride = {1, 2}, .pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({5, 40, 17, 19}, {264, 40, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}}), relu),
      fused(resolve_conv({2, 200, 14, 14}, {72, 200, 1, 1}, {.stride = {2, 2}}), {}),
      fused(resolve_conv({12, 64, 60, 60}, {128, 64, 3, 1}, {.pads = {1, 0, 1, 0}}), relu),
      fused(resolve_conv({12, 16, 61, 60}, {96, 16, 1, 1}, {}), clip),
      fused(resolve_conv({12, 72, 61, 60}, {264, 72, 1, 1}, {}), hard_swish),
      activated(resolve_conv({7, 64, 61, 60}, {264, 64, 1, 1}, {}), clip),
      activated(resolve_conv({7, 64, 61, 60}, {72, 64, 1, 1}, {}), silu),
  };
}

// Channels and filters that fill no 16 bytes: pixels with room, which holds NaN. Of one more than whole vectors, of one
// less, of odd numbers and of fewer than a vector.
std::vector<ConvProblem> problems_with_room() {
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  return {
      resolve_conv({1, 65, 8, 8}, {63, 65, 1, 1}, {}),
      activated(resolve_conv({2, 100, 14, 13}, {100, 100, 3, 3}, pad), relu),
      fused(resolve_conv({2, 58, 28, 28}, {58, 58, 1, 1}, {}), clip),
      fused(resolve_conv({3, 33, 13, 11}, {65, 33, 3, 2}, {.stride = {2, 1}, .pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({2, 12, 30, 31}, {21, 12, 3, 3}, {.dilation = {2, 1}, .pads = {2, 1, 2, 1}}), relu),
      fused(resolve_conv({2, 6, 30, 31}, {6, 6, 4, 4}, {.pads = {2, 1, 1, 2}}), hard_swish),
      activated(resolve_conv({3, 3, 9, 9}, {1, 3, 3, 3}, pad), relu),
      fused(resolve_conv({9, 20, 61, 60}, {13, 20, 1, 1}, {}), relu),
      fused(resolve_conv({1, 270, 7, 7}, {131, 270, 3, 3}, pad), relu),
  };
}

}  // namespace

HOPPER_CASE("cuda/wgmma_gemm/sets") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems_with_groups()) check_cuts(p, seed, [](const WgmmaGemmPlan&) { return true; });
}

HOPPER_CASE("cuda/wgmma_gemm/persistent") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems()) check_cuts(p, seed, persistent);
}

// Channels in several groups, taps inside of them; then more tiles than multiprocessors.
HOPPER_CASE("cuda/wgmma_gemm/by_channels") {
  const unsigned seed = random_seed();
  const ConvProblem strided[] = {
      fused(
          resolve_conv({3, 136, 21, 18}, {72, 136, 3, 2}, {.stride = {2, 1}, .dilation = {1, 2}, .pads = {1, 0, 2, 1}}),
          silu),
      activated(resolve_conv({40, 72, 29, 30}, {136, 72, 3, 3}, {.stride = {2, 2}, .pads = {1, 1, 1, 1}}), relu)};
  for (const ConvProblem& p : strided) check_cuts(p, seed, persistent);
}

// A tap's last channels by one and two instructions (TermTail), in every tile: full and not, by channels, with filters
// that come once to their stages and that come anew, with room; and of sets, whose neighbours lie behind.
HOPPER_CASE("cuda/wgmma_gemm/tails") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem tails[] = {
      resolve_conv({1, 80, 8, 8}, {64, 80, 1, 2}, {}),
      activated(resolve_conv({2, 96, 15, 17}, {136, 96, 7, 1}, {.pads = {3, 0, 3, 0}}), relu),
      activated(resolve_conv({2, 160, 17, 15}, {200, 160, 1, 7}, {.pads = {0, 3, 0, 3}}), silu),
      activated(
          resolve_conv({3, 90, 21, 18}, {104, 90, 3, 2}, {.stride = {2, 2}, .dilation = {1, 2}, .pads = {1, 0, 2, 1}}),
          clip),
      activated(resolve_conv({2, 141, 14, 13}, {65, 141, 2, 2}, pad), hard_swish),
      activated(resolve_conv({12, 72, 61, 60}, {24, 72, 2, 1}, {}), relu),
      activated(resolve_conv({9, 80, 61, 60}, {24, 80, 2, 2}, pad), relu),
      activated(resolve_conv({2, 144, 15, 13}, {192, 72, 3, 3}, {.stride = {2, 1}, .pads = {1, 1, 1, 1}, .groups = 2}),
                relu),
  };
  for (const ConvProblem& p : tails) {
    CHECK(TermTail(as_halves(group_set(p, 1)), wgmma_step).exists());
    check_cuts(p, seed, persistent);
  }
}

HOPPER_CASE("cuda/wgmma_gemm/slices") {
  const unsigned seed = random_seed();
  // Each with one thing more than the one before: one tile of 64x64 and two steps; a tile that is full of nothing but
  // its first pixel and eight filters; more steps than stages, and no even number of them.
  check_cuts(resolve_conv({1, 128, 8, 8}, {64, 128, 1, 1}, {}), seed, sliced);
  check_cuts(activated(resolve_conv({1, 512, 1, 1}, {8, 512, 1, 1}, {}), relu), seed, sliced);
  check_cuts(fused(resolve_conv({1, 2048, 7, 7}, {512, 2048, 1, 1}, {}), relu), seed, sliced);
  check_cuts(fused(resolve_conv({1, 72, 7, 7}, {200, 72, 3, 3}, {.pads = {1, 1, 1, 1}}), hard_swish), seed, sliced);
  // ResNet-50's at batch 1.
  check_cuts(activated(resolve_conv({1, 512, 7, 7}, {512, 512, 3, 3}, {.pads = {1, 1, 1, 1}}), relu), seed, sliced);
  check_cuts(activated(resolve_conv({1, 256, 14, 14}, {256, 256, 3, 3}, {.pads = {1, 1, 1, 1}}), clip), seed, sliced);
  check_cuts(fused(resolve_conv({1, 512, 14, 14}, {512, 512, 3, 3}, {.stride = {2, 2}, .pads = {1, 1, 1, 1}}), silu),
             seed, sliced);
  for (const ConvProblem& p : problems()) check_cuts(p, seed, sliced);
}

HOPPER_CASE("cuda/wgmma_gemm/room") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems_with_room()) check_cuts(p, seed, [](const WgmmaGemmPlan&) { return true; });
}

// All cuts, so that bits are compared with those of steps of 64 channels.
HOPPER_CASE("cuda/wgmma_gemm/narrow") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const auto narrow_and_one = [](const WgmmaGemmPlan& plan) {
    return narrow(plan) || (plan.tile == WgmmaTile::t128x64 && persistent(plan));
  };
  // One group of 16 channels, and of 32; half of it and three quarters; two and four groups a step, some left over in
  // the last; channels in several groups, of which the last has zeros; then what problems() has.
  const ConvProblem narrow_problems[] = {
      resolve_conv({1, 16, 8, 8}, {64, 16, 1, 1}, {}),
      resolve_conv({1, 32, 8, 8}, {64, 32, 1, 1}, {}),
      fused(resolve_conv({1, 8, 9, 9}, {24, 8, 1, 1}, {}), relu),
      fused(resolve_conv({2, 24, 28, 28}, {144, 24, 1, 1}, {}), clip),
      resolve_conv({1, 16, 8, 8}, {64, 16, 2, 2}, {}),
      resolve_conv({1, 32, 8, 8}, {64, 32, 1, 2}, {}),
      activated(resolve_conv({1, 16, 55, 55}, {64, 16, 3, 3}, pad), relu),
      activated(resolve_conv({2, 32, 27, 27}, {128, 32, 3, 3}, pad), relu),
      fused(resolve_conv({2, 24, 15, 14}, {72, 24, 3, 3}, {.stride = {2, 1}, .pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({1, 8, 21, 20}, {40, 8, 5, 3}, {.dilation = {2, 3}, .pads = {4, 2, 3, 1}}), hard_swish),
      fused(resolve_conv({1, 80, 19, 17}, {136, 80, 1, 1}, {}), relu),
      fused(resolve_conv({1, 40, 19, 17}, {264, 40, 3, 3}, pad), relu),
      fused(resolve_conv({24, 16, 61, 60}, {64, 16, 3, 3}, pad), clip),
      activated(resolve_conv({24, 32, 61, 60}, {192, 32, 1, 1}, {}), relu),
  };
  for (const ConvProblem& p : narrow_problems) check_cuts(p, seed, narrow_and_one);
  for (const ConvProblem& p : problems())
    if (wgmma_cuts(p).back().width != wgmma_step) check_cuts(p, seed, narrow_and_one);
}

// Zeros that fill a step up must come from both sides: what lies elsewhere in x may be infinite.
HOPPER_CASE("cuda/wgmma_gemm/infinities_stay_where_they_are") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const ConvProblem p = as_halves(resolve_conv({1, 16, 6, 6}, {8, 16, 3, 3}, {}));
  Tensor x(DType::f32, {1, 16, 6, 6}), w(DType::f32, {8, 16, 3, 3});
  std::ranges::fill(x.values<float>(), 1.0F);
  std::ranges::fill(w.values<float>(), 0.5F);
  x.values<float>()[0] = inf;  // of the first window alone
  for (const WgmmaGemmPlan& plan : wgmma_cuts(p)) {
    if (!asked_for(plan.str())) continue;
    CAPTURE(plan.str());
    const std::vector<double> got = oracle::from_tensor(convolved("wgmma_gemm", p, "fp16", x, w, plan.str())).values;
    REQUIRE(got.size() == 8 * 16);
    bool right = true;
    for (std::size_t i = 0; i < got.size(); ++i) right = right && (i % 16 == 0 ? got[i] == double{inf} : got[i] == 72);
    CHECK(right);
  }
}

// Functions that are approximate for results of 16 bits, where they have limits, and NaN.
HOPPER_CASE("cuda/wgmma_gemm/activations_of_special_numbers") {
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

  for (const Activation& activation : {Activation{},
                                       {Kind::relu, 0, 0},
                                       {Kind::clip, -2, 6},
                                       {Kind::leaky_relu, 0.125F, 0},
                                       {Kind::sigmoid, 0, 0},
                                       {Kind::silu, 0, 0},
                                       {Kind::hard_swish, 1.0F / 6, 0.5F},
                                       {Kind::hard_sigmoid, 0.25F, 0.5F}})
    for (const char* const precision : {"fp16", "bf16"}) {
      p.activation = activation;
      const auto exact_of = exact_activation(activation);
      const Tensor y = convolved("wgmma_gemm", p, precision, x, w);
      const std::vector<double> got = oracle::from_tensor(y).values;
      REQUIRE(got.size() == 8 * numbers.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double exact = exact_of(double{numbers[i % numbers.size()]});
        const double error = oracle::error_beyond_rounding(got[i], exact, y.dtype());
        CHECK_MESSAGE((error == 0 || error <= 0x1p-16 * std::abs(exact) + 1e-30), to_string(activation), " of ",
                      numbers[i % numbers.size()], " in ", std::string(precision), " is ", got[i]);
      }
    }
}

}  // namespace lenslet::test

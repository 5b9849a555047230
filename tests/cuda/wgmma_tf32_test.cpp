// wgmma_tf32 in every compiled tile configuration, and its rounding. The planner's choice is tested by conv_test.cpp.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "oracle/oracle.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/cuda/wgmma_problems.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

bool persistent(const WgmmaTf32Plan& plan) { return plan.split_k == 0; }
/// Includes single tiles of persistent blocks, whose bits equal those of split_k=1.
bool has_split_k(const WgmmaTf32Plan& plan) { return plan.split_k > 0 || plan.tile == WgmmaTile::t128x64; }

/// Configurations that `wanted` selects. Bits depend on the split-K factor, and on the group set, which moves channels.
void check_tilings(const ConvProblem& p, unsigned seed, const std::function<bool(const WgmmaTf32Plan&)>& wanted) {
  const auto tilings_of = [&](const Planned&) {
    std::vector<Tiling> tilings;
    for (const WgmmaTf32Plan& plan : wgmma_tf32_tilings(p)) {
      const int split_k = goes_by_channels(group_set(p, plan.together)) ? plan.split_k : std::max(plan.split_k, 1);
      if (wanted(plan)) tilings.push_back({plan.str(), fmt::format("{} {}", split_k, plan.together)});
    }
    return tilings;
  };
  test::check_tilings("wgmma_tf32", p, "tf32", seed, tilings_of, 1);
}

// One k-block, pointwise; an odd number of partial tiles in both dimensions; channels that end within a k-block;
// strides, dilations and uneven pads; more tiles than multiprocessors, so that stages cycle through several.
std::vector<ConvProblem> problems() {
  return convs({
      "1x32x16x16 -> 64, 1x1 s1 p0 g1",
      "1x4x3x3 -> 4, 1x1 s1 p0 g1",
      "3x256x13x11 -> 324, 1x1 s1 p0 g1 +bias +residual +relu",
      "1x64x16x16 -> 64, 3x3 s1 p1 g1",
      "2x36x23x22 -> 132, 3x3 s1x2 p1,0,2,1 g1 +bias +residual +silu",
      "5x20x17x19 -> 260, 3x2 s1 p2,1,1,3 g1 d2x3 +bias +residual +relu",
      "2x100x14x14 -> 68, 1x1 s2 p0 g1 +bias +residual",
      "12x32x60x60 -> 128, 3x1 s1 p1x0 g1 +bias +residual +relu",
  });
}

}  // namespace

HOPPER_CASE("cuda/wgmma_tf32/sets") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems_with_groups()) check_tilings(p, seed, persistent);
}

HOPPER_CASE("cuda/wgmma_tf32/persistent") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems()) check_tilings(p, seed, persistent);
}

// Several groups of channels, each with all taps; then more tiles than multiprocessors.
HOPPER_CASE("cuda/wgmma_tf32/by_channels") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({"3x72x21x18 -> 72, 3x2 s2x1 p1,0,2,1 g1 d1x2 +bias +residual +silu",
                                     "40x40x29x30 -> 136, 3x3 s2 p1 g1 +bias +relu"}))
    check_tilings(p, seed, persistent);
}

// A tap's last channels by one and two instructions (KTail), in every tile, full and partial: by channels or not, with
// padding channels; and group sets, whose neighbours follow directly.
HOPPER_CASE("cuda/wgmma_tf32/tails") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x16x8x8 -> 64, 1x2 s1 p0 g1",
           "2x48x15x17 -> 136, 7x1 s1 p3x0 g1 +bias +relu",
           "2x80x17x15 -> 200, 1x7 s1 p0x3 g1 +bias +silu",
           "2x72x23x22 -> 72, 3x3 s2x1 p1,0,2,1 g1 +bias +relu",
           "2x77x14x13 -> 65, 2x2 s1 p1 g1 +bias +hard_swish",
           "9x3x61x60 -> 40, 3x3 s1 p1 g1 +bias +relu",
           "2x88x15x13 -> 192, 3x3 s2x1 p1 g2 +bias +relu",
       })) {
    CHECK(KTail(group_set(p, 1), wgmma_tf32_step).exists());
    check_tilings(p, seed, persistent);
  }
}

// Channels and filters that need padding to 16 bytes; the padding channels hold NaN.
HOPPER_CASE("cuda/wgmma_tf32/room") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x65x8x8 -> 63, 1x1 s1 p0 g1",
           "2x50x14x13 -> 102, 3x3 s1 p1 g1 +bias +relu",
           "2x58x28x28 -> 58, 1x1 s1 p0 g1 +bias +residual +clip(-0.5,0.75)",
           "3x33x13x11 -> 65, 3x2 s2x1 p1,0,2,1 g1 +bias +residual +silu",
           "2x6x30x31 -> 6, 4x4 s1 p2,1,1,2 g1 +bias +residual +hard_swish",
           "3x3x9x9 -> 1, 3x3 s1 p1 g1 +bias +relu",
           "1x270x7x7 -> 131, 3x3 s1 p1 g1 +bias +residual +relu",
       }))
    check_tilings(p, seed, [](const WgmmaTf32Plan&) { return true; });
}

// The outputs of each thread in a cluster's tile. Each output is a distinct number, exact in TF32, so that a misplaced
// one shows its origin.
HOPPER_CASE("cuda/wgmma_tf32/split_k_writes_every_output_once") {
  // 128 * pixel from the first channel (the first split), k from the last. Partial tiles in both dimensions.
  constexpr std::int64_t size = 9, filters = 100, channels = 512;
  const ConvProblem p = resolve_conv({1, channels, size, size}, {filters, channels, 1, 1}, {});
  Tensor x(DType::f32, {1, channels, size, size}), w(DType::f32, {filters, channels, 1, 1});
  std::ranges::fill(x.values<float>(), 0.0F);
  std::ranges::fill(w.values<float>(), 0.0F);
  constexpr std::int64_t pixels = size * size;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    x.values<float>()[at(pixel)] = static_cast<float>(pixel);
    x.values<float>()[at((channels - 1) * pixels + pixel)] = 1;
  }
  for (std::int64_t k = 0; k < filters; ++k) {
    w.values<float>()[at(k * channels)] = 128;
    w.values<float>()[at(k * channels + channels - 1)] = static_cast<float>(k);
  }
  for (const WgmmaTf32Plan& plan : wgmma_tf32_tilings(p)) {
    if (!has_split_k(plan) || !asked_for(plan.str())) continue;
    const std::vector<double> got = oracle::from_tensor(convolved("wgmma_tf32", p, "tf32", x, w, plan.str())).values;
    REQUIRE(got.size() == at(filters * pixels));
    std::string first_wrong;
    for (std::int64_t k = 0; k < filters; ++k)
      for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
        const double value = got[at(k * pixels + pixel)];
        if (value == static_cast<double>(pixel * 128 + k) || !first_wrong.empty()) continue;
        first_wrong = fmt::format("pixel {} filter {} has {}, which is pixel {} filter {}", pixel, k, value,
                                  std::floor(value / 128), value - std::floor(value / 128) * 128);
      }
    CHECK_MESSAGE(first_wrong.empty(), plan.str(), ": ", first_wrong);
  }
}

HOPPER_CASE("cuda/wgmma_tf32/split_k") {
  const unsigned seed = random_seed();
  // Each adds one feature to the one before: one tile of 64x64 with two k-blocks; a tile with a single pixel and four
  // filters; a part of 32 filters with half a unit; more k-blocks than stages, and an odd number of them.
  for (const ConvProblem& p : convs({
           "1x64x8x8 -> 64, 1x1 s1 p0 g1",
           "1x256x1x1 -> 4, 1x1 s1 p0 g1 +bias +relu",
           "1x256x5x5 -> 44, 1x1 s1 p0 g1 +bias +residual +relu",
           "1x2048x7x7 -> 512, 1x1 s1 p0 g1 +bias +residual +relu",
           "1x36x7x7 -> 196, 3x3 s1 p1 g1 +bias +residual +hard_swish",
           // ResNet-50's at batch 1.
           "1x512x7x7 -> 512, 3x3 s1 p1 g1 +bias +relu",
           "1x256x14x14 -> 256, 3x3 s1 p1 g1 +bias +clip(-0.5,0.75)",
           "1x512x14x14 -> 512, 3x3 s2 p1 g1 +bias +residual +silu",
       }))
    check_tilings(p, seed, has_split_k);
  for (const ConvProblem& p : problems()) check_tilings(p, seed, has_split_k);
}

// With both kinds of loads.
HOPPER_CASE("cuda/wgmma_tf32/x_is_rounded_to_nearest") {
  check_rounds_to_tf32("wgmma_tf32", parse_conv("2x64x12x12 -> 64, 1x1 s1 p0 g1"));
  check_rounds_to_tf32("wgmma_tf32", parse_conv("2x64x12x12 -> 64, 3x3 s1 p1 g1"));
}

HOPPER_CASE("cuda/wgmma_tf32/what_is_not_finite_stays_so") {
  const ConvProblem p = parse_conv("1x32x8x8 -> 32, 1x1 s1 p0 g1");
  Tensor x(DType::f32, {p.n, p.c, p.h, p.w});
  std::fill(x.values<float>().begin(), x.values<float>().end(), 1.0F);
  // The device's NaN has all bits set that rounding could carry out of; the host's has one.
  x.values<float>()[0] = std::bit_cast<float>(0x7FFFFFFFU);
  x.values<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  x.values<float>()[2] = std::numeric_limits<float>::infinity();
  Tensor w(DType::f32, {p.k, p.c, 1, 1});
  for (std::size_t i = 0; i < w.values<float>().size(); ++i) w.values<float>()[i] = i % 33 == 0 ? 1.0F : 0.0F;
  const Tensor y = convolved("wgmma_tf32", p, "tf32", x, w);
  CHECK(std::isnan(y.values<float>()[0]));
  CHECK(std::isnan(y.values<float>()[1]));
  CHECK(y.values<float>()[2] == std::numeric_limits<float>::infinity());
  CHECK(y.values<float>()[3] == 1);
}

}  // namespace lenslet::test

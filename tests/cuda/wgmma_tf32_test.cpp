// wgmma_tf32 cut in every way there are kernels for, and how it rounds: the planner takes one way a problem,
// conv_test.cpp checks that.

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
#include "tests/cuda/every_cut.h"
#include "tests/cuda/wgmma_problems.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

bool persistent(const WgmmaTf32Plan& plan) { return plan.slices == 0; }
/// And one tile of persistent blocks, the bits of which one slice has, too.
bool sliced(const WgmmaTf32Plan& plan) { return plan.slices > 0 || plan.tile == WgmmaTile::t128x64; }

/// Cuts of which `wanted` says so. Bits depend on the number of slices, and on the set of groups, in which the same
/// channels lie elsewhere.
void check_cuts(const ConvProblem& p, unsigned seed, const std::function<bool(const WgmmaTf32Plan&)>& wanted) {
  const auto cuts_of = [&](const Planned&) {
    std::vector<Cut> cuts;
    for (const WgmmaTf32Plan& plan : wgmma_tf32_cuts(p)) {
      const int slices = goes_by_channels(group_set(p, plan.together)) ? plan.slices : std::max(plan.slices, 1);
      if (wanted(plan)) cuts.push_back({plan.str(), fmt::format("{} {}", slices, plan.together)});
    }
    return cuts;
  };
  test::check_cuts("wgmma_tf32", p, "tf32", seed, cuts_of, 1);
}

// One step, pointwise; several tiles both ways, none full at the end, and an odd number of them; channels that end
// within a step; strides, dilations and pads of different width; more tiles than multiprocessors, so that stages go
// round through several.
std::vector<ConvProblem> problems() {
  return {
      resolve_conv({1, 32, 16, 16}, {64, 32, 1, 1}, {}),
      resolve_conv({1, 4, 3, 3}, {4, 4, 1, 1}, {}),
      fused(resolve_conv({3, 256, 13, 11}, {324, 256, 1, 1}, {}), relu),
      resolve_conv({1, 64, 16, 16}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}}),
      fused(resolve_conv({2, 36, 23, 22}, {132, 36, 3, 3}, {.stride = {1, 2}, .pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({5, 20, 17, 19}, {260, 20, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}}), relu),
      fused(resolve_conv({2, 100, 14, 14}, {68, 100, 1, 1}, {.stride = {2, 2}}), {}),
      fused(resolve_conv({12, 32, 60, 60}, {128, 32, 3, 1}, {.pads = {1, 0, 1, 0}}), relu),
  };
}

}  // namespace

HOPPER_CASE("cuda/wgmma_tf32/sets") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems_with_groups()) check_cuts(p, seed, persistent);
}

HOPPER_CASE("cuda/wgmma_tf32/persistent") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : problems()) check_cuts(p, seed, persistent);
}

// Channels in several groups, taps inside of them; then more tiles than multiprocessors.
HOPPER_CASE("cuda/wgmma_tf32/by_channels") {
  const unsigned seed = random_seed();
  const ConvProblem several[] = {
      fused(resolve_conv({3, 72, 21, 18}, {72, 72, 3, 2}, {.stride = {2, 1}, .dilation = {1, 2}, .pads = {1, 0, 2, 1}}),
            silu),
      activated(resolve_conv({40, 40, 29, 30}, {136, 40, 3, 3}, {.stride = {2, 2}, .pads = {1, 1, 1, 1}}), relu)};
  for (const ConvProblem& p : several) check_cuts(p, seed, persistent);
}

// A tap's last channels by one and two instructions (TermTail), in every tile: full and not, by channels or not, with
// room; and of sets, whose neighbours lie behind.
HOPPER_CASE("cuda/wgmma_tf32/tails") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem tails[] = {
      resolve_conv({1, 16, 8, 8}, {64, 16, 1, 2}, {}),
      activated(resolve_conv({2, 48, 15, 17}, {136, 48, 7, 1}, {.pads = {3, 0, 3, 0}}), relu),
      activated(resolve_conv({2, 80, 17, 15}, {200, 80, 1, 7}, {.pads = {0, 3, 0, 3}}), silu),
      activated(resolve_conv({2, 72, 23, 22}, {72, 72, 3, 3}, {.stride = {2, 1}, .pads = {1, 0, 2, 1}}), relu),
      activated(resolve_conv({2, 77, 14, 13}, {65, 77, 2, 2}, pad), hard_swish),
      activated(resolve_conv({9, 3, 61, 60}, {40, 3, 3, 3}, pad), relu),
      activated(resolve_conv({2, 88, 15, 13}, {192, 44, 3, 3}, {.stride = {2, 1}, .pads = {1, 1, 1, 1}, .groups = 2}),
                relu),
  };
  for (const ConvProblem& p : tails) {
    CHECK(TermTail(group_set(p, 1), wgmma_tf32_step).exists());
    check_cuts(p, seed, persistent);
  }
}

// Channels and filters that fill no 16 bytes: pixels with room, which holds NaN.
HOPPER_CASE("cuda/wgmma_tf32/room") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem with_room[] = {
      resolve_conv({1, 65, 8, 8}, {63, 65, 1, 1}, {}),
      activated(resolve_conv({2, 50, 14, 13}, {102, 50, 3, 3}, pad), relu),
      fused(resolve_conv({2, 58, 28, 28}, {58, 58, 1, 1}, {}), clip),
      fused(resolve_conv({3, 33, 13, 11}, {65, 33, 3, 2}, {.stride = {2, 1}, .pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({2, 6, 30, 31}, {6, 6, 4, 4}, {.pads = {2, 1, 1, 2}}), hard_swish),
      activated(resolve_conv({3, 3, 9, 9}, {1, 3, 3, 3}, pad), relu),
      fused(resolve_conv({1, 270, 7, 7}, {131, 270, 3, 3}, pad), relu),
  };
  for (const ConvProblem& p : with_room) check_cuts(p, seed, [](const WgmmaTf32Plan&) { return true; });
}

// Where a thread of a cluster's tile has which output: each is a number of its own, exact in TF32, so that one in a
// wrong place says where it is from.
HOPPER_CASE("cuda/wgmma_tf32/slices_put_every_output_in_its_place") {
  // 128 * pixel of the first channel, which the first slice has, and k of the last. Tiles both ways, none full at the
  // end.
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
  for (const WgmmaTf32Plan& plan : wgmma_tf32_cuts(p)) {
    if (!sliced(plan) || !asked_for(plan.str())) continue;
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

HOPPER_CASE("cuda/wgmma_tf32/slices") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  // Each with one thing more than the one before: one tile of 64x64 and two steps; a tile that is full of nothing but
  // its first pixel and four filters; a part of 32 filters of which half a unit is there; more steps than stages, and
  // no even number of them.
  check_cuts(resolve_conv({1, 64, 8, 8}, {64, 64, 1, 1}, {}), seed, sliced);
  check_cuts(activated(resolve_conv({1, 256, 1, 1}, {4, 256, 1, 1}, {}), relu), seed, sliced);
  check_cuts(fused(resolve_conv({1, 256, 5, 5}, {44, 256, 1, 1}, {}), relu), seed, sliced);
  check_cuts(fused(resolve_conv({1, 2048, 7, 7}, {512, 2048, 1, 1}, {}), relu), seed, sliced);
  check_cuts(fused(resolve_conv({1, 36, 7, 7}, {196, 36, 3, 3}, pad), hard_swish), seed, sliced);
  // ResNet-50's at batch 1.
  check_cuts(activated(resolve_conv({1, 512, 7, 7}, {512, 512, 3, 3}, pad), relu), seed, sliced);
  check_cuts(activated(resolve_conv({1, 256, 14, 14}, {256, 256, 3, 3}, pad), clip), seed, sliced);
  check_cuts(fused(resolve_conv({1, 512, 14, 14}, {512, 512, 3, 3}, {.stride = {2, 2}, .pads = {1, 1, 1, 1}}), silu),
             seed, sliced);
  for (const ConvProblem& p : problems()) check_cuts(p, seed, sliced);
}

// By both kinds of copies.
HOPPER_CASE("cuda/wgmma_tf32/x_is_rounded_to_nearest") {
  check_rounds_to_tf32("wgmma_tf32", resolve_conv({2, 64, 12, 12}, {64, 64, 1, 1}, {}));
  check_rounds_to_tf32("wgmma_tf32", resolve_conv({2, 64, 12, 12}, {64, 64, 3, 3}, {.pads = {1, 1, 1, 1}}));
}

HOPPER_CASE("cuda/wgmma_tf32/what_is_not_finite_stays_so") {
  const ConvProblem p = resolve_conv({1, 32, 8, 8}, {32, 32, 1, 1}, {});
  Tensor x(DType::f32, {p.n, p.c, p.h, p.w});
  std::fill(x.values<float>().begin(), x.values<float>().end(), 1.0F);
  // The NaN that the device makes has all bits that rounding could carry out of; that of the host has one.
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

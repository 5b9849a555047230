// wgmma_patch cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ops/conv/cuda/wgmma_patch_plan.h"
#include "ops/conv/cuda/wgmma_patch_slices_plan.h"
#include "oracle/oracle.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_cut.h"
#include "tests/cuda/wgmma_problems.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// Of both kernels. Bits depend, where channels are cut, on the rows, where there are several of them, on the groups
/// that are taken together, and on the slices.
std::vector<Cut> cuts_of(const ConvProblem& p) {
  std::vector<Cut> cuts;
  for (const WgmmaPatchPlan& plan : wgmma_patch_cuts(p))
    cuts.push_back({plan.str(), fmt::format("{} {}", plan.together, plan.groups == 1 ? 0 : plan.row_bytes)});
  for (const PatchSlicesPlan& plan : patch_slices_cuts(p))
    cuts.push_back({plan.str(), fmt::format("slices {}", plan.slices)});
  return cuts;
}

void check_cuts(const ConvProblem& p, unsigned seed) {
  for (const char* const precision : {"fp16", "bf16", "tf32"})
    test::check_cuts(
        "wgmma_patch", p, precision, seed, [](const Planned& planned) { return cuts_of(planned.problem); }, 4);
}

}  // namespace

// Each with one thing more than the one before: one unit without pads; pads; filters that do not fit a tile; channels
// in several groups; units that lie partly outside; images smaller than a unit.
HOPPER_CASE("cuda/wgmma_patch/one_thing_more") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  check_cuts(resolve_conv({1, 64, 8, 9}, {64, 64, 1, 2}, {}), seed);
  check_cuts(resolve_conv({1, 64, 9, 8}, {64, 64, 2, 1}, {}), seed);
  check_cuts(resolve_conv({1, 64, 10, 10}, {64, 64, 3, 3}, {}), seed);
  check_cuts(resolve_conv({1, 64, 8, 8}, {64, 64, 3, 3}, pad), seed);
  check_cuts(resolve_conv({1, 64, 8, 8}, {200, 64, 3, 3}, pad), seed);
  check_cuts(resolve_conv({1, 256, 8, 8}, {64, 256, 3, 3}, pad), seed);
  check_cuts(resolve_conv({2, 64, 13, 21}, {64, 64, 3, 3}, pad), seed);
  check_cuts(resolve_conv({3, 64, 7, 3}, {64, 64, 3, 3}, pad), seed);
}

// Rows of 128, 64 and 32 bytes, full or not, in one group or several.
HOPPER_CASE("cuda/wgmma_patch/rows") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  for (const std::int64_t c : {8, 16, 24, 32, 48, 72, 80, 136})
    check_cuts(activated(resolve_conv({2, c, 17, 15}, {40, c, 3, 3}, pad), relu), seed);
}

// Windows of any kind, and what is fused; more tiles than multiprocessors, so that all stages go round.
HOPPER_CASE("cuda/wgmma_patch/windows") {
  const unsigned seed = random_seed();
  const ConvProblem problems[] = {
      fused(resolve_conv({2, 72, 23, 22}, {136, 72, 3, 2}, {.pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({5, 40, 17, 19}, {264, 40, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}}), relu),
      activated(resolve_conv({1, 48, 20, 20}, {64, 48, 5, 5}, {.pads = {2, 2, 2, 2}}), hard_swish),
      fused(resolve_conv({2, 32, 17, 17}, {32, 32, 7, 7}, {.pads = {3, 3, 3, 3}}), relu),
      // Patches of which there is room for one stage, of several groups.
      fused(resolve_conv({2, 136, 17, 18}, {72, 136, 7, 7}, {.pads = {3, 3, 3, 3}}), clip),
      fused(resolve_conv({2, 80, 31, 18}, {264, 80, 5, 5}, {.dilation = {2, 2}, .pads = {4, 4, 4, 4}}), relu),
      activated(resolve_conv({1, 64, 17, 17}, {192, 64, 1, 7}, {.pads = {0, 3, 0, 3}}), relu),
      activated(resolve_conv({1, 64, 17, 17}, {192, 64, 7, 1}, {.pads = {3, 0, 3, 0}}), relu),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// Slices of one group and of several, even and not, of one unit and of many, which lie partly outside; windows of whole
// lines of taps and others; filters that fill no tile.
HOPPER_CASE("cuda/wgmma_patch/slices") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem problems[] = {
      resolve_conv({1, 64, 14, 8}, {64, 64, 1, 3}, {.pads = {0, 1, 0, 1}}),
      resolve_conv({1, 128, 16, 10}, {128, 128, 3, 3}, {}),
      fused(resolve_conv({1, 512, 7, 7}, {136, 512, 3, 3}, pad), relu),
      fused(resolve_conv({2, 256, 15, 17}, {72, 256, 3, 3}, pad), hard_swish),
      fused(resolve_conv({1, 600, 14, 13}, {72, 600, 3, 3}, pad), silu),
      activated(resolve_conv({3, 328, 9, 20}, {72, 328, 2, 3}, {.dilation = {1, 2}, .pads = {1, 2, 0, 2}}), clip),
      activated(resolve_conv({2, 130, 15, 9}, {70, 130, 5, 5}, {.pads = {2, 2, 2, 2}}), relu),
  };
  for (const ConvProblem& p : problems) {
    REQUIRE(!patch_slices_cuts(p).empty());
    check_cuts(p, seed);
  }
}

// More tiles than multiprocessors, of every size: a block has several, and residuals of the next one come while this
// one leaves. Rows of 128 bytes and of 32, tiles of 64 and 128 filters, units that lie partly outside both ways.
HOPPER_CASE("cuda/wgmma_patch/many_tiles") {
  const unsigned seed = random_seed();
  const ConvProblem problems[] = {
      fused(resolve_conv({12, 64, 60, 60}, {128, 64, 1, 2}, {.pads = {0, 1, 0, 0}}), relu),
      fused(resolve_conv({12, 16, 61, 60}, {64, 16, 3, 3}, {.pads = {1, 1, 1, 1}}), clip),
      fused(resolve_conv({11, 64, 56, 56}, {64, 64, 1, 3}, {.pads = {0, 1, 0, 1}}), hard_swish),
  };
  for (const ConvProblem& p : problems) {
    for (const WgmmaPatchPlan& plan : wgmma_patch_cuts(p))
      CHECK_MESSAGE(plan.tiles_m * plan.tiles_n > reference_gpu().units, p.str(), ", ", plan.str());
    check_cuts(p, seed);
  }
}

// Channels and filters that fill no 16 bytes: pixels with room, which holds NaN.
HOPPER_CASE("cuda/wgmma_patch/room") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem problems[] = {
      resolve_conv({1, 65, 9, 8}, {63, 65, 2, 1}, {}),
      activated(resolve_conv({2, 100, 14, 13}, {100, 100, 3, 3}, pad), relu),
      fused(resolve_conv({2, 33, 23, 22}, {65, 33, 3, 2}, {.pads = {1, 0, 2, 1}}), silu),
      fused(resolve_conv({2, 12, 30, 31}, {21, 12, 3, 3}, {.dilation = {2, 1}, .pads = {2, 1, 2, 1}}), relu),
      fused(resolve_conv({9, 6, 60, 61}, {6, 6, 6, 6}, {.pads = {3, 2, 2, 3}}), hard_swish),
      fused(resolve_conv({9, 24, 60, 61}, {10, 24, 5, 5}, {.pads = {2, 2, 2, 2}}), clip),
      activated(resolve_conv({3, 3, 9, 9}, {1, 3, 3, 3}, pad), relu),
      fused(resolve_conv({1, 270, 7, 7}, {131, 270, 3, 3}, pad), relu),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// Units of lines of 16, 32 and 64 pixels, which are taken where they are fewer than those of 8x8; a residual, that is
// read where nothing is stored; tiles of 96 filters.
HOPPER_CASE("cuda/wgmma_patch/units_of_other_shapes") {
  const unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}}, pad2{.pads = {2, 2, 2, 2}};
  const ConvProblem problems[] = {
      resolve_conv({1, 64, 4, 14}, {64, 64, 3, 3}, pad),
      fused(resolve_conv({3, 40, 28, 42}, {96, 40, 3, 3}, pad), relu),
      fused(resolve_conv({3, 72, 11, 10}, {80, 72, 5, 5}, pad2), silu),
      fused(resolve_conv({2, 24, 12, 9}, {190, 24, 7, 7}, {.pads = {3, 3, 3, 3}}), clip),
      resolve_conv({1, 64, 2, 30}, {64, 64, 3, 3}, pad),
      fused(resolve_conv({2, 32, 28, 28}, {96, 32, 5, 5}, pad2), relu),
      fused(resolve_conv({3, 72, 13, 26}, {50, 72, 3, 7}, {.pads = {1, 3, 1, 3}}), hard_swish),
      fused(resolve_conv({2, 100, 27, 30}, {21, 100, 3, 3}, pad), relu),
      resolve_conv({1, 64, 1, 64}, {64, 64, 1, 3}, {.pads = {0, 1, 0, 1}}),
      fused(resolve_conv({3, 48, 3, 125}, {288, 48, 3, 7}, {.pads = {1, 3, 1, 3}}), relu),
      fused(resolve_conv({20, 64, 28, 28}, {96, 64, 3, 3}, pad), relu),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

// Groups, by themselves and several together; windows of one tap, whose pixels are one line; filters that stay, and
// that do not.
HOPPER_CASE("cuda/wgmma_patch/several_groups") {
  const unsigned seed = random_seed();
  const auto grouped = [](std::int64_t groups, std::int64_t pad) {
    return ConvGeometry{.pads = {pad, pad, pad, pad}, .groups = groups};
  };
  const ConvProblem problems[] = {
      resolve_conv({1, 32, 8, 8}, {32, 16, 3, 3}, grouped(2, 1)),
      resolve_conv({1, 128, 8, 8}, {64, 64, 3, 3}, grouped(2, 1)),
      fused(resolve_conv({3, 144, 13, 21}, {48, 72, 3, 3}, grouped(2, 1)), relu),
      fused(resolve_conv({1, 48, 28, 29}, {264, 16, 5, 5}, grouped(3, 2)), silu),
      activated(resolve_conv({3, 80, 14, 14}, {320, 8, 3, 3}, grouped(10, 1)), relu),
      fused(resolve_conv({2, 64, 15, 17}, {96, 2, 3, 5}, grouped(32, 2)), clip),
      activated(resolve_conv({2, 32, 20, 20}, {96, 1, 7, 7}, grouped(32, 3)), hard_swish),
      fused(resolve_conv({3, 120, 9, 11}, {240, 40, 1, 1}, grouped(3, 0)), relu),
      activated(resolve_conv({2, 48, 33, 31}, {24, 2, 1, 1}, grouped(24, 0)), relu),
      fused(resolve_conv({2, 26, 19, 18}, {34, 13, 3, 3}, grouped(2, 1)), relu),
      fused(resolve_conv({2, 256, 22, 28}, {256, 64, 3, 3}, grouped(4, 1)), relu),
      activated(resolve_conv({12, 64, 28, 28}, {128, 8, 3, 3}, grouped(8, 1)), clip),
  };
  for (const ConvProblem& p : problems) check_cuts(p, seed);
}

HOPPER_CASE("cuda/wgmma_patch/x_is_rounded_to_nearest") {
  ConvProblem p = resolve_conv({1, 128, 12, 12}, {128, 128, 3, 3}, {.pads = {1, 1, 1, 1}});
  REQUIRE(!patch_slices_cuts(p).empty());
  for (const Cut& cut : cuts_of(p))
    if (asked_for(cut.config)) check_rounds_to_tf32("wgmma_patch", p, cut.config);
}

// A unit reads what its windows need and nothing else: infinities of x stay where they are, also beside the image.
HOPPER_CASE("cuda/wgmma_patch/infinities_stay_where_they_are") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr std::int64_t c = 136;  // three groups
  ConvProblem p = resolve_conv({1, c, 12, 12}, {8, c, 3, 3}, {});
  p.storage = p.x_storage = DType::f16;
  Tensor x(DType::f32, {1, c, 12, 12}), w(DType::f32, {8, c, 3, 3});
  std::ranges::fill(x.values<float>(), 1.0F);
  std::ranges::fill(w.values<float>(), 0.5F);
  x.values<float>()[0] = inf;  // of the first window alone
  for (const Cut& cut : cuts_of(p)) {
    if (!asked_for(cut.config)) continue;
    CAPTURE(cut.config);
    const std::vector<double> got = oracle::from_tensor(convolved("wgmma_patch", p, "fp16", x, w, cut.config)).values;
    REQUIRE(got.size() == 8 * 100);
    bool right = true;
    for (std::size_t i = 0; i < got.size(); ++i)
      right = right && (i % 100 == 0 ? got[i] == double{inf} : got[i] == c * 9 / 2.0);
    CHECK(right);
  }
}

}  // namespace lenslet::test

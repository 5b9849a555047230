// wgmma_halo in every compiled tile configuration. The planner's choice is tested by conv_test.cpp.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "ops/conv/cuda/wgmma_halo_plan.h"
#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"
#include "oracle/oracle.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/cuda/wgmma_problems.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// Configurations of both kernels. With several groups of channels, bits depend on the number of rows, on merged
/// groups, and on split-K.
std::vector<Tiling> tilings_of(const ConvProblem& p) {
  std::vector<Tiling> tilings;
  for (const WgmmaHaloPlan& plan : wgmma_halo_tilings(p))
    tilings.push_back({plan.str(), fmt::format("{} {}", plan.together, plan.k_groups == 1 ? 0 : plan.row_bytes)});
  for (const HaloSplitKPlan& plan : halo_split_k_tilings(p))
    tilings.push_back({plan.str(), fmt::format("split_k {}", plan.split_k)});
  return tilings;
}

void check_tilings(const ConvProblem& p, unsigned seed) {
  for (const char* const precision : {"fp16", "bf16", "tf32"})
    test::check_tilings(
        "wgmma_halo", p, precision, seed, [](const Planned& planned) { return tilings_of(planned.problem); }, 4);
}

}  // namespace

// Each adds one feature to the one before: one unit without pads; pads; a partial tile of filters; several groups of
// channels; units partly outside; images smaller than a unit.
HOPPER_CASE("cuda/wgmma_halo/one_thing_more") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x64x8x9 -> 64, 1x2 s1 p0 g1",
           "1x64x9x8 -> 64, 2x1 s1 p0 g1",
           "1x64x10x10 -> 64, 3x3 s1 p0 g1",
           "1x64x8x8 -> 64, 3x3 s1 p1 g1",
           "1x64x8x8 -> 200, 3x3 s1 p1 g1",
           "1x256x8x8 -> 64, 3x3 s1 p1 g1",
           "2x64x13x21 -> 64, 3x3 s1 p1 g1",
           "3x64x7x3 -> 64, 3x3 s1 p1 g1",
       }))
    check_tilings(p, seed);
}

// Rows of 128, 64 and 32 bytes, full or partial, in one or several groups.
HOPPER_CASE("cuda/wgmma_halo/rows") {
  const unsigned seed = random_seed();
  for (const std::int64_t c : {8, 16, 24, 32, 48, 72, 80, 136})
    check_tilings(parse_conv(fmt::format("2x{}x17x15 -> 40, 3x3 s1 p1 g1 +bias +relu", c)), seed);
}

// Windows of any kind, with an epilogue; more tiles than multiprocessors, so that all stages wrap.
HOPPER_CASE("cuda/wgmma_halo/windows") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "2x72x23x22 -> 136, 3x2 s1 p1,0,2,1 g1 +bias +residual +silu",
           "5x40x17x19 -> 264, 3x2 s1 p2,1,1,3 g1 d2x3 +bias +residual +relu",
           "1x48x20x20 -> 64, 5x5 s1 p2 g1 +bias +hard_swish",
           "2x32x17x17 -> 32, 7x7 s1 p3 g1 +bias +residual +relu",
           // Halo tiles that fit one stage only, of several groups.
           "2x136x17x18 -> 72, 7x7 s1 p3 g1 +bias +residual +clip(-0.5,0.75)",
           "2x80x31x18 -> 264, 5x5 s1 p4 g1 d2 +bias +residual +relu",
           "1x64x17x17 -> 192, 1x7 s1 p0x3 g1 +bias +relu",
           "1x64x17x17 -> 192, 7x1 s1 p3x0 g1 +bias +relu",
       }))
    check_tilings(p, seed);
}

// Split-K with one and several groups, even and uneven, one and many units partly outside; windows with and without
// whole lines of taps; partial tiles of filters.
HOPPER_CASE("cuda/wgmma_halo/split_k") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x64x14x8 -> 64, 1x3 s1 p0x1 g1",
           "1x128x16x10 -> 128, 3x3 s1 p0 g1",
           "1x512x7x7 -> 136, 3x3 s1 p1 g1 +bias +residual +relu",
           "2x256x15x17 -> 72, 3x3 s1 p1 g1 +bias +residual +hard_swish",
           "1x600x14x13 -> 72, 3x3 s1 p1 g1 +bias +residual +silu",
           "3x328x9x20 -> 72, 2x3 s1 p1,2,0,2 g1 d1x2 +bias +clip(-0.5,0.75)",
           "2x130x15x9 -> 70, 5x5 s1 p2 g1 +bias +relu",
       })) {
    REQUIRE(!halo_split_k_tilings(p).empty());
    check_tilings(p, seed);
  }
}

// More tiles than multiprocessors, of every size: a block has several, and loads the residual of the next one while it
// stores this one. Rows of 128 and 32 bytes, tiles of 64 and 128 filters, units partly outside in both dimensions.
HOPPER_CASE("cuda/wgmma_halo/many_tiles") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "12x64x60x60 -> 128, 1x2 s1 p0,1,0,0 g1 +bias +residual +relu",
           "12x16x61x60 -> 64, 3x3 s1 p1 g1 +bias +residual +clip(-0.5,0.75)",
           "11x64x56x56 -> 64, 1x3 s1 p0x1 g1 +bias +residual +hard_swish",
       })) {
    for (const WgmmaHaloPlan& plan : wgmma_halo_tilings(p))
      CHECK_MESSAGE(plan.tiles_m * plan.tiles_n > reference_gpu().units, p.str(), ", ", plan.str());
    check_tilings(p, seed);
  }
}

// Channels and filters that need padding to 16 bytes; the padding channels hold NaN.
HOPPER_CASE("cuda/wgmma_halo/room") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x65x9x8 -> 63, 2x1 s1 p0 g1",
           "2x100x14x13 -> 100, 3x3 s1 p1 g1 +bias +relu",
           "2x33x23x22 -> 65, 3x2 s1 p1,0,2,1 g1 +bias +residual +silu",
           "2x12x30x31 -> 21, 3x3 s1 p2x1 g1 d2x1 +bias +residual +relu",
           "9x6x60x61 -> 6, 6x6 s1 p3,2,2,3 g1 +bias +residual +hard_swish",
           "9x24x60x61 -> 10, 5x5 s1 p2 g1 +bias +residual +clip(-0.5,0.75)",
           "3x3x9x9 -> 1, 3x3 s1 p1 g1 +bias +relu",
           "1x270x7x7 -> 131, 3x3 s1 p1 g1 +bias +residual +relu",
       }))
    check_tilings(p, seed);
}

// Units of lines of 16, 32 and 64 pixels, used where they are fewer than those of 8x8; a residual read where nothing is
// stored; tiles of 96 filters.
HOPPER_CASE("cuda/wgmma_halo/units_of_other_shapes") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x64x4x14 -> 64, 3x3 s1 p1 g1",
           "3x40x28x42 -> 96, 3x3 s1 p1 g1 +bias +residual +relu",
           "3x72x11x10 -> 80, 5x5 s1 p2 g1 +bias +residual +silu",
           "2x24x12x9 -> 190, 7x7 s1 p3 g1 +bias +residual +clip(-0.5,0.75)",
           "1x64x2x30 -> 64, 3x3 s1 p1 g1",
           "2x32x28x28 -> 96, 5x5 s1 p2 g1 +bias +residual +relu",
           "3x72x13x26 -> 50, 3x7 s1 p1x3 g1 +bias +residual +hard_swish",
           "2x100x27x30 -> 21, 3x3 s1 p1 g1 +bias +residual +relu",
           "1x64x1x64 -> 64, 1x3 s1 p0x1 g1",
           "3x48x3x125 -> 288, 3x7 s1 p1x3 g1 +bias +residual +relu",
           "20x64x28x28 -> 96, 3x3 s1 p1 g1 +bias +residual +relu",
       }))
    check_tilings(p, seed);
}

// Single and merged groups; windows of one tap, whose pixels are one line; filters that stay in shared memory or not.
HOPPER_CASE("cuda/wgmma_halo/several_groups") {
  const unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "1x32x8x8 -> 32, 3x3 s1 p1 g2",
           "1x128x8x8 -> 64, 3x3 s1 p1 g2",
           "3x144x13x21 -> 48, 3x3 s1 p1 g2 +bias +residual +relu",
           "1x48x28x29 -> 264, 5x5 s1 p2 g3 +bias +residual +silu",
           "3x80x14x14 -> 320, 3x3 s1 p1 g10 +bias +relu",
           "2x64x15x17 -> 96, 3x5 s1 p2 g32 +bias +residual +clip(-0.5,0.75)",
           "2x32x20x20 -> 96, 7x7 s1 p3 g32 +bias +hard_swish",
           "3x120x9x11 -> 240, 1x1 s1 p0 g3 +bias +residual +relu",
           "2x48x33x31 -> 24, 1x1 s1 p0 g24 +bias +relu",
           "2x26x19x18 -> 34, 3x3 s1 p1 g2 +bias +residual +relu",
           "2x256x22x28 -> 256, 3x3 s1 p1 g4 +bias +residual +relu",
           "12x64x28x28 -> 128, 3x3 s1 p1 g8 +bias +clip(-0.5,0.75)",
       }))
    check_tilings(p, seed);
}

HOPPER_CASE("cuda/wgmma_halo/x_is_rounded_to_nearest") {
  ConvProblem p = parse_conv("1x128x12x12 -> 128, 3x3 s1 p1 g1");
  REQUIRE(!halo_split_k_tilings(p).empty());
  for (const Tiling& tiling : tilings_of(p))
    if (asked_for(tiling.config)) check_rounds_to_tf32("wgmma_halo", p, tiling.config);
}

// A unit reads only what its windows need: infinities of x do not spread, also beside the image.
HOPPER_CASE("cuda/wgmma_halo/infinities_stay_where_they_are") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr std::int64_t c = 136;  // three groups
  ConvProblem p = parse_conv("1x136x12x12 -> 8, 3x3 s1 p0 g1");
  p.storage = p.x_storage = DType::f16;
  Tensor x(DType::f32, {1, c, 12, 12}), w(DType::f32, {8, c, 3, 3});
  std::ranges::fill(x.values<float>(), 1.0F);
  std::ranges::fill(w.values<float>(), 0.5F);
  x.values<float>()[0] = inf;  // in the first window only
  for (const Tiling& tiling : tilings_of(p)) {
    if (!asked_for(tiling.config)) continue;
    CAPTURE(tiling.config);
    const std::vector<double> got = oracle::from_tensor(convolved("wgmma_halo", p, "fp16", x, w, tiling.config)).values;
    REQUIRE(got.size() == 8 * 100);
    bool right = true;
    for (std::size_t i = 0; i < got.size(); ++i)
      right = right && (i % 100 == 0 ? got[i] == double{inf} : got[i] == c * 9 / 2.0);
    CHECK(right);
  }
}

}  // namespace lenslet::test

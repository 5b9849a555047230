// wgmma_halo's plans: plain arithmetic, needs no device.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "ops/conv/cuda/wgmma_halo_plan.h"
#include "tests/expect_error.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::cuda {
namespace {

ConvProblem halves(ConvProblem p) {
  p.storage = p.x_storage = DType::f16;
  return p;
}

const ConvGeometry pad1{.pads = {1, 1, 1, 1}};

TEST_CASE("conv/wgmma_halo_plan/units_cover_every_pixel_once") {
  for (const auto& [h, w] : {std::pair(8, 8), std::pair(1, 1), std::pair(56, 55), std::pair(9, 17), std::pair(3, 130)})
    for (const int wide : {8, 16, 32, 64}) {
      const ConvProblem p = halves(resolve_conv({3, 16, h, w}, {16, 16, 3, 3}, pad1));
      const UnitShape unit(p, wide);
      if (!unit.fits(p)) continue;
      const UnitWalk walk(p, unit);
      std::vector<int> times(static_cast<std::size_t>(p.n * p.p * p.q));
      for (int i = 0; i < unit.units(p); ++i) {
        const UnitStart at = walk.start(i);
        REQUIRE(at.n < p.n);
        // Boxes that the four warps store; those inside are outputs.
        for (int part = 0; part < 4; ++part) {
          const std::int64_t first_y = at.p + UnitShape::part_line(part, unit.lines),
                             first_x = at.q + UnitShape::part_column(part, wide);
          for (std::int64_t y = first_y; y < std::min(first_y + unit.part_lines(), p.p); ++y)
            for (std::int64_t x = first_x; x < std::min(first_x + unit.part_columns(), p.q); ++x)
              ++times[static_cast<std::size_t>((at.n * p.p + y) * p.q + x)];
        }
      }
      CAPTURE(p.str());
      CAPTURE(wide);
      CHECK(std::ranges::all_of(times, [](int n) { return n == 1; }));
      // Units after the last are in no image.
      CHECK(walk.start(static_cast<int>(unit.units(p))).n == p.n);
    }
}

// Lines of 16 and 32 pixels are used if they need fewer units, those of 32 only for images no wider.
TEST_CASE("conv/wgmma_halo_plan/units_of_other_shapes") {
  const auto wides = [](std::int64_t h, std::int64_t w, std::int64_t window) {
    const ConvProblem p = halves(resolve_conv({2, 64, h, w}, {64, 64, window, window}, {.pads = {2, 2, 2, 2}}));
    std::vector<int> found;
    for (const WgmmaHaloPlan& plan : wgmma_halo_tilings(p))
      if (found.empty() || found.back() != plan.unit.wide) found.push_back(plan.unit.wide);
    return found;
  };
  CHECK(wides(28, 28, 5) == std::vector{8, 32});
  CHECK(wides(12, 12, 5) == std::vector{8, 16});
  CHECK(wides(56, 56, 5) == std::vector{8});
  CHECK(wides(1, 64, 5) == std::vector{8, 16, 64});
}

TEST_CASE("conv/wgmma_halo_plan/shared_memory") {
  constexpr int most = 227 << 10;
  for (const std::int64_t window : {3, 5, 7})
    for (const std::int64_t c : {8, 16, 40, 64, 256})
      for (const std::int64_t k : {8, 64, 200, 512}) {
        const ConvProblem p = halves(resolve_conv({2, c, 30, 30}, {k, c, window, window}, pad1));
        const std::vector<WgmmaHaloPlan> tilings = wgmma_halo_tilings(p);
        REQUIRE(!tilings.empty());
        for (const WgmmaHaloPlan& plan : tilings) {
          CAPTURE(p.str());
          CAPTURE(plan.str());
          CHECK(plan.total <= most);
          CHECK(plan.lines * plan.columns * plan.row_bytes <= plan.halo_bytes);
          // For consecutive lines the last ones' eights extend as far beyond the last halo tile.
          CHECK(plan.filters_at + plan.unit.halo * plan.row_bytes <= plan.total);
          // The alignment of swizzles.
          CHECK(plan.halo_bytes % 1024 == 0);
          CHECK(plan.filters_at % 1024 == 0);
          CHECK(plan.staging_at % 1024 == 0);
          CHECK(plan.barriers_at % 8 == 0);
          CHECK(plan.filters_at >= plan.halo_stages * plan.tile.units * plan.halo_bytes);
          CHECK(plan.staging_at >= plan.filters_at + plan.filter_stages * plan.filter_bytes);
          CHECK(plan.staging_at < plan.filters_at + plan.filter_stages * plan.filter_bytes + 1024);
          CHECK((plan.resident || plan.filter_stages >= 3));
          CHECK(plan.k_groups * plan.row_bytes >= p.c * 2);
          if (plan.resident) CHECK(plan.filter_stages == plan.k_groups * plan.taps);
          if (plan.filter_stages == plan.k_groups * plan.taps && plan.tiles_n == 1) CHECK(plan.resident);
          CHECK(read_wgmma_halo_plan(p, plan.str()).total == plan.total);
        }
      }
}

TEST_CASE("conv/wgmma_halo_plan/filters_stay_where_they_fit") {
  const WgmmaHaloPlan plan =
      read_wgmma_halo_plan(halves(parse_conv("64x64x56x56 -> 64, 3x3 s1 p1 g1")), "units=4 filters=64");
  CHECK(plan.resident);
  CHECK(plan.halo_stages == 2);
  CHECK(plan.lines == 10);
  CHECK(plan.columns == 10);
  // A block's tiles may keep their filters although there are others, unless many blocks were idle then.
  const auto stay = [](std::int64_t k) {
    return read_wgmma_halo_plan(halves(resolve_conv({64, 64, 56, 56}, {k, 64, 3, 3}, pad1)), "units=4 filters=64")
        .resident;
  };
  CHECK(stay(192));
  CHECK(!stay(64 * 47));
}

// As many merged groups as fill 16 bytes, and more; 1x1 in one line.
TEST_CASE("conv/wgmma_halo_plan/several_groups") {
  const auto together = [](const ConvProblem& p) {
    std::vector<std::int64_t> found;
    for (const WgmmaHaloPlan& plan : wgmma_halo_tilings(halves(p))) {
      CHECK(plan.sets * plan.together == p.groups);
      if (found.empty() || found.back() != plan.together) found.push_back(plan.together);
    }
    return found;
  };
  const auto grouped = [](std::int64_t c, std::int64_t k, std::int64_t groups, std::int64_t window) {
    return resolve_conv({2, c, 30, 30}, {k, c / groups, window, window}, {.groups = groups});
  };
  CHECK(together(grouped(384, 384, 2, 3)) == std::vector<std::int64_t>{1});
  CHECK(together(grouped(128, 256, 32, 3)) == std::vector<std::int64_t>{2, 4, 8, 16});
  CHECK(together(grouped(64, 192, 64, 3)) == std::vector<std::int64_t>{8, 16, 32});
  CHECK(together(grouped(16, 16, 4, 3)) == std::vector<std::int64_t>{2, 4});
  CHECK(together(grouped(202, 16, 2, 3)) == std::vector<std::int64_t>{2});
  const ConvProblem line = halo_set(grouped(120, 240, 3, 1), 1);
  CHECK(line.str() == "1x40x1x1800 -> 80, 1x1 s1 p0 g1");
  CHECK(refuse_wgmma_halo(halves(parse_conv("1x64x9x9 -> 64, 1x1 s1 p1 g2"))).value_or("").find("one tap") !=
        std::string::npos);
}

// Tiles of 16 filters, only in 16 bits, if there are no more.
TEST_CASE("conv/wgmma_halo_plan/few_filters") {
  const auto has = [](ConvProblem p, int filters) {
    const std::vector<WgmmaHaloPlan> tilings = wgmma_halo_tilings(p);
    return std::ranges::any_of(tilings, [&](const WgmmaHaloPlan& plan) { return plan.tile.filters == filters; });
  };
  const ConvProblem p = parse_conv("64x6x56x56 -> 13, 3x3 s1 p1 g1");
  CHECK(has(halves(p), 16));
  CHECK(!has(p, 16));
  CHECK(has(p, 32));
  CHECK(!has(halves(parse_conv("64x6x56x56 -> 17, 3x3 s1 p1 g1")), 16));
}

TEST_CASE("conv/wgmma_halo_plan/what_it_refuses") {
  const auto refusal = [](const ConvProblem& p) { return refuse_wgmma_halo(halves(p)).value_or(""); };
  CHECK(refusal(parse_conv("1x64x56x56 -> 64, 3x3 s1 p1 g1")).empty());
  CHECK(refusal(parse_conv("1x64x56x56 -> 64, 1x1 s1 p0 g1")).find("one tap") != std::string::npos);
  CHECK(refusal(parse_conv("1x64x56x56 -> 64, 3x3 s2x1 p0 g1")).find("stride") != std::string::npos);
  CHECK(refusal(parse_conv("1x64x99x99 -> 64, 3x3 s1 p0 g1 d40")).find("lines") != std::string::npos);
  CHECK(refusal(parse_conv("1x64x99x99 -> 64, 3x3 s1 p0 g1 d30")).find("fit") != std::string::npos);
  CHECK_ERROR(read_wgmma_halo_plan(halves(parse_conv("1x64x56x56 -> 64, 3x3 s1 p1 g1")), "units=3"), invalid_argument,
              "no kernel has this configuration for this problem");
}

}  // namespace
}  // namespace lenslet::cuda

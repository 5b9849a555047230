// wgmma_halo's split-K plans over clusters: plain arithmetic, needs no device.

#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "lenslet/error.h"
#include "tests/expect_error.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::cuda {
namespace {

ConvProblem halves(ConvProblem p) {
  p.storage = p.x_storage = DType::f16;
  return p;
}

const ConvGeometry pad1{.pads = {1, 1, 1, 1}};

TEST_CASE("conv/wgmma_halo_split_k_plan/units_cover_every_pixel_once") {
  for (const auto& [h, w] : {std::pair(8, 8), std::pair(1, 1), std::pair(56, 55), std::pair(15, 17)}) {
    const ConvProblem p = halves(resolve_conv({3, 128, h, w}, {16, 128, 3, 3}, pad1));
    const UnitShape unit = halo_split_k_unit(p);
    const UnitWalk walk(p, unit);
    std::vector<int> times(static_cast<std::size_t>(p.n * p.p * p.q));
    for (int i = 0; i < unit.units(p); ++i) {
      const UnitStart at = walk.start(i);
      REQUIRE(at.n < p.n);
      for (std::int64_t y = at.p; y < std::min<std::int64_t>(at.p + halo_split_k_lines, p.p); ++y)
        for (std::int64_t x = at.q; x < std::min<std::int64_t>(at.q + halo_split_k_columns, p.q); ++x)
          ++times[static_cast<std::size_t>((at.n * p.p + y) * p.q + x)];
    }
    CHECK(std::ranges::all_of(times, [](int n) { return n == 1; }));
  }
}

// Networks for 224x224 have lines in multiples of fourteen.
TEST_CASE("conv/wgmma_halo_split_k_plan/no_line_is_empty") {
  for (const std::int64_t side : {14, 28, 56, 112})
    for (const HaloSplitKPlan& plan :
         halo_split_k_tilings(halves(resolve_conv({1, 128, side, side}, {64, 128, 3, 3}, pad1)))) {
      CHECK(plan.units == side / 14 * ((side + 7) / 8));
      CHECK(plan.lines == 16);
      CHECK(plan.columns == 10);
    }
}

TEST_CASE("conv/wgmma_halo_split_k_plan/shared_memory") {
  constexpr int multiprocessor = 228 << 10, of_a_block = 1 << 10;
  for (const std::int64_t window : {2, 3, 5, 7})
    for (const std::int64_t c : {40, 64, 100, 512})
      for (const std::int64_t k : {8, 64, 200, 512}) {
        const ConvProblem p = halves(resolve_conv({1, c, 30, 30}, {k, c, window, window}, pad1));
        const std::vector<HaloSplitKPlan> tilings = halo_split_k_tilings(p);
        if (window < 7) CHECK(!tilings.empty());
        for (const HaloSplitKPlan& plan : tilings) {
          CAPTURE(p.str());
          CAPTURE(plan.str());
          // One block fits, and no second one of any kernel.
          CHECK(plan.total + of_a_block <= multiprocessor);
          CHECK(2 * (plan.total + of_a_block) > multiprocessor);
          CHECK(plan.split_k <= plan.k_groups);
          CHECK(plan.taps % plan.stage_taps == 0);
          CHECK(plan.k_groups * halo_split_k_row_bytes >= p.c * 2);
          CHECK(plan.lines * plan.columns * halo_split_k_row_bytes <= plan.halo_bytes);
          // The alignment of swizzles.
          const int first = halo_tiles_at(log2_of(plan.split_k));
          CHECK(first % 1024 == 0);
          CHECK(plan.halo_bytes % 1024 == 0);
          CHECK(plan.filter_bytes % 1024 == 0);
          CHECK(2 * (plan.halo_stages + plan.filter_stages) * 8 <= halo_split_k_barrier_bytes);
          CHECK(plan.total >= first + plan.halo_stages * plan.halo_bytes + plan.filter_stages * plan.filter_bytes);
          CHECK(plan.total >= halo_split_k_barrier_bytes + halo_split_k_acc_bytes);
          // One stage is multiplied while the other is loaded.
          CHECK((plan.split_groups() == 1 || plan.halo_stages == 2));
          CHECK((plan.filter_stages >= 3 || plan.split_groups() * plan.taps <= plan.filter_stages * plan.stage_taps));
          CHECK(is_halo_split_k(plan.str()));
          CHECK(read_halo_split_k_plan(p, plan.str()).total == plan.total);
        }
      }
}

TEST_CASE("conv/wgmma_halo_split_k_plan/every_fragment_is_finished_once") {
  constexpr int fragments = halo_split_k_filters / fragment_filters * (halo_split_k_pixels / fragment_rows);
  for (int split_k_log2 = 0; halo_split_k_filters / fragment_filters >> split_k_log2 > 0; ++split_k_log2) {
    CAPTURE(split_k_log2);
    const HaloSplitKShare share = halo_split_k_share(split_k_log2);
    const int split_k = 1 << split_k_log2;
    CHECK(share.each() * split_k == fragments);
    std::set<std::pair<int, int>> places;
    for (int fragment = 0; fragment < fragments; ++fragment) {
      CHECK(share.owner(fragment) < split_k);
      CHECK(share.slot(fragment) >= 0);
      CHECK(share.slot(fragment) < share.each());
      CHECK(share.fragment(share.owner(fragment), share.slot(fragment)) == fragment);
      CHECK(places.insert({share.owner(fragment), share.slot(fragment)}).second);
    }
    std::set<int> slots;
    CHECK(share.of_warp() <= halo_split_k_pixels / fragment_rows);  // fits the registers
    for (int warp = 0; warp < share.warps; ++warp)
      for (int i = 0; i < share.of_warp() && share.first(warp) + i < share.each(); ++i)
        CHECK(slots.insert(share.first(warp) + i).second);
    CHECK(static_cast<int>(slots.size()) == share.each());
  }
}

TEST_CASE("conv/wgmma_halo_split_k_plan/where_there_are_none") {
  const auto none = [](const ConvProblem& p) { return halo_split_k_tilings(halves(p)).empty(); };
  CHECK(!none(parse_conv("1x64x56x56 -> 64, 3x3 s1 p1 g1")));
  // Refused: a partial group of channels, several groups of the convolution, many tiles.
  CHECK(none(parse_conv("1x32x56x56 -> 64, 3x3 s1 p1 g1")));
  CHECK(none(parse_conv("1x128x56x56 -> 64, 3x3 s1 p1 g2")));
  CHECK(none(parse_conv("64x64x56x56 -> 64, 3x3 s1 p1 g1")));
  const ConvProblem p = halves(parse_conv("1x64x56x56 -> 64, 3x3 s1 p1 g1"));
  CHECK_ERROR(read_halo_split_k_plan(p, "lines=14 filters=64 split_k=2"), invalid_argument,
              "no kernel has this configuration for this problem");
  CHECK(!is_halo_split_k("units=4 filters=64"));
}

}  // namespace
}  // namespace lenslet::cuda

// wgmma_tf32's plans, and its threads' accumulators: plain arithmetic, needs no device. wgmma_gemm_plan_test.cpp tests
// what it shares with wgmma_gemm.

#include "ops/conv/cuda/wgmma_tf32_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/tf32.h"
#include "lenslet/error.h"
#include "tests/expect_error.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::test {

using namespace lenslet::cuda;

TEST_CASE("conv/wgmma_tf32_plan/rounds_to_nearest") {
  CHECK(tf32_from_f64(1) == 1);
  CHECK(tf32_from_f64(1 + 0x1p-10) == 1 + 0x1p-10F);
  CHECK(tf32_from_f64(1 + 0x1p-11) == 1 + 0x1p-10F);
  CHECK(tf32_from_f64(-1 - 0x1p-11) == -1 - 0x1p-10F);
  CHECK(tf32_from_f64(1 + 0x1p-12) == 1);
  CHECK(tf32_from_f64(2 - 0x1p-12) == 2);
  CHECK(std::isinf(tf32_from_f64(std::numeric_limits<double>::infinity())));
  CHECK(std::isnan(tf32_from_f64(std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("conv/wgmma_tf32_plan/steps_cover_gemm_k") {
  for (const std::int64_t c : {4, 32, 36, 100})
    for (const std::int64_t window : {1, 3}) {
      const ConvProblem p = resolve_conv({1, c, 5, 5}, {8, c, window, window}, {});
      const KOrder order(p);
      KWalk k_walk;
      for (std::int64_t tap = 0; tap < window * window; ++tap)
        for (std::int64_t first = 0; first < c; first += wgmma_tf32_step, k_walk.next(order, wgmma_tf32_step)) {
          CHECK(k_walk.tap == tap);
          CHECK(k_walk.c == first);
          CHECK(k_walk.tap_h == tap / window);
          CHECK(k_walk.tap_w == tap % window);
        }
      CHECK(k_walk.tap == window * window);
      CHECK(tile_wgmma_tf32(p, WgmmaTile::t128x64).steps == window * window * ((c + 31) / 32));
    }
}

TEST_CASE("conv/wgmma_tf32_plan/staged_accumulators_meet_in_no_bank") {
  std::set<int> places;
  for (int row = 0; row < tf32_staged_rows; ++row)
    for (int quad = 0; quad < tf32_staged_filters / 4; ++quad) places.insert(tf32_staged_offset(row, quad));
  CHECK(places.size() == tf32_staged_rows * tf32_staged_filters / 4);
  CHECK(*places.begin() == 0);
  CHECK(*places.rbegin() == tf32_staged_bytes - 16);
  for (const int place : places) CHECK(place % 16 == 0);

  // Stores of 16 bytes take 8 threads at a time; 32 banks of 4 bytes.
  for (int i = 0; i < 4; ++i)
    for (int first = 0; first < 32; first += 8) {
      std::set<int> banks;
      for (int lane = first; lane < first + 8; ++lane)
        banks.insert(tf32_staged_offset(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2) % 128);
      CHECK(banks.size() == 8);
    }
}

TEST_CASE("conv/wgmma_tf32_plan/threads_have_eight_filters_side_by_side") {
  std::set<int> filters;
  for (int place = 0; place < tf32_staged_filters; ++place) filters.insert(tf32_filter_at(place));
  CHECK(filters.size() == tf32_staged_filters);
  CHECK(*filters.rbegin() == tf32_staged_filters - 1);
  // An instruction's accumulators 8 * j + 2 * t + e belong to thread t.
  for (int t = 0; t < 4; ++t)
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 2; ++e) CHECK(tf32_filter_at(8 * j + 2 * t + e) == 8 * t + 2 * j + e);
}

TEST_CASE("conv/wgmma_tf32_plan/fragments_have_four_filters_a_thread") {
  // Accumulators 16 * fragment + 8 * j + 2 * t + e belong to thread t: each of a tile's fours of filters once.
  std::set<int> filters;
  for (int fragment = 0; fragment < 8; ++fragment)
    for (int t = 0; t < 4; ++t)
      for (int j = 0; j < 2; ++j)
        for (int e = 0; e < 2; ++e) {
          const int place = fragment * fragment_filters + 8 * j + 2 * t + e, in_part = place % tf32_staged_filters;
          CHECK(place - in_part + tf32_filter_at(in_part) == tf32_fragment_filter(fragment, t) + 2 * j + e);
          filters.insert(tf32_fragment_filter(fragment, t) + 2 * j + e);
        }
  CHECK(filters.size() == 128);
  CHECK(*filters.begin() == 0);
  CHECK(*filters.rbegin() == 127);
}

TEST_CASE("conv/wgmma_tf32_plan/shared_memory") {
  for (const WgmmaTileShape& tile : wgmma_tiles)
    for (const bool residual : {false, true}) {
      const WgmmaShared shared = tf32_shared_of(tile, residual);
      CAPTURE(tile.m);
      CAPTURE(tile.n);
      CHECK(shared.stages >= (residual ? 3 : 4));
      CHECK((!residual || shared.slots == 4));
      CHECK((shared.slots == 2 || shared.slots == 4));
      CHECK(shared.pixels == tile.m * 128);
      CHECK(shared.filters == tile.n * 128);
      CHECK(shared.staging == shared.stages * (shared.pixels + shared.filters));
      CHECK(shared.barriers == shared.staging + 4 * tile.consumers * shared.slots * tf32_staged_bytes);
      CHECK(shared.total == shared.barriers + 16 * shared.stages + 32 * tile.consumers * shared.slots);
      CHECK(static_cast<std::size_t>(shared.total) <= reference_gpu().shared_bytes_per_block);
    }
}

TEST_CASE("conv/wgmma_tf32_plan/tilings_and_configurations") {
  const ConvProblem p = parse_conv("8x100x28x28 -> 192, 3x3 s1 p1 g1");
  const WgmmaTf32Plan plan = tile_wgmma_tf32(p, WgmmaTile::t128x256);
  CHECK(plan.tiles_m == 49);
  CHECK(plan.tiles_n == 1);
  CHECK(plan.steps == 36);
  CHECK(plan.str() == "tile=128x256");
  for (std::size_t i = 0; i < wgmma_tiles.size(); ++i) {
    if (wgmma_tiles[i].n % tf32_staged_filters != 0) continue;
    const WgmmaTf32Plan tiling = tile_wgmma_tf32(p, static_cast<WgmmaTile>(i));
    const WgmmaTf32Plan read = read_wgmma_tf32_plan(p, tiling.str());
    CHECK(read.tile == tiling.tile);
    CHECK(read.tiles_m == tiling.tiles_m);
    CHECK(read.tiles_n == tiling.tiles_n);
    CHECK(read.steps == tiling.steps);
  }
  const WgmmaTf32Plan four = read_wgmma_tf32_plan(p, "tile=64x32 split_k=4");
  CHECK(four.split_k == 4);
  CHECK(four.split_k_tile == SplitKTile::t64x32);
  CHECK(four.tiles_m == 98);
  CHECK(four.tiles_n == 6);
  CHECK(four.steps == 36);
  for (const char* config :
       {"", "tile=", "tile=64x64", "tile=128x256 ", "tile=128x256 cluster=2", "tiles=128x256", "tile=128x256 split_k=2",
        "tile=64x64 split_k=0", "tile=64x64 split_k=3", "tile=64x64 split_k=16", "tile=64x64 split_k=4 width=32"}) {
    CAPTURE(config);
    CHECK_ERROR((void)read_wgmma_tf32_plan(p, config), invalid_argument,
                "no kernel has this configuration for this problem");
  }
  // A single k-block cannot be split.
  CHECK_ERROR((void)read_wgmma_tf32_plan(parse_conv("1x32x14x14 -> 64, 1x1 s1 p0 g1"), "tile=64x64 split_k=2"),
              invalid_argument, "no kernel has this configuration for this problem");
}

TEST_CASE("conv/wgmma_tf32_plan/every_tiling_reads_back_as_itself") {
  for (const ConvProblem& p :
       {parse_conv("1x512x7x7 -> 512, 3x3 s1 p1 g1"), parse_conv("8x16x55x55 -> 64, 3x3 s1 p1 g1"),
        parse_conv("64x24x56x56 -> 144, 1x1 s1 p0 g1"), parse_conv("1x36x5x5 -> 4, 1x1 s1 p0 g1"),
        parse_conv("1x4x1x1 -> 4, 1x1 s1 p0 g1")}) {
    CAPTURE(p.str());
    std::set<std::string> configs;
    const std::vector<WgmmaTf32Plan> tilings = wgmma_tf32_tilings(p);
    for (const WgmmaTf32Plan& tiling : tilings) {
      CAPTURE(tiling.str());
      configs.insert(tiling.str());
      const WgmmaTf32Plan read = read_wgmma_tf32_plan(p, tiling.str());
      CHECK(read.str() == tiling.str());
      CHECK(read.tiles_m == tiling.tiles_m);
      CHECK(read.tiles_n == tiling.tiles_n);
      CHECK(read.steps == tiling.steps);
      CHECK(tiling.split_k <= tiling.steps);
      CHECK(tiling.tiles_m * tiling.m() >= p.n * p.p * p.q);
      CHECK(tiling.tiles_n * tiling.n() >= p.k);
      CHECK(tiling.steps * wgmma_tf32_step >= p.r * p.s * p.c);
      const double us = wgmma_tf32_us(p, tiling, reference_gpu());
      const double floor_us =
          std::max(p.flops() / reference_gpu().tf32_flops_per_us, p.bytes() / reference_gpu().bytes_per_us);
      const double least_us = floor_us + reference_gpu().launch_us;
      CHECK(us >= least_us);
      CHECK(us <= 40 * least_us);  // 32: a tile of 64x32 with split-K by eight
    }
    CHECK(configs.size() == tilings.size());
    CHECK(configs.count("tile=64x64 split_k=1") == 1);
    CHECK(configs.count("tile=64x64 split_k=8") == (tilings.front().steps >= 8 ? 1 : 0));
  }
}

TEST_CASE("conv/wgmma_tf32_plan/estimate") {
  const DeviceProfile& device = reference_gpu();
  const auto us = [&](const ConvProblem& p) {
    const double estimate = wgmma_tf32_us(p, plan_wgmma_tf32(p), device);
    // 384 TFLOP/s is sustained over seconds: 64x512x28x28 -> 512, 3x3, takes 542 us, where that would be 617.
    CHECK(estimate >= 0.9 * p.flops() / device.tf32_flops_per_us);
    CHECK(estimate >= p.bytes() / device.bytes_per_us);
    return estimate;
  };
  const ConvProblem large = parse_conv("64x512x28x28 -> 512, 3x3 s1 p1 g1");
  CHECK(us(large) <= 1.6 * large.flops() / device.tf32_flops_per_us);
  CHECK(us(parse_conv("8x512x28x28 -> 512, 3x3 s1 p1 g1")) < us(large));
  CHECK(us(parse_conv("1x64x7x7 -> 64, 1x1 s1 p0 g1")) > 0);
  // Few filters need a narrow tile.
  const WgmmaTf32Plan few_filters = plan_wgmma_tf32(parse_conv("64x64x56x56 -> 64, 3x3 s1 p1 g1"));
  CHECK(few_filters.n() == 64);
  CHECK(few_filters.split_k == 0);
  // Few tiles and a large k need split-K, large products do not.
  CHECK(plan_wgmma_tf32(parse_conv("1x512x7x7 -> 512, 3x3 s1 p1 g1")).split_k >= 4);
  CHECK(plan_wgmma_tf32(parse_conv("1x512x14x14 -> 512, 3x3 s1 p1 g1")).split_k >= 2);
  CHECK(plan_wgmma_tf32(parse_conv("1x2048x7x7 -> 512, 1x1 s1 p0 g1")).split_k >= 2);
  CHECK(plan_wgmma_tf32(large).split_k == 0);
}

}  // namespace lenslet::test

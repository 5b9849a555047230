// Plans of grouped_mma and grouped_tf32, and where a warp's operands are: plain arithmetic, needs no device.

#include "ops/conv/cuda/grouped_mma_plan.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>

#include "lenslet/error.h"
#include "tests/expect_error.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

ConvProblem problem(std::int64_t n, std::int64_t c, std::int64_t size, std::int64_t group, std::int64_t stride = 1,
                    std::int64_t window = 3, std::int64_t dilation = 1) {
  ConvGeometry geometry{.stride = {stride, stride}, .dilation = {dilation, dilation}};
  geometry.pads.fill(window / 2 * dilation);
  geometry.groups = c / group;
  return resolve_conv({n, c, size, size}, {c, group, window, window}, geometry);
}

ConvProblem in_halves(ConvProblem p) {
  p.storage = p.x_storage = DType::f16;
  return p;
}

}  // namespace

TEST_CASE("conv/grouped_mma_plan/sets_hold_whole_groups") {
  const std::int64_t widths[][2] = {{4, 1},  {8, 1},  {12, 3}, {16, 2}, {24, 3}, {32, 4}, {48, 6},
                                    {64, 8}, {20, 5}, {40, 5}, {56, 7}, {72, 0}, {6, 0},  {1, 0}};
  for (const auto& width : widths) {
    const ConvProblem p = problem(1, width[0] * 16, 7, width[0]);
    CHECK_MESSAGE(grouped_set_eights(p) == width[1], p.str());
    CHECK_MESSAGE(grouped_set_eights(in_halves(p)) == (width[1] <= 4 ? width[1] : 0), p.str());
  }
}

TEST_CASE("conv/grouped_mma_plan/tilings_cover_the_problem") {
  for (const ConvProblem& p :
       {problem(2, 128, 56, 4), problem(1, 1024, 7, 32), problem(1, 24, 9, 24, 2), problem(1, 192, 14, 48),
        problem(3, 64, 5, 64, 1, 5), problem(2, 64, 20, 16, 1, 1), problem(2, 96, 20, 24, 1, 1),
        problem(1, 112, 14, 56), problem(1, 36 * 8, 20, 12, 3), in_halves(problem(2, 128, 56, 4)),
        in_halves(problem(1, 1024, 7, 32)), in_halves(problem(1, 24, 9, 24, 2)),
        in_halves(problem(2, 64, 20, 16, 1, 1)), in_halves(problem(1, 36 * 8, 20, 12, 3))})
    for (const GroupedTiling& tiling : grouped_tilings(p)) {
      const std::string where = p.str() + ", " + tiling.str();
      CHECK_MESSAGE(tiling.warps >= 1, where);
      CHECK_MESSAGE(tiling.warps <= grouped_most_warps, where);
      CHECK_MESSAGE(tiling.filter_eights <= grouped_most_filter_eights, where);
      // Warps side by side cover the block's filters, stacked ones the tile's rows.
      CHECK_MESSAGE(tiling.warps / tiling.row_groups * tiling.filter_eights * 8 == tiling.channels, where);
      const std::int64_t rows =
          grouped_warp_rows(tiling.half, tiling.set_eights, tiling.rows_together == 1 ? 2 : p.stride_h);
      CHECK_MESSAGE(tiling.row_groups * rows * 16 == tiling.tile_p * tiling.tile_q, where);
      CHECK_MESSAGE(tiling.channels % (8 * tiling.set_eights) == 0, where);
      const auto covered = [](std::int64_t size, std::int64_t part) { return (size + part - 1) / part; };
      CHECK_MESSAGE(tiling.blocks ==
                        p.n * covered(p.p, tiling.tile_p) * covered(p.q, tiling.tile_q) * covered(p.c, tiling.channels),
                    where);
      // All accumulators fit the staging memory.
      CHECK_MESSAGE(
          tiling.shared_bytes() >= static_cast<std::size_t>(16 * tiling.tile_p * tiling.tile_q * tiling.laid_vectors),
          where);
    }
}

TEST_CASE("conv/grouped_mma_plan/taps_find_their_columns") {
  for (const std::int64_t stride : {1, 2, 3, 5})
    for (const std::int64_t window : {1, 2, 3, 5})
      for (const std::int64_t dilation : {1, 2, 3}) {
        const ConvProblem p = problem(1, 32, 40, 8, stride, window, dilation);
        for (const GroupedTiling& tiling : grouped_tilings(p))
          for (std::int64_t q = 0; q < tiling.tile_q; ++q)
            for (std::int64_t s = 0; s < window; ++s) {
              // As the kernel indexes it, and as it was packed.
              const std::int64_t tap = s * dilation, in_phase = tap / stride + q, phase = tap % stride;
              CHECK(in_phase < tiling.phase_pixels);
              CHECK(phase < tiling.phases);
              CHECK(in_phase * stride + phase == q * stride + tap);
            }
        for (const GroupedTiling& tiling : grouped_tilings(in_halves(p))) {
          CHECK(tiling.phases == 1);
          CHECK(tiling.tile_q * stride + (window - 1) * dilation - stride < tiling.phase_pixels + tiling.beyond);
        }
      }
}

TEST_CASE("conv/grouped_mma_plan/pixels_meet_in_no_bank") {
  for (const std::int64_t group : {4, 16, 24, 40, 48, 56})
    for (const GroupedTiling& tiling : grouped_tilings(problem(1, group * 16, 14, group))) {
      // ldmatrix reads 16 bytes of eight adjacent pixels at a time.
      std::set<std::int64_t> read;
      for (std::int64_t pixel = 0; pixel < 8; ++pixel) read.insert(pixel * tiling.pixel_vectors % 8);
      CHECK_MESSAGE(read.size() == 8, tiling.str());
      // Accumulators are written by 8 bytes, half a warp at a time: four pixels of four neighbours.
      std::set<std::int64_t> written;
      for (std::int64_t lane = 0; lane < 16; ++lane)
        written.insert((lane / 4 * tiling.laid_vectors * 16 + lane % 4 * 8) % 128);
      CHECK_MESSAGE(written.size() == 16, tiling.str());
    }
}

TEST_CASE("conv/grouped_mma_plan/filters_lie_apart") {
  for (const std::int64_t group : {8, 16, 24})
    for (const bool half : {false, true}) {
      const ConvProblem p = half ? in_halves(problem(1, 96, 7, group)) : problem(1, 96, 7, group);
      const GroupedFilters filters(p);
      const std::int64_t sets = 96 / (8 * filters.eights), steps = filters.steps();
      std::set<std::int64_t> places;
      for (std::int64_t set = 0; set < sets; ++set)
        for (std::int64_t step = 0; step < steps; ++step)
          for (std::int64_t r = 0; r < 3; ++r)
            for (std::int64_t into = 0; into < filters.eights; ++into) places.insert(filters.at(set, step, r, into));
      const std::int64_t fragments = sets * steps * 3 * filters.eights;
      CHECK(static_cast<std::int64_t>(places.size()) == fragments);
      CHECK(*places.begin() == 0);
      CHECK(*places.rbegin() == (fragments - 1) * 64);
      // A k-block's vectors are all of the set's channels at all columns, once.
      std::set<std::pair<std::int64_t, std::int64_t>> read;
      for (std::int64_t step = 0; step < steps; ++step)
        for (const std::int64_t i : {0, 1})
          if (filters.column(step, i) < 3 && filters.channel(step, i) < 8 * filters.eights)
            CHECK(read.insert({filters.column(step, i), filters.channel(step, i)}).second);
      CHECK(static_cast<std::int64_t>(read.size()) == 3 * filters.vectors);
    }
}

TEST_CASE("conv/grouped_mma_plan/configurations") {
  const DeviceProfile& device = reference_gpu();
  const ConvProblem p = problem(8, 256, 28, 16);
  std::set<std::string> texts;
  for (const GroupedTiling& tiling : grouped_tilings(p)) {
    CHECK(texts.insert(tiling.str()).second);
    if (device.refuse_shared(tiling.shared_bytes())) continue;
    const GroupedTiling read = read_grouped_tiling(p, tiling.str(), device);
    CHECK(read.str() == tiling.str());
    CHECK(read.warps == tiling.warps);
    CHECK(read.shared_bytes() == tiling.shared_bytes());
  }
  CHECK(texts.count("filters=16 tile=8x16 channels=64") == 1);
  for (const char* const config : {"", "filters=16", "filters=24 tile=8x16 channels=64",
                                   "filters=16 tile=9x16 channels=64", "filters=16 tile=8x16 channels=40",
                                   "filters=16 tile=8x16 channels=64 split_k=2", "tile=8x16 filters=16 channels=64"})
    CHECK_ERROR((void)read_grouped_tiling(p, config, device), invalid_argument,
                "no kernel has this configuration for this problem; there are: filters=");
  for (const int rows : {1, 3})
    CHECK(read_grouped_tiling(in_halves(p), "rows=" + std::to_string(rows), device).rows_together == rows);
  for (const char* const config : {"", "rows=2", "rows=3 split_k=2", "filters=16 tile=8x16 channels=64"})
    CHECK_ERROR((void)read_grouped_tiling(in_halves(p), config, device), invalid_argument,
                "no kernel has this configuration for this problem; there are: rows=3, rows=1");
}

TEST_CASE("conv/grouped_mma_plan/estimate") {
  const DeviceProfile& device = reference_gpu();
  for (const std::int64_t n : {1, 8, 64})
    for (const std::int64_t group : {4, 8, 16, 24, 32, 48, 64}) {
      const ConvProblem p = problem(n, 4 * group, 28, group);
      const auto tiling = plan_grouped(p, device);
      REQUIRE(tiling.has_value());
      CHECK(grouped_us(p, *tiling, device) >= p.bytes() / device.bytes_per_us);
      CHECK(grouped_us(p, *tiling, device) >= p.flops() / device.tf32_flops_per_us);
    }
  // Memory-bound problems are not estimated above their measured time: 97 us, where a copy takes 48.
  const ConvProblem wide = problem(64, 128, 56, 4);
  CHECK(grouped_us(wide, plan_grouped(wide, device).value(), device) <= 2.4 * wide.bytes() / device.bytes_per_us);
  // A device with little shared memory gets a smaller tile, one without any nothing.
  DeviceProfile small = device;
  small.shared_bytes_per_block = 16 << 10;
  CHECK(plan_grouped(wide, small).value().shared_bytes() <= small.shared_bytes_per_block);
  small.shared_bytes_per_block = 1 << 10;
  CHECK(!plan_grouped(wide, small).has_value());
}

}  // namespace lenslet::test

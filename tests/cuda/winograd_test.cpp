// Winograd in every compiled configuration. The planner's choice is tested by conv_test.cpp. No bit of a result depends
// on the configuration.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "ops/conv/cuda/winograd_plan.h"
#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

std::vector<Tiling> tilings_of(const Planned& of, int m) {
  const WinogradPlan planned = plan_winograd(of.problem, m, of.device);
  const int width = winograd_width(m, planned.r);
  std::vector<Tiling> tilings;
  // All tiles at once, a tail of one, and tails with partial blocks of the product.
  for (const int chunk : {planned.count, planned.count - 1, (planned.count + 2) / 3, 1}) {
    if (chunk < 1 || planned.count / chunk > 40) continue;
    WinogradPlan plan = planned;
    plan.chunk = chunk;
    for (const GemmTile tile : AllGemmTiles::all) {
      plan.tile = tile;
      for (const bool wide : {false, true}) {
        plan.wide_input = wide && of.problem.c % width == 0;
        plan.wide_output = wide && of.problem.k % width == 0;
        tilings.push_back({plan.str(), "", (plan.v_floats() + plan.product_floats()) * sizeof(float)});
      }
    }
  }
  return tilings;
}

/// Square filters of r: pads from 0 to 3, odd sizes, channels with a partial k-block and no wide thread, several tiles
/// of the product in both dimensions, with and without an epilogue.
void check_form(std::string_view name, int m, std::int64_t r) {
  const unsigned seed = random_seed();
  const std::string window = fmt::format("{0}x{0}", r);
  for (const ConvProblem& p : convs({
           "1x16x" + window + " -> 4, " + window + " s1 p0 g1",
           "2x32x17x19 -> 64, " + window + " s1 p1 g1",
           "3x20x13x11 -> 70, " + window + " s1 p2 g1 +bias +residual +relu",
           "2x7x23x14 -> 33, " + window + " s1 p3 g1 +bias +residual +silu",
           "2x64x60x60 -> 64, " + window + " s1 p0 g1",
           "5x36x9x21 -> 132, " + window + " s1 p0,1,2,3 g1 +bias +residual",
       }))
    CHECK(check_tilings(name, p, "fp32", seed, [m](const Planned& planned) { return tilings_of(planned, m); }) >= 10);
}

}  // namespace

TEST_CASE("cuda/winograd/every_tiling/f2_3x3") { check_form("winograd_f2", 2, 3); }
TEST_CASE("cuda/winograd/every_tiling/f4_3x3") { check_form("winograd_f4", 4, 3); }
TEST_CASE("cuda/winograd/every_tiling/f2_5x5") { check_form("winograd_f2_5x5", 2, 5); }
TEST_CASE("cuda/winograd/every_tiling/f4_5x5") { check_form("winograd_f4_5x5", 4, 5); }
TEST_CASE("cuda/winograd/every_tiling/f2_7x7") { check_form("winograd_f2_7x7", 2, 7); }

}  // namespace lenslet::test

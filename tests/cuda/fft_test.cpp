// fft in every compiled configuration. The planner's choice is tested by conv_test.cpp. With one tile size no bit of a
// result depends on the configuration.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "ops/conv/cuda/fft_plan.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

std::vector<Tiling> tilings_of(const Planned& of) {
  std::vector<Tiling> tilings;
  for (const int size : fft_sizes) {
    if (std::max(of.problem.r, of.problem.s) > largest_fft_window(size)) continue;
    const FftPlan planned = plan_fft(of.problem, size, of.device);
    // All tiles at once, and in chunks with a tail and partial blocks of the products.
    for (const int chunk : {planned.count, (planned.count + 2) / 3, 1}) {
      if (chunk < 1 || planned.count / chunk > 40) continue;
      FftPlan plan = planned;
      plan.chunk = chunk;
      for (std::size_t tile = 0; tile < fft_product_tiles.size(); ++tile) {
        if (chunk != (planned.count + 2) / 3 && tile > 0) break;
        plan.tile = static_cast<FftProductTile>(tile);
        tilings.push_back(
            {plan.str(), fmt::format("{}", size), (plan.v_floats() + plan.product_floats()) * sizeof(float)});
      }
    }
  }
  return tilings;
}

}  // namespace

// Windows that are not square and the largest ones, pads up to the window, one output, odd sizes, channels with a
// partial k-block, several tiles of the products in both dimensions, with and without an epilogue.
TEST_CASE("cuda/fft/every_tiling") {
  const unsigned seed = random_seed();
  const std::vector<ConvProblem> problems = convs({
      "1x16x5x5 -> 4, 5x5 s1 p0 g1",
      "2x32x47x39 -> 64, 5x7 s1 p1 g1",
      "3x20x33x31 -> 70, 9x4 s1 p8x3 g1 +bias +residual +relu",
      "2x7x23x44 -> 33, 11x11 s1 p3,5,0,10 g1 +bias +residual +silu",
      "1x3x50x50 -> 5, 17x17 s1 p0 g1",
      "35x12x9x21 -> 132, 5x5 s1 p0,1,2,3 g1 +bias +residual",
  });
  for (std::size_t i = 0; i < std::size(problems); i += reduced() ? 3 : 1)
    CHECK(check_tilings("fft", problems[i], "fp32", seed, tilings_of) >= 5);
}

}  // namespace lenslet::test

// fft cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that. Of tiles
// of one size no bit of a result depends on how it is cut.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "ops/conv/cuda/fft_plan.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/every_cut.h"
#include "tests/cuda/fused.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

std::vector<Cut> cuts_of(const Planned& of) {
  std::vector<Cut> cuts;
  for (const int size : fft_sizes) {
    if (std::max(of.problem.r, of.problem.s) > largest_fft_window(size)) continue;
    const FftPlan planned = plan_fft(of.problem, size, of.device);
    // All tiles at once, and in chunks that leave tails and blocks of the products in part.
    for (const int chunk : {planned.count, (planned.count + 2) / 3, 1}) {
      if (chunk < 1 || planned.count / chunk > 40) continue;
      FftPlan plan = planned;
      plan.chunk = chunk;
      for (std::size_t tile = 0; tile < fft_product_tiles.size(); ++tile) {
        if (chunk != (planned.count + 2) / 3 && tile > 0) break;
        plan.tile = static_cast<FftProductTile>(tile);
        cuts.push_back(
            {plan.str(), fmt::format("{}", size), (plan.v_floats() + plan.product_floats()) * sizeof(float)});
      }
    }
  }
  return cuts;
}

}  // namespace

// Windows that are not square and the largest, pads up to the window, one output, odd sizes, channels that fill no step
// of the products, several tiles of theirs both ways, with and without what is fused.
TEST_CASE("cuda/fft/every_cut") {
  const unsigned seed = random_seed();
  const ConvProblem problems[] = {
      resolve_conv({1, 16, 5, 5}, {4, 16, 5, 5}, {}),
      resolve_conv({2, 32, 47, 39}, {64, 32, 5, 7}, {.pads = {1, 1, 1, 1}}),
      fused(resolve_conv({3, 20, 33, 31}, {70, 20, 9, 4}, {.pads = {8, 3, 8, 3}}), relu),
      fused(resolve_conv({2, 7, 23, 44}, {33, 7, 11, 11}, {.pads = {3, 5, 0, 10}}), silu),
      resolve_conv({1, 3, 50, 50}, {5, 3, 17, 17}, {}),
      fused(resolve_conv({35, 12, 9, 21}, {132, 12, 5, 5}, {.pads = {0, 1, 2, 3}}), {}),
  };
  for (std::size_t i = 0; i < std::size(problems); i += reduced() ? 3 : 1)
    CHECK(check_cuts("fft", problems[i], "fp32", seed, cuts_of) >= 5);
}

}  // namespace lenslet::test

// direct_tile cut in every way: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "tests/cuda/every_cut.h"
#include "tests/cuda/fused.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

/// Groups of six filters and of eight, blocks of one warp to eight, channels all at once, in two chunks and one by one.
std::vector<Cut> cuts_of(const Planned& planned) {
  std::vector<Cut> cuts;
  const std::int64_t c = planned.problem.c;
  for (const int filters : {6, 8})
    for (const auto& [warps_p, warps_k] : {std::pair{1, 1}, {1, 3}, {2, 1}, {2, 4}, {4, 2}, {8, 1}, {1, 8}})
      for (const std::int64_t chunk : std::set<std::int64_t>{c, (c + 1) / 2, 1}) {
        const std::string config =
            fmt::format("filters={} warps_p={} warps_k={} chunk={}", filters, warps_p, warps_k, chunk);
        cuts.push_back({config, config});
      }
  return cuts;
}

}  // namespace

// The window of 3x3 that is known and others, strides, dilations and pads; outputs and filters that fill no block.
TEST_CASE("cuda/direct_tile/every_cut") {
  unsigned seed = random_seed();
  const ConvGeometry pad{.pads = {1, 1, 1, 1}};
  const ConvProblem problems[] = {
      activated(resolve_conv({2, 6, 19, 37}, {21, 6, 3, 3}, pad), relu),
      fused(resolve_conv({1, 2, 33, 18}, {64, 2, 3, 3}, {.stride = {2, 2}, .pads = {1, 1, 1, 1}}), silu),
      fused(resolve_conv({1, 3, 17, 40}, {13, 3, 5, 3}, {.stride = {1, 2}, .pads = {2, 1, 0, 3}}), clip),
      resolve_conv({3, 4, 9, 11}, {8, 4, 1, 1}, {}),
      activated(resolve_conv({1, 7, 20, 23}, {9, 7, 2, 3}, {.dilation = {2, 3}, .pads = {1, 2, 0, 3}}), hard_swish),
  };
  for (const ConvProblem& p : problems) check_cuts("direct_tile", p, "fp32", seed++, cuts_of, 4);
}

}  // namespace lenslet::test

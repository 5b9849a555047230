// direct_tile in every tile configuration. The planner's choice is tested by conv_test.cpp.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

/// Groups of six and eight filters, blocks of one to eight warps; all channels at once, in two chunks, and one by one.
std::vector<Tiling> tilings_of(const Planned& planned) {
  std::vector<Tiling> tilings;
  const std::int64_t c = planned.problem.c;
  for (const int filters : {6, 8})
    for (const auto& [warps_p, warps_k] : {std::pair{1, 1}, {1, 3}, {2, 1}, {2, 4}, {4, 2}, {8, 1}, {1, 8}})
      for (const std::int64_t chunk : std::set<std::int64_t>{c, (c + 1) / 2, 1}) {
        const std::string config =
            fmt::format("filters={} warps_p={} warps_k={} chunk={}", filters, warps_p, warps_k, chunk);
        tilings.push_back({config, config});
      }
  return tilings;
}

}  // namespace

// The specialised 3x3 window and others, strides, dilations and pads; partial blocks of outputs and filters.
TEST_CASE("cuda/direct_tile/every_tiling") {
  unsigned seed = random_seed();
  for (const ConvProblem& p : convs({
           "2x6x19x37 -> 21, 3x3 s1 p1 g1 +bias +relu",
           "1x2x33x18 -> 64, 3x3 s2 p1 g1 +bias +residual +silu",
           "1x3x17x40 -> 13, 5x3 s1x2 p2,1,0,3 g1 +bias +residual +clip(-0.5,0.75)",
           "3x4x9x11 -> 8, 1x1 s1 p0 g1",
           "1x7x20x23 -> 9, 2x3 s1 p1,2,0,3 g1 d2x3 +bias +hard_swish",
       }))
    check_tilings("direct_tile", p, "fp32", seed++, tilings_of, 4);
}

}  // namespace lenslet::test

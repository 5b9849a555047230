// grouped_tf32 in every tile configuration, and its rounding. The planner's choice is tested by conv_test.cpp.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/conv/cuda/grouped_mma_plan.h"
#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {

using namespace lenslet::cuda;

TEST_CASE("cuda/grouped_tf32/every_tiling") {
  const unsigned seed = random_seed();
  // Groups of every width; partial tiles and blocks of channels; specialised and other strides, dilations, windows of
  // other heights, uneven pads; more blocks than multiprocessors.
  for (const ConvProblem& p : convs({
           "2x72x19x21 -> 72, 3x3 s1 p1 g18 +bias +relu",
           "1x136x33x18 -> 136, 3x3 s2 p1 g17 +bias +residual +silu",
           "1x72x11x9 -> 72, 3x3 s1 p1 g6 +bias",
           "2x160x14x14 -> 160, 3x3 s1 p1 g10 +bias +residual +relu",
           "1x168x15x33 -> 168, 3x3 s2 p1 g7 +bias +relu",
           "3x160x7x7 -> 160, 3x3 s1 p1 g5 +bias +residual +silu",
           "1x120x10x9 -> 120, 3x3 s2 p1 g6 +bias +relu",
           "2x112x7x9 -> 112, 3x3 s1 p1 g2 +bias +residual",
           "1x144x9x17 -> 144, 3x3 s2 p1 g3 +bias",
           "1x192x14x14 -> 192, 3x3 s1 p1 g3 +bias +residual +relu",
           "1x48x20x23 -> 48, 5x3 s3x2 p2,1,0,3 g3 d1x2 +bias +relu",
           "1x64x13x40 -> 64, 1x2 s2x3 p0 g8 +bias +residual",
           "40x128x17x17 -> 128, 3x3 s1 p1 g32 +bias +relu",
       }))
    check_tilings("grouped_tf32", p, "tf32", seed, [](const Planned& planned) {
      std::vector<Tiling> tilings;
      for (const GroupedTiling& tiling : grouped_tilings(planned.problem))
        if (!planned.device.refuse_shared(tiling.shared_bytes())) tilings.push_back({tiling.str()});
      return tilings;
    });
}

TEST_CASE("cuda/grouped_tf32/x_is_rounded_to_nearest") {
  check_rounds_to_tf32("grouped_tf32", parse_conv("2x64x12x12 -> 64, 3x3 s1 p1 g4"));
}

}  // namespace lenslet::test

// grouped_mma with one and with three rows of taps at once. The planner's choice is tested by conv_test.cpp.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

std::vector<Tiling> rows_of_taps(const Planned& planned) {
  std::vector<Tiling> tilings{{"rows=1", "rows=1"}};
  if (planned.candidate.config != "rows=1") tilings.push_back({planned.candidate.config, planned.candidate.config});
  return tilings;
}

}  // namespace

// Groups of every width; specialised and other strides, dilations, uneven pads, windows of other heights; partial tiles
// and blocks of channels; more blocks than multiprocessors.
TEST_CASE("cuda/grouped_mma/rows_of_taps") {
  unsigned seed = random_seed();
  const std::vector<ConvProblem> problems = convs({
      "2x72x19x21 -> 72, 3x3 s1 p1 g18 +bias +relu",
      "1x136x33x18 -> 136, 3x3 s2 p1 g17 +bias +residual +silu",
      "1x72x11x9 -> 72, 3x3 s1 p1 g6",
      "2x160x14x14 -> 160, 3x3 s1 p1 g10 +bias +residual +clip(-0.5,0.75)",
      "1x120x15x33 -> 120, 3x3 s2 p1 g5 +bias +hard_swish",
      "3x160x7x7 -> 160, 3x3 s1 p1 g5 +bias +residual +relu",
      "1x96x20x23 -> 96, 5x3 s3x2 p2,1,0,3 g6 d1x2 +bias +relu",
      "1x64x13x40 -> 64, 1x2 s2x3 p0 g8",
      "40x128x17x17 -> 128, 3x3 s1 p1 g32 +bias +residual +relu",
  });
  for (const char* const precision : {"fp16", "bf16"})
    for (const ConvProblem& p : problems) check_tilings("grouped_mma", p, precision, seed++, rows_of_taps, 1);
}

}  // namespace lenslet::test

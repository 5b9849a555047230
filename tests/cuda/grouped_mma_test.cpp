// grouped_mma by one row of taps at once and by three: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cuda/every_cut.h"
#include "tests/cuda/fused.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

std::vector<Cut> rows_of_taps(const Planned& planned) {
  std::vector<Cut> cuts{{"rows=1", "rows=1"}};
  if (planned.candidate.config != "rows=1") cuts.push_back({planned.candidate.config, planned.candidate.config});
  return cuts;
}

ConvProblem grouped(const Shape& x, std::int64_t width, std::int64_t r, std::int64_t s, ConvGeometry geometry) {
  geometry.groups = x[1] / width;
  return resolve_conv(x, {x[1], width, r, s}, geometry);
}

}  // namespace

// Groups of every width; strides that are known and others, dilations, pads of different width, windows of other
// heights; tiles and blocks of channels in part; more blocks than multiprocessors.
TEST_CASE("cuda/grouped_mma/rows_of_taps") {
  unsigned seed = random_seed();
  const ConvGeometry same{.pads = {1, 1, 1, 1}}, half{.stride = {2, 2}, .pads = {1, 1, 1, 1}};
  const ConvProblem problems[] = {
      activated(grouped({2, 72, 19, 21}, 4, 3, 3, same), relu),
      fused(grouped({1, 136, 33, 18}, 8, 3, 3, half), silu),
      grouped({1, 72, 11, 9}, 12, 3, 3, same),
      fused(grouped({2, 160, 14, 14}, 16, 3, 3, same), clip),
      activated(grouped({1, 120, 15, 33}, 24, 3, 3, half), hard_swish),
      fused(grouped({3, 160, 7, 7}, 32, 3, 3, same), relu),
      activated(grouped({1, 96, 20, 23}, 16, 5, 3, {.stride = {3, 2}, .dilation = {1, 2}, .pads = {2, 1, 0, 3}}), relu),
      grouped({1, 64, 13, 40}, 8, 1, 2, {.stride = {2, 3}}),
      fused(grouped({40, 128, 17, 17}, 4, 3, 3, same), relu),
  };
  for (const char* const precision : {"fp16", "bf16"})
    for (const ConvProblem& p : problems) check_cuts("grouped_mma", p, precision, seed++, rows_of_taps, 1);
}

}  // namespace lenslet::test

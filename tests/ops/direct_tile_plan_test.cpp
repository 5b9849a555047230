// Refusals of direct_tile and the thread mappings of ladder/, and their packed filters. Needs no device.

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "ops/conv/cuda/direct_mappings.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

ConvProblem problem(const Shape& x, std::int64_t k, std::int64_t size, std::int64_t groups = 1) {
  return resolve_conv(x, {k, x[1] / groups, size, size}, {.groups = groups});
}

}  // namespace

TEST_CASE("conv/direct_tile_plan/groups_large_filters_and_many_channels_are_refused") {
  CHECK(refuse_direct(problem({1, 64, 11, 11}, 8, 11)) == std::nullopt);
  CHECK(refuse_direct(problem({1, 64, 11, 11}, 8, 3, 2)) == "grouped filters");
  CHECK(refuse_direct(problem({1, 3, 12, 12}, 8, 12)) == "a filter larger than 11x11");
  CHECK(refuse_direct(problem({1, 65, 11, 11}, 8, 3)) ==
        "more than 64 input channels: a matrix product reuses them better");
  CHECK(refuse_direct(problem({1, 1, 3, 3}, 0xffff, 3)) == std::nullopt);
  CHECK(refuse_direct(problem({1, 1, 3, 3}, 0x10000, 3)) == "a tensor beyond 32-bit offsets");
}

// Filter k is at k % 6 of group k / 6, for each c, r, s; unused places are 0.
TEST_CASE("conv/direct_tile_plan/filters_lie_in_groups_of_eight_floats") {
  const ConvProblem p = problem({1, 3, 9, 9}, 14, 2);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> w(14 * 12), scale(14);
  for (std::vector<float>* values : {&w, &scale})
    for (float& value : *values) value = normal(random);
  REQUIRE(grouped_floats(p, 6) == 12 * 3 * 8);
  std::vector<float> packed(12 * 3 * 8, -1);
  group_filters(p, {.w = w.data(), .scale = scale.data(), .gemm_k = 12}, 6, packed);
  for (std::size_t at = 0; at < packed.size(); ++at) {
    const std::size_t k_index = at / 24, k = at / 8 % 3 * 6 + at % 8;
    const bool filled = at % 8 < 6 && k < 14;
    CAPTURE(at);
    CHECK(packed[at] == (filled ? static_cast<float>(double{w[k * 12 + k_index]} * double{scale[k]}) : 0.0F));
  }
}

}  // namespace lenslet::test

// direct_lines: refusals, the estimate, and the last blocks of channels and pixels. conv_test.cpp checks its values on
// problems of all kinds.

#include <doctest/doctest.h>

#include "ops/conv/conv.h"
#include "ops/conv/cpu/lines.h"
#include "ops/gemm/gemm.h"
#include "tests/ops/conv_data.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

const Kernel& algorithm() { return *find_kernel("Conv", DeviceKind::cpu, "direct_lines"); }

ConvProblem problem(const Shape& x, std::int64_t k, std::int64_t groups, std::int64_t size = 3) {
  const std::int64_t pad = size / 2;
  return resolve_conv(x, {k, x[1] / groups, size, size}, {.pads = {pad, pad, pad, pad}, .groups = groups});
}

Offer offer(const ConvProblem& p) {
  return algorithm().offer(*pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s})), {.device = cpu_profile(1)});
}
double estimate(const ConvProblem& p) { return offer(p).candidates.at(0).estimated_us; }

}  // namespace

TEST_CASE("conv/direct_lines/depthwise_is_refused") {
  CHECK(offer(problem({1, 16, 9, 9}, 16, 16)).refusal == "it is depthwise");
  CHECK(offer(problem({1, 16, 9, 9}, 32, 16)).refusal == "it is depthwise");
  CHECK(offer(problem({1, 16, 9, 9}, 16, 8)).refusal.empty());
}

TEST_CASE("conv/direct_lines/the_filters_of_a_vector_stay_in_l1") {
  CHECK(offer(problem({1, 113, 9, 9}, 16, 1)).refusal.empty());  // gemm_k of 1017, at most 1024
  CHECK(offer(problem({1, 114, 9, 9}, 16, 1)).refusal == "the filters of one vector of channels would leave L1");
  CHECK(offer(problem({1, 1024, 9, 9}, 16, 1, 1)).refusal.empty());
  CHECK_FALSE(offer(problem({1, 1025, 9, 9}, 16, 1, 1)).refusal.empty());
}

TEST_CASE("conv/direct_lines/blocks_are_whole_groups_that_fill_l1_evenly") {
  CHECK(line_block(problem({1, 64, 9, 9}, 256, 1)) == 256);   // a group is never split, though 7 channels would fill L1
  CHECK(line_block(problem({1, 96, 9, 9}, 96, 8)) == 36);     // 37 with gemm_k 108 would fit: three groups of 12
  CHECK(line_block(problem({1, 256, 9, 9}, 256, 64)) == 96);  // 113 with gemm_k 36: three blocks of 96 at most
}

TEST_CASE("conv/direct_lines/the_last_block_of_channels_and_pixels_is_whole") {
  // The last block of filters has one group; a pixel beyond blocks of eight; an unpaired row.
  const unsigned seed = random_seed();
  for (ConvProblem p : {problem({1, 84, 5, 17}, 84, 7), problem({2, 260, 3, 9}, 260, 65), problem({1, 8, 7, 33}, 20, 4),
                        problem({1, 9, 9, 25}, 6, 3, 5)}) {
    p.bias = p.residual = true;
    check_conv(algorithm(), p, seed, 2);
  }
}

TEST_CASE("conv/direct_lines/estimate_follows_flops_and_counts_idle_lanes") {
  const double rate = cpu_profile(1).fp32_flops_per_us;
  for (const std::int64_t groups : {1, 4, 16}) {
    const ConvProblem p = problem({1, 64, 56, 56}, 64, groups);
    CAPTURE(groups);
    const double us = estimate(p), least_us = p.flops() / rate;
    CHECK(us > least_us);
    CHECK(us < 6 * least_us);
  }
  // One filter more than whole vectors of lanes costs a vector.
  const ConvProblem whole = problem({1, 32, 28, 28}, 16, 1), more = problem({1, 32, 28, 28}, 17, 1);
  if (gemm_tile_cols() > 2) CHECK(estimate(more) > 1.2 * estimate(whole));
}

}  // namespace lenslet::test

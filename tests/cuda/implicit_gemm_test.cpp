// implicit_gemm cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "tests/cuda/every_cut.h"
#include "tests/cuda/fused.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// Every tile and number of slices: without clusters and with them, and with one block on a multiprocessor at a time,
/// which all give the same bits.
std::vector<Cut> cuts_of(const Planned& planned) {
  std::vector<Cut> cuts;
  for (const GemmTile tile : gemm_tiles_for(gemm_access(planned.problem, planned.candidate.outputs[0])))
    for (const std::int64_t slices : {1, 2, 5, 8, 13, 1000}) {
      ImplicitGemmPlan plan = cut_gemm(planned.problem, tile, slices);
      const std::string bits = plan.str();
      for (const bool clusters : {false, true}) cuts.push_back({plan.str(), bits, plan.workspace_bytes, clusters});
      plan.resident = 1;
      cuts.push_back({plan.str(), bits, plan.workspace_bytes});
    }
  return cuts;
}

ConvProblem clipped(const ConvProblem& problem) { return fused(problem, {Activation::Kind::clip, -0.5F, 1.5F}); }

}  // namespace

TEST_CASE("cuda/implicit_gemm/every_cut") {
  const unsigned seed = random_seed();
  // Several tiles both ways, none of them full at the end; terms that end within a step, channels that wrap within one,
  // two images, strides, dilations, pads of different width, groups; 13 slices, which are too many for a cluster.
  const ConvProblem problems[] = {
      clipped(resolve_conv({2, 20, 13, 12}, {136, 20, 3, 3}, {.stride = {1, 2}, .pads = {1, 0, 2, 1}})),
      clipped(resolve_conv({1, 12, 17, 19}, {70, 12, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}})),
      clipped(resolve_conv({3, 7, 9, 11}, {133, 7, 2, 3}, {.stride = {2, 1}, .pads = {0, 1, 1, 2}})),
      clipped(resolve_conv({2, 24, 9, 10}, {140, 12, 3, 3}, {.pads = {1, 1, 1, 1}, .groups = 2})),
      clipped(resolve_conv({2, 10, 9, 10}, {18, 5, 3, 3}, {.pads = {1, 1, 1, 1}, .groups = 2})),
      resolve_conv({1, 204, 7, 7}, {72, 204, 1, 1}, {}),
      resolve_conv({5, 3, 1, 1}, {9, 3, 1, 1}, {}),
      resolve_conv({4, 40, 1, 1}, {9, 40, 1, 1}, {}),
  };
  for (const ConvProblem& p : problems)
    for (const char* name : {"implicit_gemm", "implicit_gemm_nchw"}) check_cuts(name, p, "fp32", seed, cuts_of, 1);
}

}  // namespace lenslet::test

// implicit_gemm in every compiled tile configuration. The planner's choice is tested by conv_test.cpp.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "tests/cuda/every_tiling.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

/// Every tile and split-K factor, with and without clusters, and with one resident block: all give the same bits.
std::vector<Tiling> tilings_of(const Planned& planned) {
  std::vector<Tiling> tilings;
  for (const GemmTile tile : gemm_tiles_for(gemm_access(planned.problem, planned.candidate.outputs[0])))
    for (const std::int64_t split_k : {1, 2, 5, 8, 13, 1000}) {
      ImplicitGemmPlan plan = tile_gemm(planned.problem, tile, split_k);
      const std::string bits = plan.str();
      for (const bool clusters : {false, true}) tilings.push_back({plan.str(), bits, plan.workspace_bytes, clusters});
      plan.resident = 1;
      tilings.push_back({plan.str(), bits, plan.workspace_bytes});
    }
  return tilings;
}

}  // namespace

TEST_CASE("cuda/implicit_gemm/every_tiling") {
  const unsigned seed = random_seed();
  // Several partial tiles in both dimensions; gemm_k that ends within a k-block, channels that wrap within one, two
  // images, strides, dilations, uneven pads, groups; split-K by 13, too many for a cluster.
  for (const ConvProblem& p : convs({
           "2x20x13x12 -> 136, 3x3 s1x2 p1,0,2,1 g1 +bias +residual +clip(-0.5,1.5)",
           "1x12x17x19 -> 70, 3x2 s1 p2,1,1,3 g1 d2x3 +bias +residual +clip(-0.5,1.5)",
           "3x7x9x11 -> 133, 2x3 s2x1 p0,1,1,2 g1 +bias +residual +clip(-0.5,1.5)",
           "2x24x9x10 -> 140, 3x3 s1 p1 g2 +bias +residual +clip(-0.5,1.5)",
           "2x10x9x10 -> 18, 3x3 s1 p1 g2 +bias +residual +clip(-0.5,1.5)",
           "1x204x7x7 -> 72, 1x1 s1 p0 g1",
           "5x3x1x1 -> 9, 1x1 s1 p0 g1",
           "4x40x1x1 -> 9, 1x1 s1 p0 g1",
       }))
    for (const char* name : {"implicit_gemm", "implicit_gemm_nchw"})
      check_tilings(name, p, "fp32", seed, tilings_of, 1);
}

}  // namespace lenslet::test

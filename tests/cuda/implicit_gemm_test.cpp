// implicit_gemm cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

void check_cuts(const Kernel& algorithm, const ConvProblem& p, unsigned seed) {
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  const auto problem = pose(p, data.w, data.scale);
  const DeviceProfile device = op_runner().profiles(1).at(0);
  DeviceProfile without_clusters = device;
  without_clusters.clusters = false;
  const Offer offer = algorithm.offer(*problem, {.device = device});
  REQUIRE(offer.candidates.size() == 1);
  Candidate candidate = offer.candidates[0];
  for (const GemmTile tile : gemm_tiles_for(gemm_access(p, candidate.outputs[0])))
    for (const std::int64_t slices : {1, 2, 5, 8, 13, 1000}) {
      ImplicitGemmPlan plan = cut_gemm(p, tile, slices);
      candidate.workspace_bytes = plan.workspace_bytes;
      const std::string where = fmt::format("{} on {} (seed {}, {})", algorithm.name(), p.str(), seed, plan.str());
      const auto run_on = [&](const DeviceProfile& profile) {
        candidate.config = plan.str();
        const Call call{.problem = *problem, .kernel = algorithm, .candidate = candidate, .device = profile};
        return run_between_guards(op_runner(), call, inputs, where).at(0);
      };
      const Tensor y = run_on(without_clusters);
      compare(y, data, candidate.tolerance, where);
      if (device.clusters)
        CHECK_MESSAGE(std::memcmp(run_on(device).data(), y.data(), y.bytes()) == 0, where,
                      ": with clusters other bits than without");
      plan.resident = 1;
      CHECK_MESSAGE(std::memcmp(run_on(device).data(), y.data(), y.bytes()) == 0, where,
                    ": other bits with one block on a multiprocessor at a time");
      if (!candidate.pitched_output) continue;
      candidate.outputs[0].pixel_pitch = (p.k / 4 + 2) * 4;
      for (const DeviceProfile& profile : {without_clusters, device})
        CHECK_MESSAGE(std::memcmp(run_on(profile).data(), y.data(), y.bytes()) == 0, where,
                      ": other bits among other channels");
      candidate.outputs[0].pixel_pitch = 0;
    }
}

ConvProblem fused(ConvProblem problem) {
  problem.bias = problem.residual = true;
  problem.activation = {Activation::Kind::clip, -0.5F, 1.5F};
  return problem;
}

}  // namespace

TEST_CASE("cuda/implicit_gemm/every_cut") {
  const unsigned seed = random_seed();
  // Several tiles both ways, none of them full at the end; terms that end within a step, channels that wrap within one,
  // two images, strides, dilations, pads of different width, groups; 13 slices, which are too many for a cluster.
  const ConvProblem problems[] = {
      fused(resolve_conv({2, 20, 13, 12}, {136, 20, 3, 3}, {.stride = {1, 2}, .pads = {1, 0, 2, 1}})),
      fused(resolve_conv({1, 12, 17, 19}, {70, 12, 3, 2}, {.dilation = {2, 3}, .pads = {2, 1, 1, 3}})),
      fused(resolve_conv({3, 7, 9, 11}, {133, 7, 2, 3}, {.stride = {2, 1}, .pads = {0, 1, 1, 2}})),
      fused(resolve_conv({2, 24, 9, 10}, {140, 12, 3, 3}, {.pads = {1, 1, 1, 1}, .groups = 2})),
      fused(resolve_conv({2, 10, 9, 10}, {18, 5, 3, 3}, {.pads = {1, 1, 1, 1}, .groups = 2})),
      resolve_conv({1, 204, 7, 7}, {72, 204, 1, 1}, {}),
      resolve_conv({5, 3, 1, 1}, {9, 3, 1, 1}, {}),
      resolve_conv({4, 40, 1, 1}, {9, 40, 1, 1}, {}),
  };
  for (const ConvProblem& p : problems)
    for (const char* name : {"implicit_gemm", "implicit_gemm_nchw"})
      check_cuts(*find_kernel("Conv", DeviceKind::cuda, name), p, seed);
}

}  // namespace lenslet::test

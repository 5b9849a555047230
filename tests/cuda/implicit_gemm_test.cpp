// implicit_gemm cut in every way there are kernels for: the planner takes one way a problem, conv_test.cpp checks that.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <random>
#include <vector>

#include "base/cuda/session.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/implicit_gemm.h"
#include "tests/cuda/device_block.h"
#include "tests/ops/conv_data.h"

namespace lenslet::test {
namespace {

using namespace lenslet::cuda;

DeviceBlock upload(const std::vector<float>& values) { return {values.data(), values.size() * sizeof(float)}; }

void check_cuts(const Session& session, const ConvAlgorithm& algorithm, const ConvProblem& p, unsigned seed) {
  const Format layout = algorithm.format();
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  DeviceBlock x = upload(in_layout(data.x, layout));
  DeviceBlock bias = upload(p.bias ? in_layout(data.bias, formats::nchw) : std::vector<float>{});
  DeviceBlock residual = upload(p.residual ? in_layout(data.residual, layout) : std::vector<float>{});
  const auto filter =
      algorithm.prepare(p, {data.w.values<float>().data(), data.scale.empty() ? nullptr : data.scale.data()});
  const auto floats = [](DeviceBlock& block) { return reinterpret_cast<float*>(block.data()); };
  for (const GemmTile tile : gemm_tiles_for(gemm_access(p, layout)))
    for (const std::int64_t slices : {1, 2, 5, 8, 13, 1000}) {
      const ImplicitGemmPlan plan = cut_gemm(p, tile, slices);
      const std::string where = fmt::format("{} on {} (seed {}, tile {}x{}, {} slices)", algorithm.name(), p.str(),
                                            seed, shape_of(tile).m, shape_of(tile).n, plan.slices);
      const auto run_on = [&](const Context& context) {
        DeviceBlock y(static_cast<std::size_t>(p.n * p.k * p.p * p.q) * sizeof(float));
        DeviceBlock workspace(plan.workspace_bytes);
        run_implicit_gemm({.problem = p,
                           .x = floats(x),
                           .filter = filter.get(),
                           .bias = p.bias ? floats(bias) : nullptr,
                           .residual = p.residual ? floats(residual) : nullptr,
                           .y = floats(y),
                           .workspace = {workspace.data(), workspace.bytes()},
                           .cuda = &context},
                          layout, plan);
        std::vector<std::byte> got = y.read();
        CHECK_MESSAGE(y.intact(), where, ": wrote outside of y");
        CHECK_MESSAGE(workspace.intact(), where, ": wrote outside of the workspace");
        return got;
      };
      Context without_clusters = session.context();
      without_clusters.clusters = false;
      std::vector<std::byte> got = run_on(without_clusters);
      compare(algorithm, p, data, reinterpret_cast<float*>(got.data()), where);
      if (session.context().clusters)
        CHECK_MESSAGE(run_on(session.context()) == got, where, ": with clusters other bits than without");
    }
}

ConvProblem fused(ConvProblem problem) {
  problem.bias = problem.residual = true;
  problem.activation = {Activation::Kind::clip, -0.5F, 1.5F};
  return problem;
}

}  // namespace

TEST_CASE("cuda/implicit_gemm/every_cut") {
  const Session session(0);
  const unsigned seed = std::random_device{}();
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
  };
  for (const ConvProblem& p : problems)
    for (const ConvAlgorithm* algorithm : {&conv_implicit_gemm(), &conv_implicit_gemm_nchw()}) {
      REQUIRE_FALSE(algorithm->refuse(p));
      check_cuts(session, *algorithm, p, seed);
    }
}

}  // namespace lenslet::test

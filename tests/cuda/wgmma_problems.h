#pragma once
// What the tests of wgmma_gemm, wgmma_tf32 and wgmma_patch have in common.

#include <doctest/doctest.h>

#include <vector>

#include "ops/conv/conv.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

/// If not, says so in words that CTest takes for a skipped case.
inline bool wgmma_runs_here() {
  const DeviceProfile device = op_runner().profiles(1).at(0);
  if (device.capability == 90 && device.clusters) return true;
  MESSAGE("skipped, no usable CUDA device: of compute capability 9.0, with code for it in this build");
  return false;
}

inline const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};
inline const Activation clip{Activation::Kind::clip, -0.5F, 0.75F};
inline const Activation hard_swish{Activation::Kind::hard_swish, 1.0F / 6, 0.5F};

/// With a bias.
inline ConvProblem activated(ConvProblem problem, Activation activation) {
  problem.bias = true;
  problem.activation = activation;
  return problem;
}
/// And a residual.
inline ConvProblem fused(ConvProblem problem, Activation activation) {
  problem.residual = true;
  return activated(problem, activation);
}

/// Sets of groups: one of them, several; as many filters as channels and more; groups that end within a row of
/// channels, whose set's row reaches into the next one; then more tiles than multiprocessors.
inline std::vector<ConvProblem> problems_with_groups() {
  return {
      resolve_conv({1, 64, 9, 9}, {64, 32, 3, 3}, {.pads = {1, 1, 1, 1}, .groups = 2}),
      fused(resolve_conv({3, 256, 21, 18}, {256, 16, 3, 3}, {.stride = {2, 2}, .pads = {1, 1, 1, 1}, .groups = 16}),
            relu),
      fused(resolve_conv({2, 96, 13, 11}, {192, 12, 3, 2}, {.stride = {1, 2}, .pads = {1, 0, 2, 1}, .groups = 8}),
            silu),
      activated(
          resolve_conv({2, 144, 14, 15}, {288, 48, 2, 3}, {.dilation = {2, 3}, .pads = {1, 2, 0, 3}, .groups = 3}),
          clip),
      fused(resolve_conv({2, 512, 14, 13}, {256, 128, 1, 1}, {.groups = 4}), hard_swish),
      fused(resolve_conv({3, 64, 15, 17}, {64, 1, 3, 3}, {.stride = {2, 1}, .pads = {1, 1, 1, 1}, .groups = 64}), relu),
      activated(resolve_conv({24, 128, 61, 60}, {128, 8, 3, 3}, {.stride = {2, 2}, .pads = {1, 1, 1, 1}, .groups = 16}),
                relu),
  };
}

}  // namespace lenslet::test

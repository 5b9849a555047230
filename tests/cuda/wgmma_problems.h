#pragma once
// What the tests of wgmma_gemm, wgmma_tf32 and wgmma_patch have in common.

#include <vector>

#include "tests/cuda/fused.h"

namespace lenslet::test {

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

#pragma once
// Shared by the tests of wgmma_gemm, wgmma_tf32 and wgmma_halo.

#include <vector>

#include "tests/cuda/every_tiling.h"

namespace lenslet::test {

/// Group sets: one, several; as many filters as channels and more; sets that end within a row of channels, so that the
/// row contains the next set's first channels; then more tiles than multiprocessors.
inline std::vector<ConvProblem> problems_with_groups() {
  return convs({
      "1x64x9x9 -> 64, 3x3 s1 p1 g2",
      "3x256x21x18 -> 256, 3x3 s2 p1 g16 +bias +residual +relu",
      "2x96x13x11 -> 192, 3x2 s1x2 p1,0,2,1 g8 +bias +residual +silu",
      "2x144x14x15 -> 288, 2x3 s1 p1,2,0,3 g3 d2x3 +bias +clip(-0.5,0.75)",
      "2x512x14x13 -> 256, 1x1 s1 p0 g4 +bias +residual +gelu",
      "3x64x15x17 -> 64, 3x3 s2x1 p1 g64 +bias +residual +relu",
      "24x128x61x60 -> 128, 3x3 s2 p1 g16 +bias +relu",
  });
}

}  // namespace lenslet::test

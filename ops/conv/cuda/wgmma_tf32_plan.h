#pragma once
// How wgmma_tf32 cuts a convolution: as wgmma_gemm does (wgmma_gemm_plan.h), with the same tiles, but 32 channels a
// step, and sums that leave as they are. Plain C++.

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Channels of a step: 128 bytes, a row of the tensor cores' swizzled layout.
inline constexpr int wgmma_tf32_step = 32;

/// A consumer warp stages so many rows of sums of so many filters on their way out.
inline constexpr int tf32_staged_rows = 16, tf32_staged_filters = 32;
inline constexpr int tf32_staging_bytes = tf32_staged_rows * tf32_staged_filters * 4;

/// Where sums (row, 4 * quad ...+3) of a warp lie in its staging area, in bytes. 16-byte units are permuted so that
/// neither the writes of fragments (8 bytes a thread: rows 0-3 or 4-7, two quads side by side) nor the reads of rows
/// (16 bytes a thread: one row, all quads) meet in a bank.
LENSLET_HOST_DEVICE constexpr int tf32_staged_offset(int row, int quad) {
  return row * tf32_staged_filters * 4 + ((quad ^ ((row & 3) << 1)) << 4);
}

/// Bytes of shared memory: stages of both operands, what consumers stage, and barriers.
struct WgmmaTf32Shared {
  int pixels = 0, filters = 0;  ///< of a stage's operands
  int stages = 0;
  int staging = 0;   ///< where the consumers' area begins, `tf32_staging_bytes` a warp
  int barriers = 0;  ///< where they begin: a full one each stage, then an empty one each
  int total = 0;
};
constexpr WgmmaTf32Shared tf32_shared_of(const WgmmaTileShape& tile) {
  constexpr int for_stages = 208 << 10, most_stages = 8;
  WgmmaTf32Shared shared;
  shared.pixels = tile.m * wgmma_tf32_step * 4;
  shared.filters = tile.n * wgmma_tf32_step * 4;
  const int stage = shared.pixels + shared.filters;
  shared.stages = for_stages / stage < most_stages ? for_stages / stage : most_stages;
  shared.staging = shared.stages * stage;
  shared.barriers = shared.staging + wgmma_consumers * 4 * tf32_staging_bytes;
  shared.total = shared.barriers + 2 * shared.stages * 8;
  return shared;
}

struct WgmmaTf32Plan {
  WgmmaTile tile = WgmmaTile::t128x128;
  std::int64_t tiles_m = 0, tiles_n = 0;
  std::int64_t steps = 0;  ///< R*S times C/32 rounded up

  /// The configuration, from which the rest follows: "tile=128x256".
  std::string str() const;
};

WgmmaTf32Plan cut_wgmma_tf32(const ConvProblem& problem, WgmmaTile tile);
/// Time in us, launch included.
double wgmma_tf32_us(const ConvProblem& problem, const WgmmaTf32Plan& plan, const DeviceProfile& device);
/// The fastest by wgmma_tf32_us(). All tiles add in the same order: no bit depends on the choice.
WgmmaTf32Plan plan_wgmma_tf32(const ConvProblem& problem, const DeviceProfile& device);
/// What str() wrote. Error(invalid_argument).
WgmmaTf32Plan read_wgmma_tf32_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda

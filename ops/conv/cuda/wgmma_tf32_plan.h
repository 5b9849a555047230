#pragma once
// How wgmma_tf32 cuts a convolution: as wgmma_gemm does (wgmma_gemm_plan.h), with the same tiles of persistent blocks
// and of clusters, but 32 channels a step, and sums that leave as they are. Plain C++.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Channels of a step: 128 bytes, a row of the tensor cores' swizzled layout.
inline constexpr int wgmma_tf32_step = 32;

/// Results leave through shared memory in parts of so many pixels and filters, as wgmma_gemm's do: a consumer warp lays
/// one down, one copy stores it, and a residual comes the same way.
inline constexpr int tf32_staged_rows = 16, tf32_staged_filters = 32;
inline constexpr int tf32_staged_bytes = tf32_staged_rows * tf32_staged_filters * 4;

/// Where the results (row, 4 * quad ...+3) of a part lie, in bytes: as copies by a tensor map have them, 16-byte units
/// permuted so that those of eight rows lie in different banks.
LENSLET_HOST_DEVICE constexpr int tf32_staged_offset(int row, int quad) {
  return row * tf32_staged_filters * 4 + ((quad ^ (row & 7)) << 4);
}

/// Of a part's filters, the one that operand b has at `place`. An instruction leaves sums of places 8*j + 2*t and the
/// next to thread t of four: in this order those are eight filters side by side, two units of 16 bytes.
LENSLET_HOST_DEVICE constexpr int tf32_filter_at(int place) { return place % 8 / 2 * 8 + place / 8 * 2 + place % 2; }
/// A unit of clusters (SlicesShare) is half of a part's places: the first of four filters side by side, of which thread
/// t of four has sums, from the first of a tile on. `unit` counts those of the same pixels.
LENSLET_HOST_DEVICE constexpr int tf32_unit_filter(int unit, int t) {
  return unit / 2 * tf32_staged_filters + t * 8 + unit % 2 * 4;
}
/// Bytes of shared memory: stages of both operands, parts on their way, and barriers.
struct WgmmaTf32Shared {
  int pixels = 0, filters = 0;  ///< of a stage's operands
  int stages = 0;
  int buffers = 0;   ///< of a consumer warp, for parts
  int staging = 0;   ///< where the warps' buffers begin
  int barriers = 0;  ///< where they begin: a full one each stage, then an empty one each, then one each buffer
  int total = 0;

  bool operator==(const WgmmaTf32Shared&) const = default;
};
constexpr WgmmaTf32Shared tf32_shared_of(const WgmmaTileShape& tile, bool residual) {
  constexpr int all = 224 << 10, most_stages = 8;
  const int warps = tile.consumers * 4;
  const int least_stages = residual ? 3 : 4;  // as wgmma_gemm's
  WgmmaTf32Shared shared;
  shared.pixels = tile.m * wgmma_tf32_step * 4;
  shared.filters = tile.n * wgmma_tf32_step * 4;
  const int stage = shared.pixels + shared.filters;
  // More of them keep more bytes under way where sums are short. Large tiles are for long ones.
  shared.buffers = least_stages * stage + warps * 4 * tf32_staged_bytes <= all ? 4 : 2;
  const int staging = warps * shared.buffers * tf32_staged_bytes, for_stages = all - staging;
  shared.stages = for_stages / stage < most_stages ? for_stages / stage : most_stages;
  shared.staging = shared.stages * stage;
  shared.barriers = shared.staging + staging;
  shared.total = shared.barriers + (2 * shared.stages + warps * shared.buffers) * 8;
  return shared;
}
/// Is there a layout of its own for residuals? Other tiles have one than in 16 bits (has_residual_layout).
constexpr bool tf32_has_residual_layout(const WgmmaTileShape& tile) {
  return tf32_shared_of(tile, true) != tf32_shared_of(tile, false);
}

struct WgmmaTf32Plan {
  std::int64_t together = 1, sets = 1;            ///< as WgmmaGemmPlan's
  WgmmaTile tile = WgmmaTile::t128x128;           ///< of persistent blocks
  SlicesTile slices_tile = SlicesTile::t128x128;  ///< of clusters
  int slices = 0;                                 ///< a tile's, added up by a cluster; 0: persistent blocks
  std::int64_t tiles_m = 0, tiles_n = 0;          ///< tiles_n: those of all sets
  std::int64_t steps = 0;                         ///< R*S times C/32 rounded up: of a tile, all slices

  int m() const { return slices == 0 ? shape_of(tile).m : shape_of(slices_tile).m; }
  int n() const { return slices == 0 ? shape_of(tile).n : shape_of(slices_tile).n; }
  /// The configuration, from which the rest follows: "tile=128x256" of persistent blocks, "tile=64x64 slices=4" of
  /// clusters; then " together=4".
  std::string str() const;
};

WgmmaTf32Plan cut_wgmma_tf32(const ConvProblem& problem, WgmmaTile tile);
/// `slices` is one of slice_counts, and no more than there are steps.
WgmmaTf32Plan cut_wgmma_tf32(const ConvProblem& problem, SlicesTile tile, int slices);
/// Every cut there is a kernel for; of several groups persistent ones of whole tiles alone, which there may be none of.
std::vector<WgmmaTf32Plan> wgmma_tf32_cuts(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_tf32_us(const ConvProblem& problem, const WgmmaTf32Plan& plan, const DeviceProfile& device);
/// The fastest by wgmma_tf32_us() on reference_gpu(): slices decide in which order sums are added, so that bits must
/// not depend on the device. Tiles do not.
WgmmaTf32Plan plan_wgmma_tf32(const ConvProblem& problem);
/// What str() wrote. Error(invalid_argument).
WgmmaTf32Plan read_wgmma_tf32_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda

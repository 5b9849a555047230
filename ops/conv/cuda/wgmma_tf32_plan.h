#pragma once
// Tile configurations of wgmma_tf32: wgmma_gemm's tiles (wgmma_gemm_plan.h), but k-blocks of 32 channels and float32
// results. Plain C++.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/cuda/costs/wgmma_tf32.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// A k-block in channels.
inline constexpr int wgmma_tf32_step = wgmma_step_bytes / 4;

/// Box of the epilogue, as wgmma_gemm's: a consumer warp writes it to shared memory, one TMA store writes it to y, and
/// a residual comes the same way.
inline constexpr int tf32_staged_rows = 16, tf32_staged_filters = 32;
inline constexpr int tf32_staged_bytes = tf32_staged_rows * tf32_staged_filters * 4;

/// Byte offset of results (row, 4 * quad ...+3) in a box: TMA's swizzle, 16-byte units permuted so that eight rows are
/// in different banks.
LENSLET_HOST_DEVICE constexpr int tf32_staged_offset(int row, int quad) {
  return row * tf32_staged_filters * 4 + ((quad ^ (row & 7)) << 4);
}

/// The filter at column `place` of operand B, within a box. Accumulator columns 8*j + 2*t and the next belong to thread
/// t of four; in this order they are eight adjacent filters, two units of 16 bytes.
LENSLET_HOST_DEVICE constexpr int tf32_filter_at(int place) { return place % 8 / 2 * 8 + place / 8 * 2 + place % 2; }
/// A split-K fragment (SplitKShare) is half of a box's columns: the first, from the tile's start, of four adjacent
/// filters that thread t of four holds. `fragment` counts those of the same pixels.
LENSLET_HOST_DEVICE constexpr int tf32_fragment_filter(int fragment, int t) {
  return fragment / 2 * tf32_staged_filters + t * 8 + fragment % 2 * 4;
}
/// As wgmma_gemm's, with boxes of float32.
constexpr WgmmaShared tf32_shared_of(const WgmmaTileShape& tile, bool residual) {
  return shared_of(tile, residual, tf32_staged_bytes);
}
/// Whether there is a separate layout with residuals; not the same tiles as in 16 bits (has_residual_layout).
constexpr bool tf32_has_residual_layout(const WgmmaTileShape& tile) {
  return tf32_shared_of(tile, true) != tf32_shared_of(tile, false);
}

struct WgmmaTf32Plan {
  std::int64_t together = 1, sets = 1;             ///< as WgmmaGemmPlan's
  WgmmaTile tile = WgmmaTile::t128x128;            ///< persistent blocks
  SplitKTile split_k_tile = SplitKTile::t128x128;  ///< cluster split-K
  int split_k = 0;                                 ///< splits of a tile, reduced in a cluster; 0: persistent blocks
  std::int64_t tiles_m = 0, tiles_n = 0;           ///< tiles_n: of all sets
  std::int64_t steps = 0;                          ///< k-blocks: R*S times C/32 rounded up; all splits

  int m() const { return split_k == 0 ? shape_of(tile).m : shape_of(split_k_tile).m; }
  int n() const { return split_k == 0 ? shape_of(tile).n : shape_of(split_k_tile).n; }
  /// The configuration: "tile=128x256" for persistent blocks, "tile=64x64 split_k=4" for cluster split-K;
  /// then " together=4".
  std::string str() const;
};

WgmmaTf32Plan tile_wgmma_tf32(const ConvProblem& problem, WgmmaTile tile);
/// `split_k` is one of split_k_counts, and at most the number of k-blocks.
WgmmaTf32Plan tile_wgmma_tf32(const ConvProblem& problem, SplitKTile tile, int split_k);
/// All configurations with a kernel; grouped convolutions: persistent blocks of whole tiles only, perhaps none.
std::vector<WgmmaTf32Plan> wgmma_tf32_tilings(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_tf32_us(const ConvProblem& problem, const WgmmaTf32Plan& plan, const DeviceProfile& device,
                     const WgmmaTf32Costs& costs = wgmma_tf32_costs);
/// The fastest by wgmma_tf32_us() on reference_gpu(): split-K decides the order of additions, so the bits must not
/// depend on the device. Tiles change none.
WgmmaTf32Plan plan_wgmma_tf32(const ConvProblem& problem);
/// Reads str()'s text. Error(invalid_argument).
WgmmaTf32Plan read_wgmma_tf32_plan(const ConvProblem& problem, std::string_view config);

/// Defined in wgmma_tf32.cu. Without split-K.
std::unique_ptr<const BoundKernel> bind_wgmma_tf32(const ConvProblem& problem, const WgmmaTf32Plan& plan);

}  // namespace lenslet::cuda

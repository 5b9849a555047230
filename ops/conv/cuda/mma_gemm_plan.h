#pragma once
// Tile configurations of mma_gemm and their cost. Plain C++: tested without a device.
//
// implicit_gemm's GEMM: gemm_m = N*P*Q output pixels, gemm_n = K/groups filters, gemm_k = R*S*C/groups. A block
// computes one tile over one split of gemm_k. Split-K needs a cluster to reduce in (sm_90).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/costs/mma_gemm.h"

namespace lenslet::cuda {

/// A k-block's row in shared memory: K 64 of 16 bits or 32 of TF32, in eight 16-byte chunks, the unit of copies and of
/// ldmatrix.
inline constexpr int mma_step_bytes = 128;

/// The portable cluster size.
inline constexpr int max_mma_split_k = 8;

enum class MmaTile { t128x128, t128x64, t64x128, t64x64, t64x32, t32x64, t32x32 };

struct MmaTileShape {
  int m = 0, n = 0;
  int warps_m = 0, warps_n = 0;
  int stages = 0;  ///< one multiplied, the others in flight
  int blocks = 0;  ///< resident on a multiprocessor of sm_90 (registers, shared memory)

  constexpr int threads() const { return 32 * warps_m * warps_n; }
  constexpr std::size_t stage_bytes() const { return static_cast<std::size_t>(m + n) * mma_step_bytes; }
};

inline constexpr std::array<MmaTileShape, 7> mma_tiles{{
    {128, 128, 2, 4, 3, 2},
    {128, 64, 2, 2, 4, 2},
    {64, 128, 2, 2, 4, 2},
    {64, 64, 2, 2, 4, 3},
    {64, 32, 2, 2, 4, 4},
    {32, 64, 2, 2, 4, 4},
    {32, 32, 2, 2, 4, 6},
}};
constexpr const MmaTileShape& shape_of(MmaTile tile) { return mma_tiles[static_cast<std::size_t>(tile)]; }

template <MmaTile tile>
struct MmaTraits {
  static constexpr MmaTileShape shape = shape_of(tile);
  static constexpr int m = shape.m, n = shape.n, threads = shape.threads(), stages = shape.stages;
  static constexpr int warp_m = m / shape.warps_m, warp_n = n / shape.warps_n;
  static constexpr int a_bytes = m * mma_step_bytes, stage_bytes = (m + n) * mma_step_bytes;
  /// Accumulator pitch in floats for the epilogue: rows of a warp's store are in different banks.
  static constexpr int acc_pitch = n + 8;
  static_assert(m * acc_pitch * 4 <= stages * stage_bytes);
};

/// Window origin of a pixel: `offset` in x of its first tap at (h, w), which may be outside of the image.
struct alignas(16) WindowOrigin {
  long long offset;
  int h, w;
};

template <typename Tile>
constexpr std::size_t mma_shared_bytes() {
  return Tile::stages * Tile::stage_bytes + Tile::m * sizeof(WindowOrigin);
}

/// Channels per load of the input, by their alignment.
enum class MmaAccess {
  vectors,  ///< 16 bytes: C/groups is a multiple of 8, of 4 where elements are float32
  words,    ///< 4 bytes: two 16-bit channels, or a float32
  halves,   ///< one 16-bit channel
};
MmaAccess mma_access(const ConvProblem& problem);

/// The tiles compiled for it.
template <MmaTile... tiles>
struct MmaTileList {
  static constexpr std::array all{tiles...};
  /// Calls f.operator()<tile>() for the tile `wanted`, if the list has it.
  template <typename F>
  static void with(MmaTile wanted, const F& f) {
    ((wanted == tiles ? f.template operator()<tiles>() : void()), ...);
  }
};
template <MmaAccess access>
using MmaTilesFor = std::conditional_t<access == MmaAccess::vectors,
                                       MmaTileList<MmaTile::t128x128, MmaTile::t128x64, MmaTile::t64x128,
                                                   MmaTile::t64x64, MmaTile::t64x32, MmaTile::t32x64, MmaTile::t32x32>,
                                       MmaTileList<MmaTile::t64x64, MmaTile::t64x32>>;
std::span<const MmaTile> mma_tiles_for(MmaAccess access);

struct MmaGemmPlan {
  MmaTile tile = MmaTile::t64x64;
  std::int64_t tiles_m = 0, tiles_n = 0;  ///< of each group
  std::int64_t steps = 0;                 ///< k-blocks of mma_step_bytes, the last may be partial
  std::int64_t steps_per_split = 0;       ///< the last split may have fewer, never 0
  std::int64_t split_k = 0;               ///< splits of K, reduced in order by a cluster
  std::int64_t resident = 0;              ///< limit of blocks a multiprocessor; 0: none

  /// "tile=128x64 split_k=4", " resident=2" where it is not 0
  std::string str() const;
};

/// The problem as computed: groups whose channels or filters do not fill 16 bytes are merged into a dense problem of up
/// to 64 of either, zeros across groups. The functions below take such a problem.
ConvProblem with_merged_groups(const ConvProblem& problem);

/// K of one k-block.
std::int64_t mma_block_k(const ConvProblem& problem);
/// K of a packed filter, padded to whole k-blocks.
std::int64_t mma_filter_pitch(const ConvProblem& problem);

/// `split_k` is an upper bound: empty splits are dropped.
MmaGemmPlan tile_mma_gemm(const ConvProblem& problem, MmaTile tile, std::int64_t split_k);
/// `resident` for a device, as implicit_gemm's even_resident().
std::int64_t even_resident(const ConvProblem& problem, const MmaGemmPlan& plan, const DeviceProfile& device);
/// Time in us, the launch included, on a device with clusters.
double mma_gemm_us(const ConvProblem& problem, const MmaGemmPlan& plan, const DeviceProfile& device,
                   const MmaGemmCosts& costs = mma_gemm_costs);
/// All configurations; no split-K without clusters. `resident` is left 0.
std::vector<MmaGemmPlan> mma_gemm_tilings(const ConvProblem& problem, bool clusters);
/// The fastest by mma_gemm_us() on reference_gpu().
MmaGemmPlan plan_mma_gemm(const ConvProblem& problem, bool clusters);
/// Reads str()'s text. Error(invalid_argument), also for configurations without a kernel.
MmaGemmPlan read_mma_gemm_plan(const ConvProblem& problem, std::string_view config, bool clusters);

/// Defined in mma_gemm.cu. `problem` has merged groups.
std::unique_ptr<const BoundKernel> bind_mma_gemm(const ConvProblem& problem, const MmaGemmPlan& plan,
                                                 const DeviceProfile& device);

}  // namespace lenslet::cuda

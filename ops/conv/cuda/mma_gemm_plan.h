#pragma once
// How a convolution is cut into blocks by mma_gemm. Plain C++, so that it is tested without a device.
//
// The product is implicit_gemm's: gemm_m = N*P*Q output pixels, gemm_n = K/groups filters, gemm_k = R*S*C/groups terms.
// A block computes one tile of it over one slice of the terms; slices there are only where a cluster of blocks can add
// them up (sm_90).

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// A row of a step in shared memory: 64 terms of 16 bits or 32 of TF32. Eight chunks of 16 bytes, which are what is
/// copied and what ldmatrix reads.
inline constexpr int mma_step_bytes = 128;

/// A cluster that every device can place.
inline constexpr int max_mma_slices = 8;

enum class MmaTile { t128x128, t128x64, t64x128, t64x64, t64x32, t32x64, t32x32 };

struct MmaTileShape {
  int m = 0, n = 0;
  int warps_m = 0, warps_n = 0;
  int stages = 0;         ///< steps in shared memory: one multiplied, the others under way
  int blocks = 0;         ///< that fit a multiprocessor of sm_90 together (registers, shared memory)
  double efficiency = 0;  ///< share of the tensor cores' rate (wgmma's) with a full multiprocessor
  double lone_us = 0;     ///< a step of a block that has a multiprocessor to itself: loads, ldmatrix, mma, a barrier

  constexpr int threads() const { return 32 * warps_m * warps_n; }
  constexpr std::size_t stage_bytes() const { return static_cast<std::size_t>(m + n) * mma_step_bytes; }
};

inline constexpr std::array<MmaTileShape, 7> mma_tiles{{
    {128, 128, 2, 4, 3, 2, 0.48, 0.79},
    {128, 64, 2, 2, 4, 2, 0.50, 0.64},
    {64, 128, 2, 2, 4, 2, 0.50, 0.65},
    {64, 64, 2, 2, 4, 3, 0.42, 0.37},
    {64, 32, 2, 2, 4, 4, 0.30, 0.29},
    {32, 64, 2, 2, 4, 4, 0.30, 0.25},
    {32, 32, 2, 2, 4, 6, 0.20, 0.22},
}};
constexpr const MmaTileShape& shape_of(MmaTile tile) { return mma_tiles[static_cast<std::size_t>(tile)]; }

/// How a block reads the input: as many channels of a pixel at a time as their alignment allows.
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
  /// Calls f.operator()<tile>() for the one that is `wanted`, if it is in the list.
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
  std::int64_t steps = 0;                 ///< of mma_step_bytes, the last may be partial
  std::int64_t steps_a_slice = 0;         ///< the last slice may have fewer, none has 0
  std::int64_t slices = 0;                ///< a cluster of blocks, which adds them up in their order
  std::int64_t resident = 0;              ///< blocks on a multiprocessor at most; 0: as many as fit

  /// "tile=128x64 slices=4", " resident=2" where it is not 0
  std::string str() const;
};

/// The problem as it is computed: groups whose channels or filters fill no vector of 16 bytes are taken together, a
/// dense product with zeros across them, as long as at most 64 of either are. All that follows is of such a problem.
ConvProblem with_merged_groups(const ConvProblem& problem);

/// Terms of one step.
std::int64_t mma_step_terms(const ConvProblem& problem);
/// Terms of a filter with the zeros behind them: whole steps.
std::int64_t mma_filter_pitch(const ConvProblem& problem);

/// `slices` is an upper bound: as many as are not empty are made.
MmaGemmPlan cut_mma_gemm(const ConvProblem& problem, MmaTile tile, std::int64_t slices);
/// What `resident` shall be: as even_resident() of implicit_gemm.
std::int64_t even_resident(const ConvProblem& problem, const MmaGemmPlan& plan, const DeviceProfile& device);
/// Time in us, the launch included, on a device with clusters.
double mma_gemm_us(const ConvProblem& problem, const MmaGemmPlan& plan, const DeviceProfile& device);
/// The fastest by mma_gemm_us() on reference_gpu(); in one slice where the device has no clusters.
MmaGemmPlan plan_mma_gemm(const ConvProblem& problem, bool clusters);
/// What str() wrote. Error(invalid_argument), also for cuts that there are not.
MmaGemmPlan read_mma_gemm_plan(const ConvProblem& problem, std::string_view config, bool clusters);

}  // namespace lenslet::cuda

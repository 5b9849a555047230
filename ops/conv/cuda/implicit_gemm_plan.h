#pragma once
// Tile configurations of implicit_gemm and their cost. Plain C++: tested without a device.
//
// One GEMM per group: gemm_m = N*P*Q output pixels, gemm_n = K/groups filters, gemm_k = R*S*C/groups. A block computes
// one [tile_m x tile_n] tile over one split of gemm_k. Split-K is for problems whose tiles do not fill the
// multiprocessors (7x7 images at batch 1). Up to eight splits are reduced in a cluster (sm_90) where that is faster,
// otherwise by a second kernel.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/costs/implicit_gemm.h"

namespace lenslet::cuda {

/// K of a k-block (BLOCK_K).
inline constexpr int gemm_step = 16;

/// Splits that a cluster reduces: the portable cluster size.
inline constexpr std::int64_t max_cluster = 8;

/// Tile shapes with kernels, in the order of `gemm_tiles`.
enum class GemmTile { t128x128, t128x64, t64x64, t64x32, t32x64 };

struct GemmTileShape {
  int m = 0, n = 0;
  int threads = 0;
  int thread_rows = 0;  ///< rows of 8 outputs of each thread
  int blocks = 0;       ///< resident on a multiprocessor of sm_90 (registers, shared memory)
};

inline constexpr std::array<GemmTileShape, 5> gemm_tiles{{
    {128, 128, 256, 8, 2},
    {128, 64, 128, 8, 3},
    {64, 64, 128, 4, 5},
    {64, 32, 64, 4, 7},
    {32, 64, 64, 4, 8},
}};

constexpr const GemmTileShape& shape_of(GemmTile tile) { return gemm_tiles[static_cast<std::size_t>(tile)]; }

template <GemmTile tile>
struct TileTraits {
  static constexpr GemmTileShape shape = shape_of(tile);
  static constexpr int m = shape.m, n = shape.n, threads = shape.threads;
  static constexpr int rows = shape.thread_rows, cols = 8;  ///< of a thread
  static constexpr int warps_m = m / (8 * rows);
  static_assert(warps_m * (n / (4 * cols)) * 32 == threads);

  static constexpr int stages = 4;  ///< one multiplied, three in flight
  static constexpr int a_pitch = gemm_step + 4;
  static constexpr int a_floats = m * a_pitch;    ///< A of a k-block: [m][a_pitch]
  static constexpr int b_floats = gemm_step * n;  ///< B of a k-block: [gemm_step][n]
  static constexpr int stage_floats = a_floats + b_floats;
  static constexpr std::size_t shared_bytes = stages * stage_floats * sizeof(float);
};
using LargestTile = TileTraits<GemmTile::t128x128>;  ///< 72 KiB

/// Window origin of a pixel: `offset` in x of its first tap at (h, w), which may be outside of the image.
struct alignas(16) PixelOrigin {
  long long offset;
  int h, w;
};

template <typename Tile>
constexpr std::size_t implicit_gemm_shared_bytes() {
  return Tile::shared_bytes + Tile::m * sizeof(PixelOrigin) + Tile::n * sizeof(float);
}

template <GemmTile... tiles>
struct GemmTileList {
  static constexpr std::array all{tiles...};
  /// Calls f.operator()<tile>() for the tile `wanted`, if the list has it.
  template <typename F>
  static void with(GemmTile wanted, const F& f) {
    ((wanted == tiles ? f.template operator()<tiles>() : void()), ...);
  }
};
using AllGemmTiles =
    GemmTileList<GemmTile::t128x128, GemmTile::t128x64, GemmTile::t64x64, GemmTile::t64x32, GemmTile::t32x64>;

/// "128x64"
std::string to_string(GemmTile tile);
/// Reads to_string()'s text after "tile="; refuses tiles not in `known`.
GemmTile read_tile(ConfigReader& reader, std::span<const GemmTile> known);

/// How a block reads the input.
enum class GemmAccess {
  nhwc_vectors,  ///< NHWC, four channels at a time: C/groups is a multiple of 4
  nhwc_scalars,  ///< NHWC, any C, scalar
  nchw,          ///< NCHW, eight adjacent pixels
};
GemmAccess gemm_access(const ConvProblem& problem, Format format);
/// Tile shapes compiled for an access. Loading eight pixels of sixteen channels takes 128 threads or more.
template <GemmAccess access>
using GemmTilesFor =
    std::conditional_t<access == GemmAccess::nhwc_vectors, AllGemmTiles,
                       std::conditional_t<access == GemmAccess::nchw,
                                          GemmTileList<GemmTile::t128x128, GemmTile::t128x64, GemmTile::t64x64>,
                                          GemmTileList<GemmTile::t128x64, GemmTile::t64x64, GemmTile::t64x32>>>;
std::span<const GemmTile> gemm_tiles_for(GemmAccess access);

struct ImplicitGemmPlan {
  GemmTile tile = GemmTile::t64x64;
  std::int64_t tiles_m = 0, tiles_n = 0;  ///< of each group
  std::int64_t steps = 0;                 ///< k-blocks of gemm_step, the last may be partial
  std::int64_t steps_per_split = 0;       ///< the last split may have fewer, never 0
  std::int64_t split_k = 0;               ///< splits of K; 1: tiles go straight to y
  /// `split_k` where a cluster reduces them (max_cluster at most, devices with clusters); 1: a second kernel does. Both
  /// add in split order.
  std::int64_t cluster = 1;
  /// Limit of blocks resident on a multiprocessor, enforced by their shared memory size. 0: none. Does not change a bit
  /// of the result.
  std::int64_t resident = 0;
  /// Split-K partial sums, `split_k` times the output, as needed without clusters; 0 for one split.
  std::size_t workspace_bytes = 0;

  /// The configuration: "tile=128x64 split_k=4 cluster=4", then " resident=2" where it is not 0.
  std::string str() const;
};

/// `split_k` is an upper bound: empty splits are dropped. They form a cluster if they are few enough.
ImplicitGemmPlan tile_gemm(const ConvProblem& problem, GemmTile tile, std::int64_t split_k);

/// `resident` for a device: blocks a multiprocessor when all are spread evenly; 0 where they fill it anyway.
std::int64_t even_resident(const ConvProblem& problem, const ImplicitGemmPlan& plan, const DeviceProfile& device);

/// Multiprocessors that clusters of this size can fill.
std::int64_t filled_multiprocessors(std::int64_t cluster, const DeviceProfile& device);

/// Shared memory in bytes to request for a block that uses `bytes`, so that at most `resident` (0: any number) are
/// resident; less where one block cannot have that much.
std::size_t shared_bytes_for(std::size_t bytes, std::int64_t resident, const DeviceProfile& device);

/// Time in us until the last block has done its k-blocks (`steps`) and `start_us` of overhead. `efficiency` scales the
/// tile's. Blocks come in clusters of `cluster`.
double gemm_blocks_us(GemmTile tile, std::int64_t blocks, std::int64_t steps, double efficiency, double start_us,
                      const DeviceProfile& device, std::int64_t cluster = 1,
                      const ImplicitGemmCosts& costs = implicit_gemm_costs);

/// Time in us of a plan, launches included, on a device with clusters.
double gemm_plan_us(const ConvProblem& problem, GemmAccess access, const ImplicitGemmPlan& plan,
                    const DeviceProfile& device, const ImplicitGemmCosts& costs = implicit_gemm_costs);

/// All configurations up to 64 splits and 64 MiB of workspace, `resident` left 0.
std::vector<ImplicitGemmPlan> implicit_gemm_tilings(const ConvProblem& problem, GemmAccess access);
/// The fastest by gemm_plan_us() on reference_gpu(), whatever the device: split-K decides the order of additions, so
/// the bits depend on the problem alone. `resident`, which changes none, is left 0.
ImplicitGemmPlan plan_implicit_gemm(const ConvProblem& problem, GemmAccess access);
/// Reads str()'s text. Error(invalid_argument), also for configurations without a kernel.
ImplicitGemmPlan read_implicit_gemm_plan(const ConvProblem& problem, GemmAccess access, std::string_view config);

/// Why the problem is too large for 32-bit indices within an image, a window of k-blocks, and over output pixels.
std::optional<std::string> refuse_gathered_sizes(const ConvProblem& problem, std::int64_t block_k);

/// Row pitch of the packed filters, [groups][R*S*C/groups][K/groups rounded up]: 16-byte copies need multiples of 4.
inline std::int64_t implicit_gemm_filter_pitch(const ConvProblem& problem) { return (problem.group_k() + 3) / 4 * 4; }

/// Defined in implicit_gemm.cu. plan.cluster 1: launched without clusters.
std::unique_ptr<const BoundKernel> bind_implicit_gemm(const ConvProblem& problem, const Format& format,
                                                      const ImplicitGemmPlan& plan, const DeviceProfile& device);

}  // namespace lenslet::cuda

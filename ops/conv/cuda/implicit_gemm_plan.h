#pragma once
// How a convolution is cut into blocks by implicit_gemm. Plain C++, so that it is tested without a device.
//
// The convolution is a matrix product of each group: gemm_m = N*P*Q output pixels, gemm_n = K/groups filters, gemm_k =
// R*S*C/groups terms. A block computes one tile of [tile_m x tile_n] outputs over one slice of the terms. Few slices
// suffice when the tiles alone fill the multiprocessors; where they do not (7x7 images at batch 1), slices do. One
// cluster of blocks adds all of them up where the device has clusters (sm_90), they are eight at most and it is faster;
// otherwise a second kernel does.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// Terms that a block loads and multiplies at a time.
inline constexpr int gemm_step = 16;

/// Slices of a tile that a cluster of blocks adds up: what every device with clusters can place.
inline constexpr std::int64_t max_cluster = 8;

/// Tile shapes there are kernels for, in the order of `gemm_tiles`.
enum class GemmTile { t128x128, t128x64, t64x64, t64x32, t32x64 };

struct GemmTileShape {
  int m = 0, n = 0;
  int threads = 0;
  int thread_rows = 0;    ///< each computes that many rows of 8
  int blocks = 0;         ///< that fit a multiprocessor of sm_90 together (registers, shared memory)
  double efficiency = 0;  ///< share of the peak with a full multiprocessor: shared memory reads per multiplication
};

inline constexpr std::array<GemmTileShape, 5> gemm_tiles{{
    {128, 128, 256, 8, 2, 0.95},
    {128, 64, 128, 8, 3, 0.95},
    {64, 64, 128, 4, 5, 0.86},
    {64, 32, 64, 4, 7, 0.80},
    {32, 64, 64, 4, 8, 0.84},
}};

constexpr const GemmTileShape& shape_of(GemmTile tile) { return gemm_tiles[static_cast<std::size_t>(tile)]; }

template <GemmTile... tiles>
struct GemmTileList {
  static constexpr std::array all{tiles...};
  /// Calls f.operator()<tile>() for the one that is `wanted`, if it is in the list.
  template <typename F>
  static void with(GemmTile wanted, const F& f) {
    ((wanted == tiles ? f.template operator()<tiles>() : void()), ...);
  }
};
using AllGemmTiles =
    GemmTileList<GemmTile::t128x128, GemmTile::t128x64, GemmTile::t64x64, GemmTile::t64x32, GemmTile::t32x64>;

/// "128x64"
std::string to_string(GemmTile tile);
/// What it wrote, after "tile="; refuses all but `known`.
GemmTile read_tile(ConfigReader& reader, std::span<const GemmTile> known);

/// How a block reads the input.
enum class GemmAccess {
  nhwc_vectors,  ///< NHWC, four channels at a time: C/groups is a multiple of 4
  nhwc_scalars,  ///< NHWC, any C
  nchw,          ///< NCHW, eight pixels side by side
};
GemmAccess gemm_access(const ConvProblem& problem, Format format);
/// The tile shapes compiled for it. A block that loads eight pixels of sixteen channels at a time has 128 threads or
/// more.
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
  std::int64_t steps = 0;                 ///< of gemm_step terms, the last may be partial
  std::int64_t steps_a_slice = 0;         ///< the last slice may have fewer, none has 0
  std::int64_t slices = 0;                ///< 1: tiles go straight to y
  /// `slices`, max_cluster at most: a cluster adds them up where there are clusters. 1: a second kernel adds them up,
  /// on every device. Both add them in their order.
  std::int64_t cluster = 1;
  /// Blocks that a multiprocessor holds at a time at most: they ask for so much shared memory that no more fit. 0: as
  /// many as there is room for. No bit of a result depends on it.
  std::int64_t resident = 0;
  /// Partial sums, [slices] times the output in its format, as without clusters; 0 with one slice.
  std::size_t workspace_bytes = 0;

  /// The configuration, from which the rest follows: "tile=128x64 slices=4 cluster=4", " resident=2" where it is not 0.
  std::string str() const;
};

/// `slices` is an upper bound: as many as are not empty are made, a cluster of them if they are few enough.
ImplicitGemmPlan cut_gemm(const ConvProblem& problem, GemmTile tile, std::int64_t slices);

/// What `resident` shall be on a device: as many blocks as a multiprocessor gets when all of them are spread evenly; 0
/// where they fill the multiprocessors anyway.
std::int64_t even_resident(const ConvProblem& problem, const ImplicitGemmPlan& plan, const DeviceProfile& device);

/// Multiprocessors of a device that clusters of so many blocks fill.
std::int64_t filled_multiprocessors(std::int64_t cluster, const DeviceProfile& device);

/// The shared memory in bytes that a block asks for, of which it uses `bytes`, so that at most `resident` (0: any
/// number) of them fit a multiprocessor; less where one block cannot have that much.
std::size_t shared_bytes_for(std::size_t bytes, std::int64_t resident, const DeviceProfile& device);

/// Time in us until the last of `blocks` blocks has multiplied its `steps` steps; each spends `start_us` on what is not
/// multiplying. `efficiency` scales that of the tile. Blocks come in clusters of `cluster`.
double gemm_blocks_us(GemmTile tile, std::int64_t blocks, std::int64_t steps, double efficiency, double start_us,
                      const DeviceProfile& device, std::int64_t cluster = 1);

/// Time in us of a plan, launches included, on a device with clusters.
double gemm_plan_us(const ConvProblem& problem, GemmAccess access, const ImplicitGemmPlan& plan,
                    const DeviceProfile& device);

/// The fastest by gemm_plan_us() on reference_gpu(), whatever the device at hand: the order of summation, and so every
/// bit of the result, depends on the problem alone. `resident`, on which none depends, is left 0.
ImplicitGemmPlan plan_implicit_gemm(const ConvProblem& problem, GemmAccess access);
/// What str() wrote. Error(invalid_argument), also for cuts that there is no kernel for.
ImplicitGemmPlan read_implicit_gemm_plan(const ConvProblem& problem, GemmAccess access, std::string_view config);

}  // namespace lenslet::cuda

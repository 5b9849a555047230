#include "ops/conv/cuda/implicit_gemm_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/conv/choose.h"

namespace lenslet::cuda {
namespace {

// The constants of the cost model, for an H200. To be fitted to measurements; gemm_tiles holds those of the tiles.

/// A multiprocessor with w warps a scheduler issues w / (w + this) of what it could: a lone warp waits for its own
/// loads from shared memory.
constexpr double idle_warps = 0.7;
/// A step of 16 terms takes no less than this: barrier, address arithmetic, first loads from shared memory.
constexpr double least_step_us = 0.15;
/// From a block's start to its first product, plus the epilogue: two trips to memory one after the other.
constexpr double block_us = 1.6;
/// Reading four channels at a time costs nothing beside the products; single floats, four times the instructions.
constexpr double scalar_efficiency = 0.7;
/// What all multiprocessors together read from L2, as a multiple of what memory delivers.
constexpr double l2_speed = 1.3;
/// The second kernel, beside its launch and bytes: a trip to L2, the sum over slices, the write.
constexpr double sum_us = 1.2;

constexpr std::int64_t max_workspace_bytes = 64 << 20;
constexpr std::int64_t max_slices = 64;
constexpr int reference_multiprocessors = 132;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t output_elems(const ConvProblem& p) { return p.n * p.k * p.p * p.q; }

/// Time for `blocks` blocks that share a multiprocessor, each `steps` long.
double round_us(const GemmTileShape& tile, double efficiency, double blocks, double steps, double flops_per_us) {
  const double warps = blocks * tile.threads / 128.0;  // a scheduler
  const double share = efficiency * warps / (warps + idle_warps);
  const double step = blocks * 2.0 * tile.m * tile.n * gemm_step / (flops_per_us * share);
  return steps * std::max(step, least_step_us) + block_us;
}

}  // namespace

GemmAccess gemm_access(const ConvProblem& problem, Layout layout) {
  if (layout == Layout::nchw) return GemmAccess::nchw;
  return problem.group_c() % 4 == 0 ? GemmAccess::nhwc_vectors : GemmAccess::nhwc_scalars;
}

std::span<const GemmTile> gemm_tiles_for(GemmAccess access) {
  static constexpr GemmTile all[] = {GemmTile::t128x128, GemmTile::t128x64, GemmTile::t64x64, GemmTile::t64x32,
                                     GemmTile::t32x64};
  static constexpr GemmTile scalars[] = {GemmTile::t128x64, GemmTile::t64x64, GemmTile::t64x32};
  // A block that loads eight pixels of sixteen channels at a time has 128 threads or more.
  static constexpr GemmTile nchw[] = {GemmTile::t128x128, GemmTile::t128x64, GemmTile::t64x64};
  if (access == GemmAccess::nhwc_vectors) return all;
  if (access == GemmAccess::nhwc_scalars) return scalars;
  return nchw;
}

ImplicitGemmPlan cut_gemm(const ConvProblem& p, GemmTile tile, std::int64_t slices) {
  const GemmTileShape& shape = shape_of(tile);
  ImplicitGemmPlan plan;
  plan.tile = tile;
  plan.tiles_m = ceil_div(p.n * p.p * p.q, shape.m);
  plan.tiles_n = ceil_div(p.group_k(), shape.n);
  plan.steps = ceil_div(p.r * p.s * p.group_c(), gemm_step);
  plan.steps_a_slice = ceil_div(plan.steps, std::clamp<std::int64_t>(slices, 1, plan.steps));
  plan.slices = ceil_div(plan.steps, plan.steps_a_slice);
  plan.cluster = ceil_div(plan.slices, ceil_div(plan.slices, max_cluster));
  if (plan.slices > 1) plan.workspace_bytes = static_cast<std::size_t>(plan.slices * output_elems(p)) * sizeof(float);
  return plan;
}

double gemm_plan_us(const ConvProblem& p, GemmAccess access, const ImplicitGemmPlan& plan, const MachineRates& rates) {
  const GemmTileShape& shape = shape_of(plan.tile);
  const double efficiency = shape.efficiency * (access == GemmAccess::nhwc_vectors ? 1.0 : scalar_efficiency);
  const auto steps = static_cast<double>(plan.steps_a_slice);
  const std::int64_t blocks = plan.tiles_m * plan.tiles_n * p.groups * plan.slices;

  // The fullest multiprocessor: rounds of as many blocks as fit, then the rest.
  const std::int64_t share = ceil_div(blocks, rates.threads);
  const double flops_per_us = rates.flops_per_us / rates.threads;
  double compute =
      static_cast<double>(share / shape.blocks) * round_us(shape, efficiency, shape.blocks, steps, flops_per_us);
  if (share % shape.blocks != 0)
    compute += round_us(shape, efficiency, static_cast<double>(share % shape.blocks), steps, flops_per_us);

  // Each operand comes from memory once, and from L2 as often as tiles need it.
  const double memory = p.bytes() / rates.bytes_per_us;
  const double tile_bytes = 4.0 * (shape.m + shape.n) * gemm_step * steps * static_cast<double>(blocks);
  const double l2 = tile_bytes / (l2_speed * rates.bytes_per_us);
  double us = rates.launch_us + std::max({compute, memory + block_us, l2 + block_us});

  if (plan.slices > 1) {
    // Partial sums are written and read, mostly within L2.
    const double bytes = 2.0 * static_cast<double>(plan.workspace_bytes);
    us += rates.launch_us + sum_us + bytes / (l2_speed * rates.bytes_per_us);
  }
  return us;
}

ImplicitGemmPlan plan_implicit_gemm(const ConvProblem& p, GemmAccess access) {
  static const MachineRates rates = cuda_rates(reference_multiprocessors);
  ImplicitGemmPlan best;
  double best_us = std::numeric_limits<double>::infinity();
  for (const GemmTile tile : gemm_tiles_for(access)) {
    std::int64_t last = 0;
    for (std::int64_t slices = 1; slices <= max_slices; ++slices) {
      const ImplicitGemmPlan plan = cut_gemm(p, tile, slices);
      if (plan.slices == last) continue;  // as before
      last = plan.slices;
      if (plan.workspace_bytes > static_cast<std::size_t>(max_workspace_bytes)) break;
      const double us = gemm_plan_us(p, access, plan, rates);
      if (us >= best_us) continue;
      best_us = us;
      best = plan;
    }
  }
  return best;
}

}  // namespace lenslet::cuda

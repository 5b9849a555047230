#include "ops/conv/cuda/implicit_gemm_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

static_assert(implicit_gemm_costs.efficiency.size() == gemm_tiles.size());

/// Multiprocessors of 132 that clusters of each size can fill: a cluster stays within a GPC, and a GPC's remainder
/// stays idle. 128 blocks in clusters of 4 or 8 put two on some: 128x128 tiles take 58.5 us for 33.5 (8x2048x7x7 ->
/// 512, 1x1). Size 7 is a low guess.
constexpr std::array<std::int64_t, max_cluster + 1> cluster_multiprocessors{132, 132, 132, 120, 120,
                                                                            110, 120, 105, 112};

/// Shared memory that the driver reserves a block (CUDA C++ Programming Guide, "Compute Capabilities", 8.0 and newer),
/// and the allocation granularity.
constexpr std::size_t reserved_shared_bytes = 1024, shared_bytes_unit = 128;

constexpr std::int64_t max_workspace_bytes = 64 << 20;
constexpr std::int64_t max_split_k = 64;

std::int64_t blocks_of(const ConvProblem& p, const ImplicitGemmPlan& plan) {
  return plan.tiles_m * plan.tiles_n * plan.split_k * p.groups;
}

std::int64_t output_elems(const ConvProblem& p) { return p.n * p.k * p.p * p.q; }

/// Factor of the rate, and what a block of m + n = 128 takes besides its products.
struct AccessSpeed {
  double efficiency, tile_us;
};
AccessSpeed speed_of(GemmAccess access, const ImplicitGemmCosts& costs) {
  if (access == GemmAccess::nhwc_vectors) return {1, costs.tile_us};
  if (access == GemmAccess::nhwc_scalars) return {costs.scalar_efficiency, costs.tile_us};
  return {costs.nchw_efficiency, costs.nchw_tile_us};
}

}  // namespace

std::int64_t filled_multiprocessors(std::int64_t cluster, const DeviceProfile& device) {
  const auto blocks = static_cast<std::size_t>(cluster);
  const std::int64_t usual = device.units * cluster_multiprocessors[blocks] / cluster_multiprocessors.front();
  const std::int64_t here = device.cluster_units[blocks] > 0 ? device.cluster_units[blocks] : usual;
  return std::max<std::int64_t>(1, std::min(usual, here));
}

std::string to_string(GemmTile tile) {
  return std::to_string(shape_of(tile).m) + "x" + std::to_string(shape_of(tile).n);
}

GemmTile read_tile(ConfigReader& reader, std::span<const GemmTile> known) {
  const std::string_view text = reader.word("tile");
  for (const GemmTile tile : known)
    if (to_string(tile) == text) return tile;
  reader.refuse("no kernel has this tile");
}

GemmAccess gemm_access(const ConvProblem& problem, Format format) {
  if (format == formats::nchw) return GemmAccess::nchw;
  return problem.group_c() % 4 == 0 ? GemmAccess::nhwc_vectors : GemmAccess::nhwc_scalars;
}

std::span<const GemmTile> gemm_tiles_for(GemmAccess access) {
  if (access == GemmAccess::nhwc_vectors) return GemmTilesFor<GemmAccess::nhwc_vectors>::all;
  if (access == GemmAccess::nhwc_scalars) return GemmTilesFor<GemmAccess::nhwc_scalars>::all;
  return GemmTilesFor<GemmAccess::nchw>::all;
}

std::optional<std::string> refuse_gathered_sizes(const ConvProblem& p, std::int64_t block_k) {
  if (p.groups > 65535) return "more than 65535 groups";
  constexpr std::int64_t limit = 1 << 30;
  const std::int64_t window_h = (p.r + block_k) * p.dilation_h, window_w = (p.s + block_k) * p.dilation_w;
  if (p.c > limit / p.h / p.w || p.k > limit / p.p / p.q || window_h > limit / p.w / p.c || window_w > limit / p.c)
    return "an image or a window has more than 2^30 elements";
  if (p.h + p.pad_top + p.pad_bottom > limit || p.w + p.pad_left + p.pad_right > limit)
    return "a padded image has more than 2^30 lines or columns";
  if (p.n > limit / p.p / p.q) return "more than 2^30 output pixels";
  return std::nullopt;
}

std::string ImplicitGemmPlan::str() const {
  ConfigWriter text;
  text.add("tile", to_string(tile)).add("split_k", split_k).add("cluster", cluster);
  if (resident != 0) text.add("resident", resident);
  return text.str();
}

ImplicitGemmPlan tile_gemm(const ConvProblem& p, GemmTile tile, std::int64_t split_k) {
  const GemmTileShape& shape = shape_of(tile);
  ImplicitGemmPlan plan;
  plan.tile = tile;
  plan.tiles_m = ceil_div(p.n * p.p * p.q, shape.m);
  plan.tiles_n = ceil_div(p.group_k(), shape.n);
  plan.steps = ceil_div(p.r * p.s * p.group_c(), gemm_step);
  plan.steps_per_split = ceil_div(plan.steps, std::clamp<std::int64_t>(split_k, 1, plan.steps));
  plan.split_k = ceil_div(plan.steps, plan.steps_per_split);
  // More splits than a cluster holds go to the second kernel alone; clusters plus the kernel pay for both (32 splits of
  // 2048x7x7 -> 512, 1x1: 10.4 us for 8.7).
  plan.cluster = plan.split_k <= max_cluster ? plan.split_k : 1;
  if (plan.split_k > 1) plan.workspace_bytes = static_cast<std::size_t>(plan.split_k * output_elems(p)) * sizeof(float);
  return plan;
}

std::int64_t even_resident(const ConvProblem& p, const ImplicitGemmPlan& plan, const DeviceProfile& device) {
  // With overlapped launches new blocks fill the multiprocessors that free up first, up to their occupancy limit, and
  // the others stay idle. An even limit prevents that: 8x256x56x56 -> 64, 1x1, takes 25.6 us for 39.5. Clusters are
  // spread over the multiprocessors that they can fill. ResNet-50 and variants: docs/results/cuda-overlap-*.csv and
  // cuda-cost-model-cases-2026-11-27.csv.
  const std::int64_t even =
      ceil_div(blocks_of(p, plan), filled_multiprocessors(device.clusters ? plan.cluster : 1, device));
  return even < shape_of(plan.tile).blocks ? even : 0;
}

std::size_t shared_bytes_for(std::size_t bytes, std::int64_t resident, const DeviceProfile& device) {
  if (resident == 0) return bytes;
  // The smallest size at which one block more does not fit.
  const std::size_t share = device.shared_bytes_per_unit / static_cast<std::size_t>(resident + 1);
  const std::size_t taken = (share / shared_bytes_unit + 1) * shared_bytes_unit;
  const std::size_t wanted = taken > reserved_shared_bytes ? taken - reserved_shared_bytes : 0;
  return std::max(bytes, std::min(wanted, device.shared_bytes_per_block));
}

double gemm_blocks_us(GemmTile tile, std::int64_t blocks, std::int64_t steps, double efficiency, double start_us,
                      const DeviceProfile& device, std::int64_t cluster, const ImplicitGemmCosts& costs) {
  const GemmTileShape& shape = shape_of(tile);
  const std::int64_t warps_a_block = shape.threads / 32;
  const double flops_a_warp = 2.0 * shape.m * shape.n * gemm_step / static_cast<double>(warps_a_block);
  const double scheduler_rate =
      costs.efficiency[static_cast<std::size_t>(tile)] * efficiency * device.fp32_flops_per_us / device.units / 4;
  // Time of `together` blocks on one multiprocessor: that of its scheduler with the most warps.
  const auto wave_us = [&](std::int64_t together) {
    const auto warps = static_cast<double>(ceil_div(together * warps_a_block, 4));
    return static_cast<double>(steps) * (warps + costs.idle_warps) * flops_a_warp / scheduler_rate + start_us;
  };
  // The fullest multiprocessor: full waves, then the rest, spread evenly by even_resident(). For 13 layers of ResNet-50
  // that it limits the rms error is 6 % (18 % without).
  const std::int64_t multiprocessors = filled_multiprocessors(cluster, device);
  const std::int64_t wave_blocks = multiprocessors * shape.blocks, rest = blocks % wave_blocks;
  double us = static_cast<double>(blocks / wave_blocks) * wave_us(shape.blocks);
  // Clusters are spread evenly up to half of the occupancy; beyond, some multiprocessors are filled: 196 clusters of 2
  // with 64x64 tiles put five blocks where three would do, 160 us for 102 (256x56x56 -> 256, 3x3).
  if (cluster > 1 && 2 * rest > wave_blocks) return us + wave_us(shape.blocks);
  if (rest > 0) us += wave_us(ceil_div(rest, multiprocessors));
  return us;
}

double gemm_plan_us(const ConvProblem& p, GemmAccess access, const ImplicitGemmPlan& plan, const DeviceProfile& device,
                    const ImplicitGemmCosts& costs) {
  const GemmTileShape& shape = shape_of(plan.tile);
  const AccessSpeed speed = speed_of(access, costs);
  const double start = costs.block_us + speed.tile_us * (shape.m + shape.n) / 128.0;
  const std::int64_t blocks = blocks_of(p, plan);
  const double acc = 4.0 * static_cast<double>(plan.split_k) * static_cast<double>(output_elems(p));
  const bool clusters = plan.cluster > 1;
  const double compute =
      gemm_blocks_us(plan.tile, blocks, plan.steps_per_split, speed.efficiency, start, device, plan.cluster, costs) +
      acc / ((clusters ? costs.cluster_speed : costs.store_speed) * device.bytes_per_us);
  // Input tiles read by several blocks cost nothing extra: L2 keeps up.
  double us = device.launch_us + std::max(compute, p.bytes() / device.bytes_per_us + start);
  if (plan.split_k > 1 && !clusters) {
    const double outputs = 4.0 * static_cast<double>(output_elems(p));
    us += device.launch_us + costs.sum_us + (acc + outputs) / (costs.sum_speed * device.bytes_per_us);
  }
  return us;
}

std::vector<ImplicitGemmPlan> implicit_gemm_tilings(const ConvProblem& p, GemmAccess access) {
  std::vector<ImplicitGemmPlan> tilings;
  for (const GemmTile tile : gemm_tiles_for(access)) {
    std::int64_t last = 0;
    for (std::int64_t split_k = 1; split_k <= max_split_k; ++split_k) {
      ImplicitGemmPlan plan = tile_gemm(p, tile, split_k);
      if (plan.split_k == last) continue;  // same plan as before
      last = plan.split_k;
      if (plan.workspace_bytes > static_cast<std::size_t>(max_workspace_bytes)) break;
      // Other accesses lose more by clusters than the model knows: 3x224x224 -> 64, 3x3, takes 18.9 us for 13.0,
      // 64x56x56 -> 64, 3x3 of NCHW 48.2 for 20.4.
      if (plan.cluster == 1 || access == GemmAccess::nhwc_vectors) tilings.push_back(plan);
      if (plan.cluster == 1) continue;
      plan.cluster = 1;
      tilings.push_back(plan);
    }
  }
  return tilings;
}

ImplicitGemmPlan plan_implicit_gemm(const ConvProblem& p, GemmAccess access) {
  return best_tiling(implicit_gemm_tilings(p, access),
                     [&](const auto& plan) { return gemm_plan_us(p, access, plan, reference_gpu()); })
      .value();
}

ImplicitGemmPlan read_implicit_gemm_plan(const ConvProblem& p, GemmAccess access, std::string_view config) {
  ConfigReader reader(config);
  const GemmTile tile = read_tile(reader, gemm_tiles_for(access));
  const std::int64_t split_k = reader.integer("split_k", 1, 65535);
  const std::int64_t cluster = reader.integer("cluster", 1, max_cluster);
  const std::int64_t resident = reader.done() ? 0 : reader.integer("resident", 1, shape_of(tile).blocks);
  reader.finish();
  ImplicitGemmPlan plan = tile_gemm(p, tile, split_k);
  if (plan.split_k != split_k) reader.refuse("gemm_k has too few steps for this split_k");
  if (cluster != 1 && cluster != plan.cluster) reader.refuse("a cluster computes all of split_k");
  plan.cluster = cluster;
  plan.resident = resident;
  return plan;
}

}  // namespace lenslet::cuda

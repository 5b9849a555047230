#include "ops/conv/cuda/mma_gemm_plan.h"

#include <algorithm>
#include <limits>

#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

static_assert(mma_gemm_costs.efficiency.size() == mma_tiles.size() &&
              mma_gemm_costs.lone_us.size() == mma_tiles.size());

constexpr std::int64_t max_split_k = max_mma_split_k;

double elements(const ConvProblem& p) { return static_cast<double>(p.n * p.p * p.q) * static_cast<double>(p.k); }

}  // namespace

ConvProblem with_merged_groups(const ConvProblem& p) {
  constexpr std::int64_t most = 64;
  const auto vector = 16 / static_cast<std::int64_t>(dtype_bytes(p.storage));
  ConvProblem merged = p;
  for (std::int64_t together = 1; together <= p.groups; ++together) {
    if (p.groups % together != 0) continue;
    const std::int64_t c = together * p.group_c(), k = together * p.group_k();
    if (together > 1 && (c > most || k > most)) break;
    if (c % vector != 0 || k % vector != 0) continue;
    merged.groups = p.groups / together;
    break;
  }
  return merged;
}

MmaAccess mma_access(const ConvProblem& p) {
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(p.storage));
  if (p.group_c() * bytes % 16 == 0) return MmaAccess::vectors;
  return p.group_c() * bytes % 4 == 0 ? MmaAccess::words : MmaAccess::halves;
}

std::span<const MmaTile> mma_tiles_for(MmaAccess access) {
  if (access == MmaAccess::vectors) return MmaTilesFor<MmaAccess::vectors>::all;
  if (access == MmaAccess::words) return MmaTilesFor<MmaAccess::words>::all;
  return MmaTilesFor<MmaAccess::halves>::all;
}

std::int64_t mma_block_k(const ConvProblem& p) {
  return mma_step_bytes / static_cast<std::int64_t>(dtype_bytes(p.storage));
}

std::int64_t mma_filter_pitch(const ConvProblem& p) {
  const std::int64_t step = mma_block_k(p);
  return ceil_div(p.r * p.s * p.group_c(), step) * step;
}

std::string MmaGemmPlan::str() const {
  const MmaTileShape& shape = shape_of(tile);
  ConfigWriter text;
  text.add("tile", std::to_string(shape.m) + "x" + std::to_string(shape.n)).add("split_k", split_k);
  if (resident != 0) text.add("resident", resident);
  return text.str();
}

MmaGemmPlan tile_mma_gemm(const ConvProblem& p, MmaTile tile, std::int64_t split_k) {
  const MmaTileShape& shape = shape_of(tile);
  MmaGemmPlan plan;
  plan.tile = tile;
  plan.tiles_m = ceil_div(p.n * p.p * p.q, shape.m);
  plan.tiles_n = ceil_div(p.group_k(), shape.n);
  plan.steps = mma_filter_pitch(p) / mma_block_k(p);
  plan.steps_per_split = ceil_div(plan.steps, std::clamp<std::int64_t>(split_k, 1, std::min(plan.steps, max_split_k)));
  plan.split_k = ceil_div(plan.steps, plan.steps_per_split);
  return plan;
}

std::int64_t even_resident(const ConvProblem& p, const MmaGemmPlan& plan, const DeviceProfile& device) {
  const std::int64_t blocks = plan.tiles_m * plan.tiles_n * plan.split_k * p.groups;
  const std::int64_t even = ceil_div(blocks, filled_multiprocessors(device.clusters ? plan.split_k : 1, device));
  return even < shape_of(plan.tile).blocks ? even : 0;
}

double mma_gemm_us(const ConvProblem& p, const MmaGemmPlan& plan, const DeviceProfile& device,
                   const MmaGemmCosts& costs) {
  const MmaTileShape& shape = shape_of(plan.tile);
  const double efficiency = costs.efficiency[static_cast<std::size_t>(plan.tile)];
  const double lone_us = costs.lone_us[static_cast<std::size_t>(plan.tile)];
  const double rate =
      device.flops_per_us(p.storage == DType::f32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp16);
  const double step_flops = 2.0 * shape.m * shape.n * static_cast<double>(mma_block_k(p));
  const double step_bytes = static_cast<double>(shape.stage_bytes());
  const MmaAccess access = mma_access(p);
  const double factor = access == MmaAccess::vectors ? 1
                        : access == MmaAccess::words ? costs.word_factor
                                                     : costs.half_factor;
  const double start = costs.block_us + costs.tile_us * (shape.m + shape.n) / 128.0;
  // `together` blocks on a multiprocessor: the rate of tensor cores or L2, or the latency of a block's own loads.
  const auto wave_us = [&](std::int64_t together) {
    const auto blocks = static_cast<double>(together);
    const double step = std::max({lone_us, blocks * step_flops * device.units / (efficiency * rate),
                                  blocks * step_bytes * device.units / costs.l2_bytes_per_us});
    return static_cast<double>(plan.steps_per_split) * step * factor + start;
  };
  const std::int64_t blocks = plan.tiles_m * plan.tiles_n * plan.split_k * p.groups;
  const std::int64_t multiprocessors = filled_multiprocessors(plan.split_k, device);
  const std::int64_t round = multiprocessors * shape.blocks, rest = blocks % round;
  double us = static_cast<double>(blocks / round) * wave_us(shape.blocks);
  if (rest > 0) us += wave_us(ceil_div(rest, multiprocessors));
  if (plan.split_k > 1) {
    const auto split_k = static_cast<double>(plan.split_k);
    us += costs.cluster_us + split_k * (costs.split_us * static_cast<double>(ceil_div(blocks, multiprocessors)) +
                                        4.0 * elements(p) / costs.cluster_bytes_per_us);
  }
  const double residual_us =
      p.residual ? elements(p) * static_cast<double>(dtype_bytes(p.storage)) / device.bytes_per_us : 0;
  const double memory_us = p.bytes() / device.bytes_per_us - residual_us;
  const bool few = p.group_c() <= 4 || (p.group_c() <= 16 && access != MmaAccess::vectors);
  return (few ? costs.few_channels_factor : 1) *
         (device.launch_us + std::max(us, memory_us + start) + costs.unhidden * std::min(us - start, memory_us) +
          costs.residual_factor * residual_us);
}

std::vector<MmaGemmPlan> mma_gemm_tilings(const ConvProblem& p, bool clusters) {
  std::vector<MmaGemmPlan> tilings;
  for (const MmaTile tile : mma_tiles_for(mma_access(p))) {
    std::int64_t last = 0;
    for (std::int64_t split_k = 1; split_k <= (clusters ? max_split_k : 1); ++split_k) {
      const MmaGemmPlan plan = tile_mma_gemm(p, tile, split_k);
      if (plan.split_k == last) continue;  // same plan as before
      last = plan.split_k;
      tilings.push_back(plan);
    }
  }
  return tilings;
}

MmaGemmPlan plan_mma_gemm(const ConvProblem& p, bool clusters) {
  return best_tiling(mma_gemm_tilings(p, clusters),
                     [&](const auto& plan) { return mma_gemm_us(p, plan, reference_gpu()); })
      .value();
}

MmaGemmPlan read_mma_gemm_plan(const ConvProblem& p, std::string_view config, bool clusters) {
  ConfigReader reader(config);
  const std::string_view text = reader.word("tile");
  const std::int64_t split_k = reader.integer("split_k", 1, clusters ? max_split_k : 1);
  const std::int64_t resident = reader.done() ? 0 : reader.integer("resident", 1, std::numeric_limits<int>::max());
  reader.finish();
  for (const MmaTile tile : mma_tiles_for(mma_access(p))) {
    MmaGemmPlan plan = tile_mma_gemm(p, tile, split_k);
    const MmaTileShape& shape = shape_of(tile);
    if (std::to_string(shape.m) + "x" + std::to_string(shape.n) != text) continue;
    if (plan.split_k != split_k) reader.refuse("gemm_k has too few steps for this split_k");
    if (resident > shape.blocks) reader.refuse("these blocks do not fit on a multiprocessor together");
    plan.resident = resident;
    return plan;
  }
  reader.refuse("no kernel has this tile");
}

}  // namespace lenslet::cuda

#include "ops/conv/cuda/wgmma_tf32_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_split_k_us.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

/// All but what follows from the tile.
WgmmaTf32Plan tiled(const ConvProblem& p, WgmmaTf32Plan plan) {
  plan.tiles_m = ceil_div(p.n * p.p * p.q, plan.m());
  plan.tiles_n = ceil_div(p.k, plan.n());
  plan.steps = p.r * p.s * ceil_div(p.c, wgmma_tf32_step);
  return plan;
}

double persistent_us(const ConvProblem& p, const WgmmaTf32Plan& plan, const DeviceProfile& device,
                     const WgmmaTf32Costs& costs) {
  const ConvProblem set = group_set(p, plan.together);
  const WgmmaTileShape& shape = shape_of(plan.tile);
  const double rate = costs.share * wgmma_gemm_costs.efficiency[static_cast<std::size_t>(plan.tile)] *
                      device.flops_per_us(Numerics::Multiply::tf32) / device.units;
  const double step_us = 2.0 * shape.m * shape.n * wgmma_tf32_step / rate;
  const TailSteps tails(set, wgmma_tf32_step);
  const double steps_us = (static_cast<double>(plan.steps) - tails.count) * step_us +
                          tails.us(step_us, (shape.m + shape.n) / costs.split_k.rows_per_us, costs.tail_us);
  // Each multiprocessor's tiles one after the other, or memory time.
  const auto waves = static_cast<double>(ceil_div(plan.tiles_m * plan.tiles_n, device.units));
  const double tile_us =
      windows_cost(p, plan.together, shape, waves) *
      (steps_us + ragged_us(set, tails.width) +
       costs.epilogue_us * (holds_biases(shape) ? 1 : costs.unheld) * shape.m * shape.n / (128.0 * 128.0));
  const double least_us = p.flops() / (costs.sustained * device.flops_per_us(Numerics::Multiply::tf32));
  const double tiles_us = std::max(waves * tile_us, least_us), memory_us = padded_bytes(p) / device.bytes_per_us;
  return costs.start_us + std::max(tiles_us, memory_us) + costs.unhidden * std::min(tiles_us, memory_us);
}

}  // namespace

std::string WgmmaTf32Plan::str() const {
  ConfigWriter text;
  text.add("tile", fmt::format("{}x{}", m(), n()));
  if (split_k != 0) text.add("split_k", std::int64_t{split_k});
  if (together != 1) text.add("together", together);
  return text.str();
}

WgmmaTf32Plan tile_wgmma_tf32(const ConvProblem& p, WgmmaTile tile) {
  WgmmaTf32Plan plan;
  plan.tile = tile;
  return tiled(p, plan);
}

WgmmaTf32Plan tile_wgmma_tf32(const ConvProblem& p, SplitKTile tile, int split_k) {
  WgmmaTf32Plan plan;
  plan.split_k_tile = tile;
  plan.split_k = split_k;
  return tiled(p, plan);
}

std::vector<WgmmaTf32Plan> wgmma_tf32_tilings(const ConvProblem& p) {
  std::vector<WgmmaTf32Plan> tilings;
  for (std::size_t i = 0; i < wgmma_tiles.size(); ++i) {
    const auto tile = static_cast<WgmmaTile>(i);
    if (wgmma_tiles[i].n % tf32_staged_filters != 0) continue;
    if (p.groups == 1) {
      tilings.push_back(tile_wgmma_tf32(p, tile));
      continue;
    }
    for (const std::int64_t together : useful_sets(p))
      if (group_set(p, together).k % wgmma_tiles[i].n == 0)
        tilings.push_back(split_sets(p, together, [&](const ConvProblem& one) { return tile_wgmma_tf32(one, tile); }));
  }
  if (p.groups > 1) return tilings;
  for (std::size_t i = 0; i < split_k_tiles.size(); ++i)
    for (const int split_k : split_k_counts) {
      const WgmmaTf32Plan plan = tile_wgmma_tf32(p, static_cast<SplitKTile>(i), split_k);
      if (split_k <= plan.steps) tilings.push_back(plan);
    }
  return tilings;
}

double wgmma_tf32_us(const ConvProblem& p, const WgmmaTf32Plan& plan, const DeviceProfile& device,
                     const WgmmaTf32Costs& costs) {
  if (plan.split_k == 0) return persistent_us(p, plan, device, costs);
  const auto tile = static_cast<std::size_t>(plan.split_k_tile);
  return split_k_us(p,
                    {.tile = shape_of(plan.split_k_tile),
                     .efficiency = wgmma_gemm_costs.split_k_efficiency[tile],
                     .split_k = plan.split_k,
                     .tiles = plan.tiles_m * plan.tiles_n,
                     .steps = plan.steps,
                     .block_k = wgmma_tf32_step,
                     .rows = static_cast<double>(plan.m() + plan.n()),
                     .row_bytes = wgmma_step_bytes,
                     .ragged_us = ragged_us(p, wgmma_tf32_step),
                     .flops_per_us = costs.split_k_share[tile] * device.flops_per_us(Numerics::Multiply::tf32)},
                    costs.split_k, device);
}

WgmmaTf32Plan plan_wgmma_tf32(const ConvProblem& p) {
  return best_tiling(wgmma_tf32_tilings(p), [&](const auto& plan) { return wgmma_tf32_us(p, plan, reference_gpu()); })
      .value();
}

WgmmaTf32Plan read_wgmma_tf32_plan(const ConvProblem& p, std::string_view config) {
  return find_tiling(wgmma_tf32_tilings(p), config);
}

}  // namespace lenslet::cuda

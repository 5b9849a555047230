#include "ops/conv/cuda/wgmma_tf32_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_split_k_us.h"

namespace lenslet::cuda {
namespace {

// Fitted by tools/scripts/refit_tensor_cores.py to 265 configurations (H200, 24 November 2026), then by hand to drawn
// problems and networks' layers (H100, 25 November 2026): the choice is 1.7 % behind the fastest measured on 178
// problems on average (3.2 before), on 94 drawn later 3.2 % (6.6).

/// Launch to first product: barriers, tensor maps, memory latency.
constexpr double start_us = 1.6;
/// Epilogue of 128x128 outputs that the other consumer's products do not hide.
constexpr double epilogue_us = 1.4;
/// Factor of the epilogue of large tiles, whose registers hold no biases in 16 bits.
constexpr double unheld = 1.2;

/// Overhead of a tail (KTail). By hand, from 30 configurations of 4 problems on an H100: 64x48x35x35 -> 96, 3x3,
/// takes 37.1 us by 128x96, 41.2 by 256x96.
constexpr double tail_us = 0.04;

/// Share of the shorter of products and memory time that the longer one does not hide.
constexpr double unhidden = 0.53;
/// Rate of a long product relative to the device's figure.
constexpr double sustained = 1.03;
/// Efficiency of tiles relative to 16 bits.
constexpr double share = 1.01;

/// Cluster split-K.
constexpr double split_k_block_us = 1.95, split_k_epilogue_us = 2.4, split_k_unhidden = 0.41;
constexpr double l2_bytes_per_us = 9.7e6;
constexpr double exchange_us = 0.23, exchange_bytes_per_us = 44e3;
constexpr double rows_per_us = 1150;
/// Efficiency of split-K tiles relative to 16 bits.
constexpr std::array<double, split_k_tiles.size()> split_k_share{0.85, 0.85, 1.19, 1.26};
constexpr SplitKCosts split_k_costs{.block_us = split_k_block_us,
                                    .epilogue_us = split_k_epilogue_us,
                                    .l2_bytes_per_us = l2_bytes_per_us,
                                    .exchange_us = exchange_us,
                                    .exchange_bytes_per_us = exchange_bytes_per_us,
                                    .rows_per_us = rows_per_us,
                                    .unhidden = split_k_unhidden};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// All but what follows from the tile.
WgmmaTf32Plan tiled(const ConvProblem& p, WgmmaTf32Plan plan) {
  plan.tiles_m = ceil_div(p.n * p.p * p.q, plan.m());
  plan.tiles_n = ceil_div(p.k, plan.n());
  plan.steps = p.r * p.s * ceil_div(p.c, wgmma_tf32_step);
  return plan;
}

double persistent_us(const ConvProblem& p, const WgmmaTf32Plan& plan, const DeviceProfile& device) {
  const ConvProblem set = group_set(p, plan.together);
  const WgmmaTileShape& shape = shape_of(plan.tile);
  const double rate = share * shape.efficiency * device.flops_per_us(Numerics::Multiply::tf32) / device.units;
  const double step_us = 2.0 * shape.m * shape.n * wgmma_tf32_step / rate;
  const TailSteps tails(set, wgmma_tf32_step);
  const double steps_us = (static_cast<double>(plan.steps) - tails.count) * step_us +
                          tails.us(step_us, (shape.m + shape.n) / rows_per_us, tail_us);
  // Each multiprocessor's tiles one after the other, or memory time.
  const auto waves = static_cast<double>(ceil_div(plan.tiles_m * plan.tiles_n, device.units));
  const double tile_us = windows_cost(p, plan.together, shape, waves) *
                         (steps_us + ragged_us(set, tails.width) +
                          epilogue_us * (holds_biases(shape) ? 1 : unheld) * shape.m * shape.n / (128.0 * 128.0));
  const double least_us = p.flops() / (sustained * device.flops_per_us(Numerics::Multiply::tf32));
  const double tiles_us = std::max(waves * tile_us, least_us), memory_us = padded_bytes(p) / device.bytes_per_us;
  return start_us + std::max(tiles_us, memory_us) + unhidden * std::min(tiles_us, memory_us);
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

double wgmma_tf32_us(const ConvProblem& p, const WgmmaTf32Plan& plan, const DeviceProfile& device) {
  if (plan.split_k == 0) return persistent_us(p, plan, device);
  return split_k_us(p,
                    {.tile = shape_of(plan.split_k_tile),
                     .split_k = plan.split_k,
                     .tiles = plan.tiles_m * plan.tiles_n,
                     .steps = plan.steps,
                     .block_k = wgmma_tf32_step,
                     .rows = static_cast<double>(plan.m() + plan.n()),
                     .row_bytes = wgmma_tf32_step * 4,
                     .ragged_us = ragged_us(p, wgmma_tf32_step),
                     .flops_per_us = split_k_share[static_cast<std::size_t>(plan.split_k_tile)] *
                                     device.flops_per_us(Numerics::Multiply::tf32)},
                    split_k_costs, device);
}

WgmmaTf32Plan plan_wgmma_tf32(const ConvProblem& p) {
  WgmmaTf32Plan best;
  double best_us = std::numeric_limits<double>::infinity();
  for (const WgmmaTf32Plan& plan : wgmma_tf32_tilings(p)) {
    const double us = wgmma_tf32_us(p, plan, reference_gpu());
    if (us >= best_us) continue;
    best_us = us;
    best = plan;
  }
  return best;
}

WgmmaTf32Plan read_wgmma_tf32_plan(const ConvProblem& p, std::string_view config) {
  ConfigReader reader(config);
  for (const WgmmaTf32Plan& plan : wgmma_tf32_tilings(p))
    if (plan.str() == config) return plan;
  reader.refuse("no kernel has this configuration for this problem");
}

}  // namespace lenslet::cuda

#include "ops/conv/cuda/wgmma_halo_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_split_k_us.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

static_assert(wgmma_halo_costs.efficiency.size() == halo_tiles.size());

constexpr int shared_bytes = 226 << 10, consumer_warps = wgmma_consumers * 4;
constexpr int most_stages = 16, most_resident = 49;  ///< of filters

std::int64_t element_bytes(const ConvProblem& p) { return static_cast<std::int64_t>(dtype_bytes(p.storage)); }

/// All but the shared memory layout; for a set.
WgmmaHaloPlan tiling(const ConvProblem& p, const HaloTile& tile, const UnitShape& unit, int row_bytes,
                     std::int64_t together, std::int64_t sets) {
  WgmmaHaloPlan plan;
  plan.together = together;
  plan.sets = sets;
  plan.tile = tile;
  plan.unit = unit;
  plan.row_bytes = row_bytes;
  plan.units = unit.units(p);
  plan.tiles_m = ceil_div(plan.units, tile.units);
  plan.tiles_n = ceil_div(p.k, tile.filters);
  plan.k_groups = ceil_div(p.c * element_bytes(p), row_bytes);
  plan.taps = p.r * p.s;
  plan.lines = static_cast<int>(unit.lines + (p.r - 1) * p.dilation_h);
  plan.columns = unit.pitch();
  plan.halo_bytes = static_cast<int>(ceil_div(std::int64_t{plan.lines} * plan.columns * row_bytes, 1024) * 1024);
  plan.filter_bytes = tile.filters * row_bytes;
  return plan;
}

/// Fills shared memory; false where it is too small.
bool lay_out(WgmmaHaloPlan& plan) {
  constexpr int staging = consumer_warps * halo_staging_bytes, barrier_bytes = 1 << 10;
  const int tile_bytes = plan.tile.units * plan.halo_bytes;
  const int all = shared_bytes - staging - barrier_bytes;
  const std::int64_t steps = plan.k_groups * plan.taps;
  const auto fitting = [&](int halo_tiles) { return std::max(0, all - halo_tiles * tile_bytes) / plan.filter_bytes; };
  // Double-buffered halo tiles, if need be a single one.
  constexpr int least = 3;
  plan.halo_stages = fitting(2) >= least ? 2 : 1;
  if (fitting(plan.halo_stages) < least) return false;
  plan.resident = blocks_of_same_filters(reference_gpu().units, plan.beside()) > 0 &&
                  steps <= std::min(most_resident, fitting(plan.halo_stages));
  plan.filter_stages = plan.resident ? static_cast<int>(steps) : std::min(most_stages, fitting(plan.halo_stages));
  while (plan.halo_stages < 4 && plan.halo_stages > 1 &&
         plan.filter_stages * plan.filter_bytes + (plan.halo_stages + 1) * tile_bytes <= all)
    ++plan.halo_stages;
  plan.filters_at = plan.halo_stages * tile_bytes;
  constexpr int alignment = 1024;  // required by the address-based swizzle
  plan.staging_at = static_cast<int>(
      ceil_div(plan.filters_at + std::int64_t{plan.filter_stages} * plan.filter_bytes, alignment) * alignment);
  plan.barriers_at = plan.staging_at + staging;
  plan.total = plan.barriers_at + 8 * (2 * (plan.halo_stages + plan.filter_stages) + consumer_warps * most_halo_slots);
  return true;
}

/// 128, and narrower rows that pad less.
std::vector<int> useful_rows(const ConvProblem& p) {
  std::vector<int> rows;
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  for (const int row : {128, 64, 32}) {
    const std::int64_t with = ceil_div(p.c * element_bytes(p), row) * row;
    if (with < bytes) rows.push_back(row);
    bytes = std::min(bytes, with);
  }
  return rows;
}

/// 8x8, and shapes that cover the output with fewer units.
std::vector<UnitShape> useful_units(const ConvProblem& p) {
  std::vector<UnitShape> shapes;
  std::int64_t units = std::numeric_limits<std::int64_t>::max();
  for (const int wide : {8, 16, 32, 64}) {
    const UnitShape shape(p, wide);
    if (!shape.fits(p) || shape.units(p) >= units) continue;
    units = shape.units(p);
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace

ConvProblem halo_set(const ConvProblem& problem, std::int64_t groups) {
  ConvProblem set = group_set(problem, groups);
  if (problem.groups > 1 && is_pointwise(problem)) {
    set.w = set.q = problem.n * problem.h * problem.w;
    set.n = set.h = set.p = 1;
  }
  return set;
}

UnitShape::UnitShape(const ConvProblem& problem, int pixels)
    : wide(pixels), lines(64 / pixels), halo(static_cast<int>((problem.s - 1) * problem.dilation_w)) {
  columns = wide == 16 || wide == 32 ? wide - halo : wide;
}

std::int64_t UnitShape::units(const ConvProblem& problem) const {
  return problem.n * ceil_div(problem.p, lines) * ceil_div(problem.q, columns);
}

std::string WgmmaHaloPlan::str() const {
  ConfigWriter text;
  text.add("units", std::int64_t{tile.units}).add("filters", std::int64_t{tile.filters});
  if (row_bytes != 128) text.add("row", std::int64_t{row_bytes});
  if (unit.wide != 8) text.add("wide", std::int64_t{unit.wide});
  if (together != 1) text.add("together", together);
  return text.str();
}

UnitWalk::UnitWalk(const ConvProblem& problem, const UnitShape& unit)
    : columns(ceil_div(problem.q, unit.columns)),
      lines(ceil_div(problem.p, unit.lines)),
      unit_columns(unit.columns),
      unit_lines(unit.lines) {}

std::vector<WgmmaHaloPlan> wgmma_halo_tilings(const ConvProblem& problem) {
  std::vector<WgmmaHaloPlan> tilings;
  for (const std::int64_t together : useful_sets(problem)) {
    const ConvProblem p = halo_set(problem, together);
    const std::vector<UnitShape> units = useful_units(p);
    for (const int row_bytes : useful_rows(p))
      for (const UnitShape& unit : units)
        for (const HaloTile& tile : halo_tiles) {
          // Half-empty tiles are left to the next narrower one, and the narrowest to problems that fit it.
          if (tile.filters > 32 && p.k <= tile.filters / 2) continue;
          if (tile.filters < 32 && (p.k > tile.filters || p.storage == DType::f32)) continue;
          WgmmaHaloPlan plan = tiling(p, tile, unit, row_bytes, together, problem.groups / together);
          if (lay_out(plan)) tilings.push_back(plan);
        }
  }
  return tilings;
}

std::optional<std::string> refuse_wgmma_halo(const ConvProblem& p) {
  if (p.r * p.s == 1 && (p.groups == 1 || !is_pointwise(p))) return "one tap: its windows share nothing";
  if (p.stride_h != 1 || p.stride_w != 1) return "a stride";
  if (p.groups > 1 && p.groups == p.c && p.k == p.c) return "depthwise: mostly zeros";
  // Limits of a TMA box: its coordinates and sides.
  constexpr std::int64_t most_side = 64;
  if ((p.r - 1) * p.dilation_h > most_side || (p.s - 1) * p.dilation_w > most_side)
    return fmt::format("a window of more than {} lines or columns", most_side + 1);
  if (wgmma_halo_tilings(p).empty()) return "the halo tile of 64 windows does not fit into shared memory";
  return std::nullopt;
}

double wgmma_halo_us(const ConvProblem& p, const WgmmaHaloPlan& plan, const DeviceProfile& device,
                     const WgmmaHaloCosts& costs) {
  const HaloTile& tile = plan.tile;
  const bool in_f32 = p.storage == DType::f32;
  const auto of_tile = static_cast<std::size_t>(std::ranges::find(halo_tiles, tile) - halo_tiles.begin());
  const double rate = costs.efficiency[of_tile] / device.units *
                      device.flops_per_us(in_f32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp16);
  const double block_k = static_cast<double>(plan.row_bytes) / static_cast<double>(element_bytes(p));
  const double outputs = 64.0 * tile.units * tile.filters;
  const double products_us = (plan.unit.wide == 8 ? 1.0 : costs.lines_factor) * 2.0 * outputs * block_k / rate;
  const double step_us = std::max(products_us, plan.resident ? costs.resident_tap_us : costs.tap_us);
  const auto steps = static_cast<double>(plan.k_groups * plan.taps);
  const double copied = static_cast<double>(plan.k_groups) * tile.units * plan.halo_bytes +
                        (plan.resident ? 0.0 : steps * plan.filter_bytes);
  const double out_us =
      (tile.filters % 64 == 0 && !in_f32 ? costs.epilogue_us : costs.narrow_epilogue_us) * outputs / (128.0 * 128.0);
  const double narrow_us = in_f32               ? (plan.row_bytes < 128 ? costs.narrow_rows_us : 0)
                           : tile.filters <= 32 ? costs.narrow_tile_us
                                                : 0;
  const double groups_us = plan.resident ? costs.resident_group_us * static_cast<double>(plan.k_groups - 1) : 0;
  // Factors measured on an H100 (docs/results/cuda-cost-model-cases-2026-11-27.csv): sets in float32, dilation, and
  // small tiles, which take less in several waves.
  const std::int64_t blocks =
      plan.resident ? std::max<std::int64_t>(device.units / plan.beside(), 1) * plan.beside() : device.units;
  const auto waves = static_cast<double>(ceil_div(plan.tiles_m * plan.beside(), blocks));
  const bool small = tile.units == 2 && tile.filters == 64;
  const double small_factor = (in_f32 ? costs.float_small_factor : costs.small_factor) *
                              (waves > 1 && plan.sets == 1 ? costs.small_waves_factor : 1.0);
  const double factor = (in_f32 && plan.sets > 1 ? costs.float_sets_factor
                         : small                 ? small_factor
                                                 : 1.0) *
                        (p.dilation_h > 1 || p.dilation_w > 1 ? costs.dilated_factor : 1.0);
  const double tile_us =
      factor * std::max(steps * step_us + out_us + narrow_us + groups_us, copied / costs.l2_bytes_per_us);
  const double tiles_us = waves * tile_us, memory_us = padded_bytes(p) / device.bytes_per_us;
  // Filters that stay are loaded once, partly before the previous kernel has ended.
  const double filters_us = plan.resident ? costs.seen_share * steps * plan.filter_bytes / costs.l2_bytes_per_us : 0;
  const double several_us = plan.sets == 1 ? 0 : in_f32 ? costs.float_sets_us : costs.sets_us;
  return costs.start_us + filters_us + several_us + std::max(tiles_us, memory_us) +
         costs.unhidden * std::min(tiles_us, memory_us);
}

WgmmaHaloPlan plan_wgmma_halo(const ConvProblem& p) {
  return best_tiling(wgmma_halo_tilings(p), [&](const auto& plan) { return wgmma_halo_us(p, plan, reference_gpu()); })
      .value();
}

WgmmaHaloPlan read_wgmma_halo_plan(const ConvProblem& p, std::string_view config) {
  return find_tiling(wgmma_halo_tilings(p), config);
}

}  // namespace lenslet::cuda

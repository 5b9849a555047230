#include "ops/conv/cuda/grouped_mma_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

/// Registers of a thread of grouped_tf32, by eights of filters a warp.
constexpr std::array<std::int64_t, 4> registers{64, 80, 128, 128};

GroupedTiling tiling_of(const ConvProblem& p, int rows_together, std::int64_t filter_eights, std::int64_t row_groups,
                        std::int64_t tile_q, std::int64_t sets) {
  const GroupedFilters filters(p);
  const bool half = filters.element_bytes == 2;
  GroupedTiling tiling;
  tiling.rows_together = rows_together;
  tiling.filter_eights = filter_eights;
  tiling.row_groups = row_groups;
  tiling.tile_p =
      row_groups * grouped_warp_rows(half, filters.eights, rows_together == 1 ? 2 : p.stride_h) * (16 / tile_q);
  tiling.tile_q = tile_q;
  tiling.half = half;
  tiling.set_eights = filters.eights;
  tiling.steps = filters.steps();
  tiling.channels = sets * filters.eights * 8;
  tiling.warps = row_groups * sets * filters.eights / filter_eights;
  tiling.halo_rows = (tiling.tile_p - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
  const std::int64_t window = (p.s - 1) * p.dilation_w + 1, vectors = tiling.channels * filters.element_bytes / 16;
  if (half) {  // images narrower than a tile need fewer columns (9 of 18 for 7x7)
    const std::int64_t columns = std::min(tile_q, p.q);
    tiling.phase_pixels = (columns - 1) * p.stride_w + window;
    tiling.beyond = (tile_q - columns) * p.stride_w;
  } else {
    tiling.phases = std::min(p.stride_w, window);
    tiling.phase_pixels = tile_q + (window - 1) / p.stride_w;
  }
  tiling.pixel_vectors = vectors + 1;
  tiling.laid_vectors = half ? tiling.pixel_vectors : vectors + (vectors % 4 == 0 ? 2 : 0);
  tiling.blocks = p.n * ceil_div(p.p, tiling.tile_p) * ceil_div(p.q, tile_q) * ceil_div(p.c, tiling.channels);
  return tiling;
}

/// grouped_mma: the longer of memory and tensor cores, plus what it does not hide; blocks have whole tiles. Set by hand
/// beside 10 drawn layers and 31 of ResNeXts and RegNets (H100, 25 November 2026).
double grouped_half_us(const ConvProblem& p, const GroupedTiling& tiling, const DeviceProfile& device) {
  constexpr double start_us = 2.1, product_share = 0.3, unhidden = 0.35;
  const double memory_share = p.stride_h > 1 ? 0.75 : 0.58;
  const double block = 2.0 * static_cast<double>(tiling.tile_p * tiling.tile_q) * static_cast<double>(tiling.channels) *
                       static_cast<double>(tiling.steps * p.r * 16);
  const double waves = std::ceil(static_cast<double>(tiling.blocks) / device.units);
  const double products_us =
      waves * block * device.units / (product_share * device.flops_per_us(Numerics::Multiply::fp16));
  const double memory_us = p.bytes() / (memory_share * device.bytes_per_us);
  return device.launch_us + start_us + std::max(memory_us, products_us) + unhidden * std::min(memory_us, products_us);
}

}  // namespace

std::size_t GroupedTiling::shared_bytes() const {
  return static_cast<std::size_t>(16 *
                                  std::max((halo_pixels() + beyond) * pixel_vectors, tile_p * tile_q * laid_vectors));
}

std::string GroupedTiling::str() const {
  if (half) return ConfigWriter().add("rows", std::int64_t{rows_together}).str();
  return ConfigWriter()
      .add("filters", 8 * filter_eights)
      .add("tile", fmt::format("{}x{}", tile_p, tile_q))
      .add("channels", channels)
      .str();
}

GroupedFilters::GroupedFilters(const ConvProblem& p)
    : r(p.r), s(p.s), eights(grouped_set_eights(p)), element_bytes(static_cast<std::int64_t>(dtype_bytes(p.storage))) {
  vectors = eights * element_bytes / 2;
}

std::int64_t grouped_set_eights(const ConvProblem& p) {
  if (p.group_c() % 4 != 0) return 0;
  const std::int64_t eights = std::lcm(p.group_c(), std::int64_t{8}) / 8;
  return eights <= (p.storage == DType::f32 ? 8 : 4) ? eights : 0;
}

std::vector<GroupedTiling> grouped_tilings(const ConvProblem& p) {
  std::vector<GroupedTiling> tilings;
  const std::int64_t eights = grouped_set_eights(p);
  const int rows_together = p.r == 3 && p.dilation_h == 1 && p.stride_h <= 2 ? 3 : 1;
  if (p.storage != DType::f32) {
    for (int rows = rows_together; rows > 0; rows -= 2) {
      const std::int64_t sets = grouped_half_sets(eights, rows == 1 ? 2 : p.stride_h);
      tilings.push_back(tiling_of(p, rows, eights, grouped_most_warps / sets, 16, sets));
    }
    return tilings;
  }
  for (std::int64_t filters = std::min<std::int64_t>(eights, grouped_most_filter_eights); filters > 0; --filters) {
    if (eights % filters != 0) continue;
    for (std::int64_t sets = 8; sets > 0; sets /= 2) {
      if (sets > 1 && sets / 2 * eights * 8 >= p.c) continue;  // half of the block would be idle
      for (std::int64_t row_groups = 4; row_groups > 0; row_groups /= 2)
        for (const std::int64_t tile_q : {16, 8})
          if (row_groups * sets * eights / filters <= grouped_most_warps)
            tilings.push_back(tiling_of(p, rows_together, filters, row_groups, tile_q, sets));
    }
  }
  return tilings;
}

double grouped_tf32_us(const ConvProblem& p, const GroupedTiling& tiling, const DeviceProfile& device,
                       const GroupedTf32Costs& costs) {
  const auto of_filters = static_cast<std::size_t>(tiling.filter_eights - 1);
  // One warp's products, and the bytes of a block.
  const auto products = static_cast<double>(
      tiling.steps * p.r * grouped_warp_rows(false, tiling.set_eights, p.stride_h) * tiling.filter_eights);
  const auto rounds_of_rows = static_cast<double>(tiling.steps * ceil_div(p.r, tiling.rows_together));
  const auto block_bytes =
      4.0 * static_cast<double>(tiling.channels * (tiling.halo_pixels() + tiling.tile_p * tiling.tile_q +
                                                   tiling.set_eights * 8 * p.r * p.s));
  const std::int64_t resident = std::clamp<std::int64_t>(
      std::min({64 / tiling.warps, 65536 / (registers[of_filters] * 32 * tiling.warps),
                static_cast<std::int64_t>(device.shared_bytes_per_unit / (tiling.shared_bytes() + 1024))}),
      1, 32);
  // The fullest multiprocessor: its total work, and the latencies of its blocks.
  const std::int64_t blocks = ceil_div(tiling.blocks, device.units);
  const double flops = 2.0 * 16 * 8 * 8 * products * static_cast<double>(tiling.warps);
  const double rate = costs.efficiency[of_filters] * device.flops_per_us(Numerics::Multiply::tf32) / device.units;
  const double lone_us = costs.block_us + rounds_of_rows * costs.step_us + products * costs.product_us +
                         block_bytes / (costs.l2_bytes_per_us / device.units);
  return device.launch_us +
         std::max({p.bytes() / (costs.memory_share * device.bytes_per_us) + costs.block_us,
                   static_cast<double>(tiling.blocks) * block_bytes / costs.l2_bytes_per_us + costs.block_us,
                   static_cast<double>(blocks) * flops / rate + costs.block_us,
                   static_cast<double>(ceil_div(blocks, resident)) * lone_us});
}

double grouped_us(const ConvProblem& p, const GroupedTiling& tiling, const DeviceProfile& device) {
  return tiling.half ? grouped_half_us(p, tiling, device) : grouped_tf32_us(p, tiling, device);
}

std::optional<GroupedTiling> plan_grouped(const ConvProblem& p, const DeviceProfile& device) {
  std::vector<GroupedTiling> tilings = grouped_tilings(p);
  if (p.storage != DType::f32 && tilings.size() > 1) tilings.resize(1);  // 16 bits: always the first
  return best_tiling(tilings, [&](const GroupedTiling& tiling) {
    return device.refuse_shared(tiling.shared_bytes()) ? std::numeric_limits<double>::infinity()
                                                       : grouped_us(p, tiling, device);
  });
}

GroupedTiling read_grouped_tiling(const ConvProblem& p, std::string_view config, const DeviceProfile& device) {
  const GroupedTiling tiling = find_tiling(grouped_tilings(p), config);
  if (const auto why = device.refuse_shared(tiling.shared_bytes())) ConfigReader(config).refuse(*why);
  return tiling;
}

}  // namespace lenslet::cuda

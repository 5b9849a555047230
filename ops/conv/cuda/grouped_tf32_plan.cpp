#include "ops/conv/cuda/grouped_tf32_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace lenslet::cuda {
namespace {

/// Registers of a thread, by eights of filters a warp.
constexpr std::array<std::int64_t, 4> registers{64, 80, 128, 128};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

GroupedTf32Tiling tiling_of(const ConvProblem& p, std::int64_t filter_eights, std::int64_t row_groups,
                            std::int64_t tile_q, std::int64_t sets) {
  GroupedTf32Tiling tiling;
  tiling.filter_eights = filter_eights;
  tiling.row_groups = row_groups;
  tiling.tile_p = row_groups * grouped_tf32_rows * (16 / tile_q);
  tiling.tile_q = tile_q;
  tiling.set_eights = grouped_tf32_set_eights(p);
  tiling.channels = sets * tiling.set_eights * 8;
  tiling.warps = row_groups * sets * tiling.set_eights / filter_eights;
  tiling.halo_rows = (tiling.tile_p - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
  tiling.phases = std::min(p.stride_w, (p.s - 1) * p.dilation_w + 1);
  tiling.phase_pixels = tile_q + (p.s - 1) * p.dilation_w / p.stride_w;
  tiling.pixel_vectors = tiling.channels / 4 + 1;
  tiling.laid_vectors = tiling.channels / 4 + (tiling.channels / 4 % 4 == 0 ? 2 : 0);
  tiling.blocks = p.n * ceil_div(p.p, tiling.tile_p) * ceil_div(p.q, tile_q) * ceil_div(p.c, tiling.channels);
  return tiling;
}

}  // namespace

std::size_t GroupedTf32Tiling::shared_bytes() const {
  return static_cast<std::size_t>(16 * std::max(halo_pixels() * pixel_vectors, tile_p * tile_q * laid_vectors));
}

std::string GroupedTf32Tiling::str() const {
  return ConfigWriter()
      .add("filters", 8 * filter_eights)
      .add("tile", fmt::format("{}x{}", tile_p, tile_q))
      .add("channels", channels)
      .str();
}

std::int64_t grouped_tf32_set_eights(const ConvProblem& p) {
  if (p.group_c() % 4 != 0) return 0;
  const std::int64_t eights = std::lcm(p.group_c(), std::int64_t{8}) / 8;
  return eights <= grouped_tf32_most_eights ? eights : 0;
}

int grouped_tf32_rows_together(const ConvProblem& p) {
  return p.r == 3 && p.dilation_h == 1 && p.stride_h <= 2 ? 3 : 1;
}

std::vector<GroupedTf32Tiling> grouped_tf32_tilings(const ConvProblem& p) {
  std::vector<GroupedTf32Tiling> tilings;
  const std::int64_t eights = grouped_tf32_set_eights(p);
  for (std::int64_t filters = std::min<std::int64_t>(eights, grouped_tf32_most_filter_eights); filters > 0; --filters) {
    if (eights % filters != 0) continue;
    for (std::int64_t sets = 8; sets > 0; sets /= 2) {
      if (sets > 1 && sets / 2 * eights * 8 >= p.c) continue;  // half of the block would be idle
      for (std::int64_t row_groups = 4; row_groups > 0; row_groups /= 2)
        for (const std::int64_t tile_q : {16, 8})
          if (row_groups * sets * eights / filters <= grouped_tf32_most_warps)
            tilings.push_back(tiling_of(p, filters, row_groups, tile_q, sets));
    }
  }
  return tilings;
}

double grouped_tf32_us(const ConvProblem& p, const GroupedTf32Tiling& tiling, const DeviceProfile& device,
                       const GroupedTf32Costs& costs) {
  const auto of_filters = static_cast<std::size_t>(tiling.filter_eights - 1);
  const std::int64_t steps = p.s * tiling.set_eights;
  // One warp's products, and the bytes of a block.
  const auto products = static_cast<double>(steps * p.r * grouped_tf32_rows * tiling.filter_eights);
  const auto rounds_of_rows = static_cast<double>(steps * ceil_div(p.r, grouped_tf32_rows_together(p)));
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

std::optional<GroupedTf32Tiling> plan_grouped_tf32(const ConvProblem& p, const DeviceProfile& device) {
  std::optional<GroupedTf32Tiling> best;
  double best_us = std::numeric_limits<double>::infinity();
  for (const GroupedTf32Tiling& tiling : grouped_tf32_tilings(p)) {
    if (device.refuse_shared(tiling.shared_bytes())) continue;
    const double us = grouped_tf32_us(p, tiling, device);
    if (us >= best_us) continue;
    best_us = us;
    best = tiling;
  }
  return best;
}

GroupedTf32Tiling read_grouped_tf32_tiling(const ConvProblem& p, std::string_view config, const DeviceProfile& device) {
  ConfigReader reader(config);
  (void)reader.integer("filters"), (void)reader.word("tile"), (void)reader.integer("channels");
  reader.finish();
  for (const GroupedTf32Tiling& tiling : grouped_tf32_tilings(p)) {
    if (tiling.str() != config) continue;
    if (const auto why = device.refuse_shared(tiling.shared_bytes())) reader.refuse(*why);
    return tiling;
  }
  reader.refuse("the configuration does not fit the problem");
}

}  // namespace lenslet::cuda

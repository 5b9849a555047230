#include "ops/sparse/cuda/gathered_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "ops/core/config_text.h"

namespace lenslet::cuda {

namespace {

int columns_for(std::int64_t filters) { return filters <= 16 ? 16 : filters <= 32 ? 32 : most_columns; }

/// Desired resident blocks per multiprocessor.
constexpr int resident = 4;

}  // namespace

std::string GatheredPlan::str() const {
  return ConfigWriter()
      .add("rows", std::int64_t{rows})
      .add("columns", std::int64_t{columns})
      .add("units", std::int64_t{units})
      .add("ahead", std::int64_t{ahead})
      .add("fill", std::int64_t{fill})
      .add("split_k", std::int64_t{split_k})
      .str();
}

std::int64_t GatheredPlan::blocks(const SparseConvProblem& p) const {
  return std::min((p.max_outputs + fewest_rows - 1) / fewest_rows, p.max_outputs / rows + fill + 1);
}

std::int64_t GatheredPlan::grid_x(const SparseConvProblem& p) const {
  return std::max(blocks(p), std::min<std::int64_t>(2 * fill, split_k * blocks(p)));
}

int GatheredPlan::number_slots(std::int64_t pair_units) const {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>((2 * ahead + 1) * step_batches(pair_units) + 1)));
}

std::size_t GatheredPlan::shared_bytes(std::int64_t taps, std::int64_t pair_units) const {
  const auto acc = static_cast<std::size_t>(rows * columns) * sizeof(float);
  const auto stage = static_cast<std::size_t>(units * (batch_rows + columns) * unit_bytes);
  const auto numbers = static_cast<std::size_t>(number_slots(pair_units) * 2 * batch_rows) * sizeof(int);
  const auto batches = static_cast<std::size_t>(taps * ((rows + batch_rows - 1) / batch_rows));
  return acc + static_cast<std::size_t>(ahead + 1) * stage + numbers + batches * 16;
}

std::size_t GatheredPlan::parts_offset(const SparseConvProblem& p) const {
  return (static_cast<std::size_t>(p.taps * (blocks(p) + 1) + counters(tiles_n(p))) * sizeof(int) + 15) / 16 * 16;
}

std::size_t GatheredPlan::workspace_bytes(const SparseConvProblem& p) const {
  // Rows of splits: those of at most twice `fill` blocks of few_rows, and at most `split_k` per output.
  const std::int64_t filled = 2 * std::int64_t{fill} * few_rows, there = split_k * (p.max_outputs + few_rows);
  const bool has_split_k = split_k_of(1, p.taps) > 1;
  return parts_offset(p) +
         (has_split_k ? static_cast<std::size_t>(std::min(filled, there) * tiles_n(p) * columns) * sizeof(float) : 0);
}

GatheredPlan plan_gathered(const SparseConvProblem& p, const DeviceProfile& device) {
  const int columns = columns_for(p.filters), multiprocessors = std::clamp(device.units, 1, 1 << 14);
  const int fill =
      std::max<int>(1, static_cast<int>(resident * multiprocessors / ((p.filters + columns - 1) / columns)));
  // More rows reuse filters more; for few filters the accumulators would take the space of larger steps.
  const int many = columns == 64 ? few_rows : columns == 32 ? 128 : 96;
  GatheredPlan plan{.columns = columns,
                    .rows = p.max_outputs <= std::int64_t{fill} * few_rows ? few_rows : many,
                    .units = 1,
                    .ahead = 1,
                    .fill = fill,
                    .split_k = static_cast<int>(std::clamp<std::int64_t>(p.taps / 3, 1, max_split_k))};
  // The largest steps that leave space for the other blocks of a multiprocessor (228 KiB, plus 1 KiB per block).
  const auto fits = [&](int units, int ahead) {
    GatheredPlan larger = plan;
    larger.units = units;
    larger.ahead = ahead;
    const auto of_block = larger.shared_bytes(p.taps, gathered_units(p)) + 1024;
    return static_cast<std::size_t>(resident) * of_block <= 228U * 1024;
  };
  for (const int units : {2, 4})
    if (fits(units, 1)) plan.units = units;
  for (const int ahead : {2, 3})
    if (fits(plan.units, ahead)) plan.ahead = ahead;
  return plan;
}

GatheredPlan read_gathered_plan(const SparseConvProblem& p, std::string_view config) {
  ConfigReader reader(config);
  const std::int64_t rows = reader.integer("rows", few_rows, 256), columns = reader.integer("columns", 1, 1024),
                     units = reader.integer("units", 1, most_units), ahead = reader.integer("ahead", 1, most_ahead),
                     fill = reader.integer("fill", 1, 1 << 16), split_k = reader.integer("split_k", 1, max_split_k);
  reader.finish();
  const GatheredPlan plan{.columns = columns_for(p.filters),
                          .rows = static_cast<int>(rows),
                          .units = static_cast<int>(units),
                          .ahead = static_cast<int>(ahead),
                          .fill = static_cast<int>(fill),
                          .split_k = static_cast<int>(split_k)};
  if (plan.columns != columns || rows % 16 != 0 || units == 3) reader.refuse("it has no such configuration");
  return plan;
}

std::int64_t gathered_units(const SparseConvProblem& p) {
  return (p.channels * int{sizeof(float)} + unit_bytes - 1) / unit_bytes;
}

std::size_t gathered_filter_bytes(const SparseConvProblem& p, const GatheredPlan& plan) {
  return static_cast<std::size_t>(plan.tiles_n(p) * p.taps * gathered_units(p) * plan.columns * unit_bytes);
}

void pack_gathered_filters(const SparseConvOp& op, const SparseConvProblem& p, const float* w, const GatheredPlan& plan,
                           std::span<std::byte> to) {
  std::memset(to.data(), 0, to.size());
  constexpr std::int64_t unit_channels = unit_bytes / int{sizeof(float)};
  const std::int64_t units = gathered_units(p);
  for (std::int64_t k = 0; k < p.filters; ++k)
    for (std::int64_t c = 0; c < p.channels; ++c)
      for (std::int64_t tap = 0; tap < p.taps; ++tap) {
        const std::int64_t unit = (k / plan.columns * p.taps + tap) * units + c / unit_channels;
        const float value = op.scaled(w[(k * p.channels + c) * p.taps + tap], k);
        std::memcpy(to.data() + unit * plan.columns * unit_bytes +
                        (c % unit_channels * plan.columns + k % plan.columns) * int{sizeof(float)},
                    &value, sizeof(value));
      }
}

// Step constants come from H100 times of single-unit steps: not fitted.
double gathered_us(const SparseConvProblem& p, const GatheredPlan& plan, const DeviceProfile& device) {
  // Start of both launches: dependent reads of counts, offsets and site numbers.
  constexpr double start_us = 4;
  // Share of the peak. Batches are padded: a block of 64 outputs has 16 % more rows than pairs (multiples of 16), one
  // of 128 has 10 % (docs/sparse.md).
  constexpr double share = 0.65, split_k_us = 3;
  constexpr double batch_us = 0.4, unit_us = 0.3;
  const int block_rows = plan.rows_of(p.max_outputs);
  const double filled = block_rows <= few_rows ? 1.16 : 1.1;
  constexpr double bytes = sizeof(float);
  const auto pair_units = static_cast<double>(gathered_units(p));
  const auto pairs = static_cast<double>(p.max_pairs), rows = static_cast<double>(p.max_outputs);
  const auto tiles_n = static_cast<double>(plan.tiles_n(p));
  const auto blocks = static_cast<double>((p.max_outputs + block_rows - 1) / block_rows),
             taps = static_cast<double>(p.taps);
  const double multiplied = 2 * filled * pairs * pair_units * (unit_bytes / bytes) * (tiles_n * plan.columns) /
                            (share * device.fp32_flops_per_us);
  // L2 gives about 1.3 times memory's bandwidth: rows of x per pair, filters per block and tap.
  const double gathered =
      tiles_n * pairs * pair_units * unit_bytes + tiles_n * blocks * taps * pair_units * plan.columns * 64;
  const double stored = bytes * rows * static_cast<double>(p.filters) * (p.residual ? 2 : 1) + 8 * pairs +
                        bytes * static_cast<double>(p.max_inputs * p.channels);
  const double moved = gathered / (1.3 * device.bytes_per_us) + stored / device.bytes_per_us;
  // The serial time of a block's steps, times the number of rounds of blocks.
  const int split_k = plan.split_k_of(p.max_outputs, p.taps);
  const double turns = std::ceil(blocks * split_k / plan.fill);
  const double batches = taps * std::ceil(block_rows / static_cast<double>(batch_rows)) / split_k;
  const double alone = turns * batches * (batch_us + pair_units * unit_us) + (split_k > 1 ? split_k_us : 0);
  return 2 * device.launch_us + start_us + std::max({multiplied, moved, alone});
}

}  // namespace lenslet::cuda

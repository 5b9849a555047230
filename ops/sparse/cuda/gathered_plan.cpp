#include "ops/sparse/cuda/gathered_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/tf32.h"
#include "ops/core/config_text.h"

namespace lenslet::cuda {

namespace {

int columns_for(std::int64_t filters, SparseArithmetic arithmetic) {
  for (const int columns : {16, 32, 64})
    if (filters <= columns) return columns;
  // 192 filters are three tiles of 64 rather than two of 128.
  return most_columns(arithmetic) == 128 && (filters + 63) / 64 % 2 == 0 ? 128 : 64;
}

/// Of many outputs: as many as leave room for two blocks of 128 filters on a multiprocessor, and for three and more of
/// fewer. At least 64: list_batches() needs the room of their numbers.
int most_rows(int columns) { return columns == 16 ? 256 : columns == 128 ? 112 : 128; }

}  // namespace

std::string GatheredPlan::str() const {
  return ConfigWriter()
      .add("rows", std::int64_t{rows})
      .add("columns", std::int64_t{columns})
      .add("few_below", std::int64_t{few_below})
      .str();
}

std::int64_t GatheredPlan::blocks(const SparseConvProblem& p) const {
  const auto filled = [&](std::int64_t most_outputs, int of_block) {
    return (std::min(p.max_outputs, most_outputs) + of_block - 1) / of_block;
  };
  return std::max({filled(p.max_outputs, rows), filled(few_below, few_rows), filled(few_below / 4, fewest_rows)});
}

std::size_t GatheredPlan::shared_bytes(std::int64_t taps) const {
  const auto sums = static_cast<std::size_t>(rows * columns) * sizeof(float);
  const auto stage = static_cast<std::size_t>((most_batch() + columns) * step_bytes);
  const auto numbers = static_cast<std::size_t>((2 * steps_ahead + 1) * 2 * most_batch()) * sizeof(int);
  const auto batches = static_cast<std::size_t>(taps * ((rows + most_batch() - 1) / most_batch()));
  return sums + (steps_ahead + 1) * stage + numbers + batches * 16;
}

std::size_t GatheredPlan::workspace_bytes(const SparseConvProblem& p) const {
  return static_cast<std::size_t>(p.taps * (blocks(p) + 1)) * sizeof(int);
}

GatheredPlan plan_gathered(const SparseConvProblem& p, SparseArithmetic arithmetic, const DeviceProfile& device) {
  const int columns = columns_for(p.filters, arithmetic), rows = most_rows(columns);
  return {columns, rows, 3 * rows * std::clamp(device.units, 1, 1 << 16) / 2};
}

GatheredPlan read_gathered_plan(const SparseConvProblem& p, SparseArithmetic arithmetic, std::string_view config) {
  ConfigReader reader(config);
  const std::int64_t rows = reader.integer("rows", 1, 1024), columns = reader.integer("columns", 1, 1024),
                     few_below = reader.integer("few_below", 0, 1 << 30);
  reader.finish();
  const GatheredPlan plan{columns_for(p.filters, arithmetic), most_rows(columns_for(p.filters, arithmetic)),
                          static_cast<int>(few_below)};
  if (plan.rows != rows || plan.columns != columns) reader.refuse("there is no such cut of it");
  return plan;
}

std::int64_t gathered_steps(const SparseConvProblem& p, SparseArithmetic arithmetic) {
  return (p.channels * element_bytes(arithmetic) + step_bytes - 1) / step_bytes;
}

std::size_t gathered_filter_bytes(const SparseConvProblem& p, const GatheredPlan& plan, SparseArithmetic arithmetic) {
  return static_cast<std::size_t>(plan.tiles_n(p) * p.taps * gathered_steps(p, arithmetic) * plan.columns * step_bytes);
}

void pack_gathered_filters(const SparseConvOp& op, const SparseConvProblem& p, const float* w, const GatheredPlan& plan,
                           SparseArithmetic arithmetic, std::span<std::byte> to) {
  std::memset(to.data(), 0, to.size());
  const std::int64_t steps = gathered_steps(p, arithmetic), bytes = element_bytes(arithmetic),
                     step_channels = step_bytes / bytes;
  const auto scale = op.scale();
  for (std::int64_t k = 0; k < p.filters; ++k)
    for (std::int64_t c = 0; c < p.channels; ++c)
      for (std::int64_t tap = 0; tap < p.taps; ++tap) {
        const double exact = double{w[(k * p.channels + c) * p.taps + tap]} *
                             (scale.empty() ? 1.0 : double{scale[static_cast<std::size_t>(k)]});
        const std::int64_t column = k % plan.columns, in_step = c % step_channels;
        std::byte* const stage =
            to.data() + ((k / plan.columns * p.taps + tap) * steps + c / step_channels) * plan.columns * step_bytes;
        const auto put = [&](std::int64_t at, auto value) { std::memcpy(stage + at, &value, sizeof(value)); };
        if (arithmetic == SparseArithmetic::fma) {
          put((in_step * plan.columns + column) * bytes, static_cast<float>(exact));
          continue;
        }
        const std::int64_t byte = in_step * bytes, half = byte / 16 % 2 ^ (column >> 2 & 1);
        const std::int64_t at = (byte / 32 * plan.columns + column) * 32 + half * 16 + byte % 16;
        if (arithmetic == SparseArithmetic::tf32)
          put(at, tf32_from_f64(exact));
        else
          put(at, arithmetic == SparseArithmetic::fp16 ? f16_from_f64(exact) : bf16_from_f64(exact));
      }
}

// Not fitted: counted by hand, before anything was measured.
double gathered_us(const SparseConvProblem& p, const GatheredPlan& plan, SparseArithmetic arithmetic,
                   const DeviceProfile& device) {
  // Both launches' starts: reading counts, places and numbers of sites, one after the other.
  constexpr double start_us = 4;
  // Of the peak. Batches are filled up: a block of 64 outputs has 16 % more rows than pairs at multiples of 16, one of
  // 128 has 10 % (docs/sparse.md).
  constexpr double share = 0.65, step_us = 0.4;
  const int block_rows = plan.rows_of(p.max_outputs);
  const double filled = block_rows <= few_rows ? 1.16 : 1.1;
  const std::int64_t bytes = element_bytes(arithmetic);
  const double rate = arithmetic == SparseArithmetic::fma    ? device.fp32_flops_per_us
                      : arithmetic == SparseArithmetic::tf32 ? device.flops_per_us(Numerics::Multiply::tf32)
                                                             : device.flops_per_us(Numerics::Multiply::fp16);
  const auto steps = static_cast<double>(gathered_steps(p, arithmetic));
  const auto pairs = static_cast<double>(p.max_pairs), rows = static_cast<double>(p.max_outputs);
  const auto tiles_n = static_cast<double>(plan.tiles_n(p));
  const auto blocks = static_cast<double>((p.max_outputs + block_rows - 1) / block_rows),
             taps = static_cast<double>(p.taps);
  const double multiplied = 2 * filled * pairs * steps * (step_bytes / static_cast<double>(bytes)) *
                            (tiles_n * plan.columns) / (share * rate);
  // L2 gives some 1.3 times what memory does: rows of x a pair, filters a block and tap.
  const double gathered = tiles_n * pairs * steps * step_bytes + tiles_n * blocks * taps * steps * plan.columns * 64;
  const double stored = static_cast<double>(bytes) * rows * static_cast<double>(p.filters) * (p.residual ? 2 : 1) +
                        8 * pairs + static_cast<double>(p.max_inputs * p.channels * bytes);
  const double moved = gathered / (1.3 * device.bytes_per_us) + stored / device.bytes_per_us;
  // What one block's steps take one after the other, as often as blocks follow one another.
  const double at_once = std::max(device.units, 1) * (plan.columns == 128 ? 2.0 : 3.0);
  const double turns = std::ceil(blocks * tiles_n / at_once);
  const double alone = turns * taps * steps * std::ceil(block_rows / static_cast<double>(batch_rows)) * step_us;
  return 2 * device.launch_us + start_us + std::max({multiplied, moved, alone});
}

}  // namespace lenslet::cuda

#include "ops/sparse/cuda/neighbour_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/tf32.h"
#include "ops/core/config_text.h"
#include "ops/sparse/cuda/gathered_plan.h"

namespace lenslet::cuda {

std::string NeighbourPlan::str() const {
  return ConfigWriter()
      .add("width", std::int64_t{width})
      .add("columns", std::int64_t{columns})
      .add("pieces", std::int64_t{pieces})
      .add("terms", std::int64_t{terms})
      .add("warps", std::int64_t{warps})
      .add("rows", std::int64_t{rows})
      .add("stage", std::int64_t{stage})
      .add("fill", std::int64_t{fill})
      .str();
}

std::size_t NeighbourPlan::shared_bytes(std::int64_t taps, std::int64_t chunks) const {
  return static_cast<std::size_t>(filter_bytes(static_cast<int>(taps * chunks)) + row_bytes()) +
         static_cast<std::size_t>(taps * rows + rows / tile_rows() * 4 + 2 * taps + 3 + taps) * 4 +
         static_cast<std::size_t>(warps * 128);
}

// Fitted to an H100's times on SECOND's layers, 24,000 to 101,000 sites (docs/sparse.md).
NeighbourPlan plan_neighbours(const SparseConvProblem& p, SparseArithmetic arithmetic, const DeviceProfile& device) {
  const std::int64_t bytes = row_bytes(p, arithmetic);
  NeighbourPlan plan{};
  plan.fma = arithmetic == SparseArithmetic::fma;
  plan.terms = plan.fma ? 2 : bytes <= 32 || bytes % 16 != 0 ? 1 : bytes <= 64 ? 2 : 4;
  const auto steps = static_cast<int>(p.taps * plan.chunks(bytes));
  plan.stage = steps;
  constexpr int most_bytes = 112 << 10, few_bytes = 60 << 10;
  plan.width = plan.columns = p.filters <= 16 ? 16 : 32;
  if (plan.filter_bytes(steps) > most_bytes) plan.stage = most_bytes / 2 / (plan.step_bytes() * plan.columns);
  const std::int64_t multiprocessors = std::max<std::int64_t>(1, device.units / plan.tiles_n(p));
  const std::int64_t outputs = (p.max_outputs + multiprocessors - 1) / multiprocessors;  // of a multiprocessor
  int resident = 1;
  plan.pieces = plan.fma ? 2 : 1;
  plan.warps = plan.fma || outputs > 256 ? 20 : 16;
  if (!plan.fma && plan.filter_bytes(steps) <= few_bytes) {
    const bool large = plan.aligned(bytes) && outputs > (plan.width == 16 ? 600 : 340);
    if (large) plan.pieces = 2;
    if (large || p.taps <= 8) plan.warps = plan.width == 16 || p.taps <= 8 ? 8 : 16;
    if (plan.warps == 8) resident = 2;
    if (plan.width == 16 && !large && outputs > 256) {
      resident = 3;
      plan.warps = 8;
    }
  } else if (!plan.fma && outputs <= 96) {
    plan.width = 16;  // few outputs: twice as many tiles
  }
  plan.fill = static_cast<int>(resident * multiprocessors);
  // Of 227 KiB, minus what is not the table. A table row has an int per tap.
  const std::int64_t left = (227 << 10) / resident - plan.filter_bytes(steps) - plan.row_bytes() - (9 << 10);
  const int tile_rows = plan.tile_rows();
  const std::int64_t most_rows = std::max<std::int64_t>(1, left / (4 * p.taps + 2));
  const std::int64_t wanted = ((p.max_outputs + plan.fill - 1) / plan.fill + tile_rows - 1) / tile_rows * tile_rows;
  plan.rows = static_cast<int>(std::max<std::int64_t>(1, std::min(most_rows, wanted) / tile_rows)) * tile_rows;
  return plan;
}

NeighbourPlan read_neighbour_plan(const SparseConvProblem& p, SparseArithmetic arithmetic, std::string_view config) {
  ConfigReader reader(config);
  const auto read = [&](const char* name, std::int64_t least, std::int64_t most) {
    return static_cast<int>(reader.integer(name, least, most));
  };
  NeighbourPlan plan{};
  plan.fma = arithmetic == SparseArithmetic::fma;
  plan.width = read("width", 16, 64);
  plan.columns = read("columns", 16, 1024);
  plan.pieces = read("pieces", 1, 8);
  plan.terms = read("terms", 1, 4);
  plan.warps = read("warps", 1, 24);
  plan.rows = read("rows", 1, 1 << 16);
  plan.stage = read("stage", 1, 1 << 26);
  plan.fill = read("fill", 1, 1 << 16);
  reader.finish();
  if (plan.columns % plan.width != 0 || plan.rows % plan.tile_rows() != 0 ||
      plan.stage > p.taps * plan.chunks(row_bytes(p, arithmetic)))
    reader.refuse("it has no such configuration");
  return plan;
}

std::size_t neighbour_filter_bytes(const SparseConvProblem& p, const NeighbourPlan& plan, SparseArithmetic arithmetic) {
  return static_cast<std::size_t>(plan.tiles_n(p) * plan.columns * p.taps * plan.chunks(row_bytes(p, arithmetic)) *
                                  plan.step_bytes());
}

void pack_neighbour_filters(const SparseConvOp& op, const SparseConvProblem& p, const float* w,
                            const NeighbourPlan& plan, SparseArithmetic arithmetic, std::span<std::byte> to) {
  std::memset(to.data(), 0, to.size());
  const std::int64_t bytes = element_bytes(arithmetic), step = plan.step_bytes(), width = plan.width,
                     chunks = plan.chunks(row_bytes(p, arithmetic));
  for (std::int64_t k = 0; k < p.filters; ++k)
    for (std::int64_t c = 0; c < p.channels; ++c)
      for (std::int64_t tap = 0; tap < p.taps; ++tap) {
        const double exact = op.exact(w[(k * p.channels + c) * p.taps + tap], k);
        const std::int64_t column = k % width, in_row = c * bytes, in_step = in_row % step;
        std::byte* const of_step = to.data() + ((k / width * p.taps + tap) * chunks + in_row / step) * step * width;
        const auto put = [&](std::int64_t at, auto value) { std::memcpy(of_step + at, &value, sizeof(value)); };
        if (arithmetic == SparseArithmetic::fma) {
          put((in_step / bytes * width + column) * bytes, static_cast<float>(exact));
          continue;
        }
        // A lane of four has 16 of 64 bytes, eight per instruction; of 32 bytes it has eight.
        const std::int64_t lane_bytes = plan.lane_bytes(), t = in_step % (4 * lane_bytes) / lane_bytes;
        const std::int64_t term = in_step / (4 * lane_bytes) * 2 + in_step % lane_bytes / 8, word = in_step % 8 / 4;
        // A lane's accumulators are of adjacent filters: width / 4, two of each eight that are multiplied together.
        const std::int64_t of_lane = column % (width / 4), eight = of_lane / 2,
                           g = column / (width / 4) * 2 + of_lane % 2;
        const std::int64_t at =
            (term * (width / 16) + eight / 2) * 512 + (g * 4 + t) * 16 + (eight % 2 * 2 + word) * 4 + in_step % 4;
        if (arithmetic == SparseArithmetic::tf32)
          put(at, tf32_from_f64(exact));
        else
          put(at, arithmetic == SparseArithmetic::fp16 ? f16_from_f64(exact) : bf16_from_f64(exact));
      }
}

double neighbour_us(const SparseConvProblem& p, SparseArithmetic arithmetic, const DeviceProfile& device) {
  const bool fma = arithmetic == SparseArithmetic::fma, tf32 = arithmetic == SparseArithmetic::tf32;
  // gathered_us underestimates gathered_tiles in float32, so comparable kernels are a share of it. On SECOND's layers
  // neighbour_tiles took 0.57 to 0.9 of it, TF32 0.3 to 0.7, always less than neighbour_tiles.
  const double gathered = fma || tf32 ? gathered_us(p, plan_gathered(p, device), device) : 0;
  const bool given = p.table_rows > 0;
  if (fma) return (given ? 0.65 : 0.75) * gathered;
  // Within a fifth for 27 taps: a block's table, 0.02 us per thousand pairs to find and read them, and a seventh of the
  // peak.
  const double pairs = static_cast<double>(p.max_pairs) / 1000, terms = static_cast<double>(p.channels * p.filters);
  const double rate = device.flops_per_us(tf32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp16);
  const double us = (given ? 8 : 11.5) + pairs * ((given ? 0.014 : 0.02) + 7 * 2000 * terms / rate);
  return tf32 ? std::min(us, (given ? 0.6 : 0.7) * gathered) : us;
}

}  // namespace lenslet::cuda

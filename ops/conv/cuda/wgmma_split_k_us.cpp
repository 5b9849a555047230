#include "ops/conv/cuda/wgmma_split_k_us.h"

#include <algorithm>

#include "base/aligned_format.h"
#include "ops/conv/cuda/costs/wgmma_windows.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {

double padded_bytes(const ConvProblem& p) {
  ConvProblem stored = p;
  stored.c = aligned_channels(p.c, p.x_storage);
  stored.k = aligned_channels(p.k, p.storage);
  // A strided 1x1 reads only its own pixels: 64x256x56x56 -> 512, s2, TF32, took 68 us; 126 was estimated for all of x.
  if (p.r == 1 && p.s == 1) stored.h = p.p, stored.w = p.q;
  return stored.bytes();
}

double ragged_us(const ConvProblem& p, int width, bool persistent) {
  const bool aligned = aligned_channels(p.c, p.x_storage) == p.c;
  if (is_pointwise(p) || (aligned && !persistent)) return 0;
  const double outside_us = aligned ? window_costs.aligned_outside_us : window_costs.outside_us;
  const auto bytes =
      static_cast<double>((ceil_div(p.c, width) * width - p.c) * static_cast<std::int64_t>(dtype_bytes(p.x_storage)));
  return static_cast<double>(p.r * p.s) * outside_us * bytes;
}

TailSteps::TailSteps(const ConvProblem& p, int group) : width(group) {
  const KTail tail(p, group);
  if (!tail.exists()) return;
  count = static_cast<double>(p.r * p.s);
  width = tail.instructions(KOrder(p), group) * group / 4;
  share = static_cast<double>(width) / group;
}

double split_k_us(const ConvProblem& p, const SplitKWork& work, const SplitKCosts& costs, const DeviceProfile& device) {
  const SplitKTileShape& shape = work.tile;
  const double rate = work.efficiency * work.flops_per_us / device.units;
  const std::int64_t blocks = work.tiles * work.split_k;
  const std::int64_t multiprocessors = filled_multiprocessors(work.split_k, device);
  const double outputs = shape.m * shape.n;
  const auto at_work = static_cast<double>(std::min(blocks, multiprocessors));
  const double step_us =
      std::max({2 * outputs * work.block_k / rate, work.rows * work.row_bytes * at_work / costs.l2_bytes_per_us,
                work.rows / costs.rows_per_us});
  const auto steps = static_cast<double>(ceil_div(work.steps, work.split_k));
  // Time of `blocks_together` blocks on a multiprocessor.
  const auto wave_us = [&](std::int64_t blocks_together) {
    const auto together = static_cast<double>(blocks_together);
    double us = costs.block_us + together * (steps * step_us + work.ragged_us / work.split_k +
                                             costs.epilogue_us * outputs / (128.0 * 128.0) / work.split_k);
    if (work.split_k > 1) us += costs.exchange_us + together * outputs * 4 / costs.exchange_bytes_per_us;
    return us;
  };
  const std::int64_t round = multiprocessors * shape.blocks, rest = blocks % round;
  double us = static_cast<double>(blocks / round) * wave_us(shape.blocks);
  if (rest > 0) us += wave_us(ceil_div(rest, multiprocessors));
  const double memory_us = padded_bytes(p) / device.bytes_per_us;
  return std::max(us, memory_us + costs.block_us) + costs.unhidden * std::min(us - costs.block_us, memory_us);
}

}  // namespace lenslet::cuda

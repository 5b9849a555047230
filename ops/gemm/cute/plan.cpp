// Chooses gemm_cute's configuration for a product. Needs neither a device nor CUDA.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "base/cuda/has_wgmma.h"
#include "ops/core/tilings.h"
#include "ops/gemm/cute/gemm_cute.h"
#include "ops/gemm/cute/tile_order.h"

namespace lenslet::cuda {
namespace {

using Core = CutePlan::Core;
using Multiply = Numerics::Multiply;

constexpr std::int64_t most_tiles = (std::int64_t{1} << 31) - 1;  // of the grid's first dimension, and of an int

std::string_view name_of(Core core) { return core == Core::wgmma ? "wgmma" : "mma"; }

bool is_half(const CuteProblem& p) { return p.multiply == Multiply::fp16 || p.multiply == Multiply::bf16; }

/// The number of nonempty splits: 7 k-blocks in 4 splits are 2, 2, 2 and 1; in 5 they are still 4 splits.
std::int64_t whole_splits(std::int64_t steps, std::int64_t split_k) {
  return ceil_div(steps, ceil_div(steps, split_k));
}

std::int64_t steps_of(const CuteProblem& p) { return ceil_div(p.k, cute_tile_k(p.element_bytes())); }
std::int64_t tiles_of(const CuteProblem& p, const CutePlan& plan) {
  return ceil_div(p.m, plan.tile_m) * ceil_div(p.n, plan.tile_n) * p.batch;
}

/// How a cluster's blocks share an operand.
struct Sharing {
  int a = 1, b = 1;
};
Sharing sharing_of(const CutePlan& plan) {
  if (plan.joined()) return {};
  if (cute_shares_a(plan.tile_m, plan.tile_n)) return {.a = plan.cluster};
  return {.b = plan.cluster};
}

/// All configurations without split-K on a device with all features; those of one tile are adjacent.
std::vector<CutePlan> tilings_for(const CuteProblem& p) {
  std::vector<CutePlan> tilings;
  const auto wgmma = [&](int tile_m, int tile_n) {
    tilings.push_back({.core = Core::wgmma, .tile_m = tile_m, .tile_n = tile_n});
    if (cute_shares(tile_m, tile_n, p.b_transposed))
      tilings.push_back({.core = Core::wgmma, .tile_m = tile_m, .tile_n = tile_n, .cluster = 2});
  };
  // TF32 operands need contiguous k.
  if (p.aligned && (is_half(p) || (p.b_transposed && p.multiply == Multiply::tf32))) {
    wgmma(128, 256);
    if (p.b_transposed) wgmma(256, 128);
    wgmma(128, 128);
    wgmma(128, 64);
    wgmma(64, 128);
    wgmma(64, 256);
    if (p.b_transposed) wgmma(64, 64);
  }
  if (p.aligned && p.b_transposed) tilings.push_back({.core = Core::mma, .tile_m = 128, .tile_n = 128});
  tilings.push_back({.core = Core::mma, .tile_m = 64, .tile_n = 64});
  return tilings;
}

constexpr std::int64_t most_joined = 8;  // blocks of a cluster

/// True if such tiles support split-K over a cluster.
bool can_join(const CutePlan& tiling) { return tiling.core == Core::wgmma && cute_joins(tiling.tile_m, tiling.tile_n); }

bool fits(const CuteProblem& p, const CutePlan& plan) { return tiles_of(p, plan) * plan.split_k <= most_tiles; }

bool runs_on(const CuteProblem& p, const CutePlan& plan, const DeviceProfile& device) {
  if (device.quick_build && !cute_in_quick_build(p, plan)) return false;
  if (plan.core == Core::wgmma) return has_wgmma(device) && device.clusters;
  return !device.refuse_shared((plan.tile_m == 128 ? std::size_t{96} : std::size_t{64}) << 10);
}

}  // namespace

std::size_t CuteProblem::element_bytes() const { return is_half(*this) ? 2 : 4; }
double CuteProblem::flops() const {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(batch);
}
double CuteProblem::bytes() const {
  const auto size = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  return static_cast<double>(batch) * (static_cast<double>(element_bytes()) * (size(m, k) + size(k, n)) +
                                       (y_type == DType::f32 ? 4.0 : 2.0) * size(m, n));
}

void CutePlan::write(ConfigWriter& config) const {
  config.add("core", name_of(core)).add("tile", fmt::format("{}x{}", tile_m, tile_n));
  if (core == Core::wgmma) config.add("cluster", std::int64_t{cluster});
  config.add("split_k", split_k);
}

CutePlan CutePlan::read(ConfigReader& config, const CuteProblem& problem) {
  const std::string_view core = config.word("core"), tile = config.word("tile");
  CutePlan wanted;
  if (core == name_of(Core::wgmma)) wanted.cluster = static_cast<int>(config.integer("cluster", 1, most_joined));
  const std::int64_t steps = std::max<std::int64_t>(1, steps_of(problem));
  wanted.split_k = config.integer("split_k", 1, steps);
  for (CutePlan plan : tilings_for(problem)) {
    if (core != name_of(plan.core) || tile != fmt::format("{}x{}", plan.tile_m, plan.tile_n)) continue;
    const bool joins = wanted.joined() && wanted.cluster == wanted.split_k && can_join(plan) && plan.cluster == 1 &&
                       std::has_single_bit(static_cast<unsigned>(wanted.cluster));
    const bool shares = wanted.split_k == 1 && wanted.cluster == plan.cluster;
    const bool split_k =
        wanted.cluster == 1 && plan.cluster == 1 && wanted.split_k == whole_splits(steps, wanted.split_k);
    if (!joins && !shares && !split_k) continue;
    plan.cluster = wanted.cluster;
    plan.split_k = wanted.split_k;
    if (fits(problem, plan)) return plan;
  }
  config.refuse("gemm_cute has no configuration for this product");
}

std::string cute_refusal(const CuteProblem& p, const DeviceProfile& device) {
  if (!cute_built()) return "this build has no gemm_cute: it was made without the headers of CUTLASS (LENSLET_CUTLASS)";
  if (device.capability < 80)
    return fmt::format("gemm_cute needs compute capability 8.0; {} has {}.{}", device.name, device.capability / 10,
                       device.capability % 10);
  if (p.k < 1) return "gemm_cute has nothing to sum";
  if (!fits(p, {.core = Core::mma, .tile_m = 64, .tile_n = 64}))
    return fmt::format("{} products of {}x{} are too many tiles for gemm_cute", p.batch, p.m, p.n);
  const auto runs = [&](const CutePlan& plan) { return runs_on(p, plan, device); };
  if (device.quick_build && std::ranges::none_of(tilings_for(p), runs))
    return "this build (LENSLET_CUDA_QUICK) lacks gemm_cute's kernels for this product";
  return {};
}

std::vector<CutePlan> cute_plans(const CuteProblem& p, const DeviceProfile& device) {
  std::vector<CutePlan> plans;
  if (!cute_refusal(p, device).empty()) return plans;
  for (CutePlan plan : tilings_for(p)) {
    if (!runs_on(p, plan, device)) continue;
    if (plan.cluster > 1) {
      if (fits(p, plan)) plans.push_back(plan);
      continue;
    }
    std::int64_t last = 0;
    for (const std::int64_t split_k : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      plan.split_k = whole_splits(steps_of(p), split_k);
      if (plan.split_k == last || !fits(p, plan)) continue;
      last = plan.split_k;
      plans.push_back(plan);
    }
    for (std::int64_t split_k = 2; can_join(plan) && split_k <= std::min(most_joined, steps_of(p)); split_k *= 2) {
      plan.cluster = static_cast<int>(split_k);
      plan.split_k = split_k;
      if (fits(p, plan)) plans.push_back(plan);
    }
  }
  return plans;
}

CuteTiles cute_tiles(const CuteProblem& p, const CutePlan& plan) {
  const Sharing sharing = sharing_of(plan);
  const int rows = plan.tile_m * sharing.b, columns = plan.tile_n * sharing.a;
  CuteTiles tiles;
  tiles.tiles_m = static_cast<int>(ceil_div(p.m, rows));
  tiles.tiles_n = static_cast<int>(ceil_div(p.n, columns));
  tiles.split_k = plan.joined() ? 1 : static_cast<int>(plan.split_k);
  tiles.steps = static_cast<int>(steps_of(p));
  tiles.steps_per_split = static_cast<int>(ceil_div(tiles.steps, tiles.split_k));
  // 132 tiles of 128x256 are 2048 x 2112 elements of y then.
  if (plan.core == Core::wgmma) tiles.span = 2048 / rows;
  tiles.count = static_cast<unsigned>(std::int64_t{tiles.tiles_m} * tiles.tiles_n * tiles.split_k * p.batch);
  return tiles;
}

namespace {

/// 16-bit products run at twice the rate of TF32 on all architectures.
double products_per_us(const CuteProblem& p, const DeviceProfile& device) {
  const double tensor = device.flops_per_us(p.multiply == Multiply::fp32 ? Multiply::fp32 : Multiply::tf32);
  return is_half(p) ? 2 * tensor : tensor;
}

/// Memory time of all operands and y, read or written once. Few blocks get only a part of the bandwidth: half of the
/// multiprocessors can saturate it.
double memory_us(const CuteProblem& p, double blocks, const DeviceProfile& device) {
  return p.bytes() / (device.bytes_per_us * std::min(1.0, blocks / (device.units / 2.0)));
}

/// The kernel that reduces split-K. It reads from L2, at about twice the rate of memory.
double add_us(const CuteProblem& p, const CutePlan& plan, const DeviceProfile& device) {
  if (plan.split_k == 1 || plan.joined()) return 0;
  const double acc = 4.0 * static_cast<double>(p.batch * p.m * p.n);
  return device.launch_us + 1.5 + acc * static_cast<double>(2 * plan.split_k) / (2 * device.bytes_per_us);
}

// The cost model of gemm_cute_mma.cu, in us: launch + max(waves * (start + k-blocks per split * step), memory) +
// split-K's second kernel.
//
// step: a k-block of a tile, at the best rate that its shared memory reads allow. waves: of blocks that run at once.
double mma_us(const CuteProblem& p, const CutePlan& plan, const DeviceProfile& device) {
  struct Rate {
    double share;     ///< of the tensor cores' rate
    double blocks;    ///< on a multiprocessor at once
    double start_us;  ///< until the first step's operands have come, and from the last sum to y
  };
  const Rate rate = plan.tile_m == 128 ? Rate{0.51, 2, 3.3} : Rate{0.13, 3, 0.95};
  const double units = device.units, blocks = static_cast<double>(tiles_of(p, plan) * plan.split_k);
  const double at_once = std::clamp(blocks, 1.0, units * rate.blocks),
               waves = std::ceil(blocks / (units * rate.blocks));
  const double steps = static_cast<double>(ceil_div(steps_of(p), plan.split_k));
  const double step_flops = 2.0 * plan.tile_m * plan.tile_n * static_cast<double>(cute_tile_k(p.element_bytes()));
  const double here = std::max(1.0, std::min(rate.blocks, blocks / units));  // blocks that share a multiprocessor
  const double element_wise = p.aligned && p.b_transposed ? 1 : 4;
  const double step_us = element_wise * step_flops * here / (rate.share * products_per_us(p, device) / units);
  return device.launch_us +
         std::max(waves * (rate.start_us + steps * step_us), rate.start_us + memory_us(p, at_once, device)) +
         add_us(p, plan, device);
}

// The cost model of gemm_cute_sm90.cuh. Fitted to 532 configurations: squares of 256 to 8192 in fp16 and TF32, and
// fully connected layers at batch 32 and 64 (lenslet-bench-gemm-cute --all, H200, 24 November 2026). RMS error 14 %;
// the chosen one is 3 % behind the best on average, 24 % at worst (256 cubed, TF32).
constexpr double tile_us = 0.76;                // from one tile to the next, or from the launch to the first
constexpr double least_step_us = 0.05;          // barriers
constexpr double l2_bytes_per_us = 12.2e6;      // of all multiprocessors together
constexpr double unit_bytes_per_us = 100e3;     // of one, out of L2
constexpr double epilogue_bytes_per_us = 64e3;  // of one, from sums to y
constexpr double join_us = 0.6;                 // barriers of a cluster
constexpr double join_bytes_per_us = 27.5e3;    // of sums, through shared memory and between its blocks
// Two blocks that share an operand synchronise at start and end, but draw less power: 8192 cubed 1738 us instead of
// 1764, 4096 cubed equal, 2048 cubed 29.2 instead of 28.6.
constexpr double sharing_us = 0.5, sharing_gain = 1.01;
/// The share of multiprocessors that clusters of 4 and 8 can use: 30 and 15 clusters of an H200's 132.
constexpr double large_clusters_share = 0.91;
/// The share of the tensor cores' rate that shared memory allows: 128 bytes per cycle over what wgmma reads and TMA
/// writes (gemm_cute_sm90.cuh).
double share_of_rate(const CutePlan& plan) {
  const int area = plan.tile_m * plan.tile_n;
  if (area == 128 * 256) return plan.tile_n == 256 ? 0.875 : 0.865;
  if (area == 128 * 128) return plan.tile_m == 128 ? 0.845 : 0.76;
  return area == 64 * 128 ? 0.59 : 0.39;
}

// launch + sharing + max(rounds * (tile + k-blocks per tile * step + epilogue or join), memory) + split-K's second
// kernel.
//
// step: the maximum of barriers, tensor cores and L2. rounds: tiles per cluster, one after the other; that the last
// round may have fewer blocks, each with more L2 bandwidth, is neglected. Blocks on one multiprocessor share its rates;
// large clusters fill a multiprocessor with two blocks before they use the next one.
double wgmma_us(const CuteProblem& p, const CutePlan& plan, const DeviceProfile& device) {
  const Sharing sharing = sharing_of(plan);
  const auto tiles = static_cast<double>(cute_tiles(p, plan).count);
  const int blocks = cute_shared(plan.tile_m, plan.tile_n, plan.joined()).blocks;  // that a multiprocessor holds
  const double room = plan.joined() ? blocks * device.units : device.units;
  const double clusters =
      std::max(1.0, std::floor(room * (plan.cluster > 2 ? large_clusters_share : 1.0) / plan.cluster));
  const double at_once = std::min(tiles, clusters) * plan.cluster;
  const double here = blocks == 1 ? 1 : plan.cluster > 2 ? blocks : std::max(1.0, at_once / device.units);
  const double step_flops = 2.0 * plan.tile_m * plan.tile_n * static_cast<double>(cute_tile_k(p.element_bytes()));
  // Rows outside of A and B are not read.
  const auto used = [](std::int64_t rows, int tile) {
    return static_cast<double>(rows) / static_cast<double>(ceil_div(rows, tile));
  };
  const double rows = used(p.m, plan.tile_m), columns = used(p.n, plan.tile_n);
  const double step_bytes = 128.0 * (rows / sharing.a + columns / sharing.b);
  const double share = share_of_rate(plan) * (sharing.a * sharing.b > 1 ? sharing_gain : 1);
  const double step_us =
      std::max({least_step_us, step_flops * here / (share * products_per_us(p, device) / device.units),
                step_bytes / std::min(unit_bytes_per_us / here, l2_bytes_per_us / at_once)});
  const double sum_bytes = plan.split_k > 1 || p.y_type == DType::f32 ? 4 : 2;
  const double steps = static_cast<double>(ceil_div(steps_of(p), plan.split_k));
  const double out_us = plan.joined() ? join_us + 4.0 * plan.tile_m * plan.tile_n / join_bytes_per_us
                                      : sum_bytes * rows * columns / epilogue_bytes_per_us;
  return device.launch_us + (sharing.a * sharing.b > 1 ? sharing_us : 0) +
         std::max(std::ceil(tiles / clusters) * (tile_us + steps * step_us + out_us),
                  memory_us(p, at_once / here, device)) +
         add_us(p, plan, device);
}

}  // namespace

double cute_plan_us(const CuteProblem& p, const CutePlan& plan, const DeviceProfile& device) {
  return plan.core == Core::wgmma ? wgmma_us(p, plan, device) : mma_us(p, plan, device);
}

// The best on the reference device among those that this device supports: the split of k depends on the problem alone.
CutePlan plan_cute(const CuteProblem& p, const DeviceProfile& device) {
  return best_tiling(cute_plans(p, device), [&](const auto& plan) { return cute_plan_us(p, plan, reference_gpu()); })
      .value();
}

std::size_t cute_workspace_bytes(const CuteProblem& p, const CutePlan& plan) {
  return plan.split_k == 1 || plan.joined()
             ? 0
             : sizeof(float) * static_cast<std::size_t>(p.batch * plan.split_k * p.m * p.n);
}

}  // namespace lenslet::cuda

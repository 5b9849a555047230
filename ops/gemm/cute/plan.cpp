// Which cut of gemm_cute a product gets. Needs no device, and no CUDA.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "ops/core/config_text.h"
#include "ops/gemm/cute/gemm_cute.h"

#ifndef LENSLET_CUDA_ARCHITECTURES
#define LENSLET_CUDA_ARCHITECTURES ""
#endif

namespace lenslet::cuda {
namespace {

using Core = CutePlan::Core;
using Multiply = Numerics::Multiply;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t most_tiles = (std::int64_t{1} << 31) - 1;  // of the grid's first dimension, and of an int

std::string_view name_of(Core core) { return core == Core::wgmma ? "wgmma" : "mma"; }

bool is_half(const CuteProblem& p) { return p.multiply == Multiply::fp16 || p.multiply == Multiply::bf16; }

/// Slices that each have a step: 7 steps in 4 slices are 2, 2, 2 and 1, in 5 they are still as many.
std::int64_t whole_slices(std::int64_t steps, std::int64_t slices) { return ceil_div(steps, ceil_div(steps, slices)); }

std::int64_t steps_of(const CuteProblem& p) { return ceil_div(p.k, cute_tile_k(p.element_bytes())); }
std::int64_t tiles_of(const CuteProblem& p, const CutePlan& plan) {
  return ceil_div(p.m, plan.tile_m) * ceil_div(p.n, plan.tile_n) * p.batch;
}

/// Cuts without slices that compute a problem on a device that has everything.
std::vector<CutePlan> cuts_for(const CuteProblem& p) {
  std::vector<CutePlan> cuts;
  if (is_half(p) && p.aligned) {
    if (p.b_transposed) cuts.push_back({.core = Core::wgmma, .tile_m = 128, .tile_n = 256});
    cuts.push_back({.core = Core::wgmma, .tile_m = 128, .tile_n = 128});
  }
  if (p.aligned && p.b_transposed) cuts.push_back({.core = Core::mma, .tile_m = 128, .tile_n = 128});
  cuts.push_back({.core = Core::mma, .tile_m = 64, .tile_n = 64});
  return cuts;
}

bool fits(const CuteProblem& p, const CutePlan& plan) { return tiles_of(p, plan) * plan.slices <= most_tiles; }

/// wgmma is of sm_90a alone: no PTX of it runs anywhere else.
bool has_wgmma(const DeviceProfile& device) {
  return device.capability == 90 && device.clusters &&
         std::string_view(LENSLET_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
}

bool has_shared(const CutePlan& plan, const DeviceProfile& device) {
  const std::size_t bytes = (plan.tile_m == 128 ? std::size_t{96} : std::size_t{64}) << 10;
  return plan.core == Core::wgmma || !device.refuse_shared(bytes);
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
  config.add("core", name_of(core)).add("tile", fmt::format("{}x{}", tile_m, tile_n)).add("slices", slices);
}

CutePlan CutePlan::read(ConfigReader& config, const CuteProblem& problem) {
  const std::string_view core = config.word("core"), tile = config.word("tile");
  for (CutePlan plan : cuts_for(problem))
    if (core == name_of(plan.core) && tile == fmt::format("{}x{}", plan.tile_m, plan.tile_n)) {
      plan.slices = config.integer("slices", 1, std::max<std::int64_t>(1, steps_of(problem)));
      if (plan.slices == whole_slices(steps_of(problem), plan.slices) && fits(problem, plan)) return plan;
    }
  config.refuse("no cut of gemm_cute for this product");
}

std::string cute_refusal(const CuteProblem& p, const DeviceProfile& device) {
  if (!cute_built()) return "this build has no gemm_cute: it was made without the headers of CUTLASS (LENSLET_CUTLASS)";
  if (device.capability < 80)
    return fmt::format("gemm_cute needs compute capability 8.0; {} has {}.{}", device.name, device.capability / 10,
                       device.capability % 10);
  if (p.k < 1) return "gemm_cute has nothing to sum";
  if (!fits(p, {.core = Core::mma, .tile_m = 64, .tile_n = 64}))
    return fmt::format("{} products of {}x{} are too many tiles for gemm_cute", p.batch, p.m, p.n);
  return {};
}

std::vector<CutePlan> cute_plans(const CuteProblem& p, const DeviceProfile& device) {
  std::vector<CutePlan> plans;
  if (!cute_refusal(p, device).empty()) return plans;
  for (CutePlan plan : cuts_for(p)) {
    if (plan.core == Core::wgmma && !has_wgmma(device)) continue;
    if (!has_shared(plan, device)) continue;
    std::int64_t last = 0;
    for (const std::int64_t slices : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
      plan.slices = whole_slices(steps_of(p), slices);
      if (plan.slices == last || !fits(p, plan)) continue;
      last = plan.slices;
      plans.push_back(plan);
    }
  }
  return plans;
}

// A floor and what keeps a plan from it, in us:
//
//   launches * launch + max(waves * (prologue + steps a slice * step + epilogue), memory)
//
// step: of a tile, at the share of the core's rate that the tile can have at best: what it reads from shared memory for
// what it multiplies (gemm_cute_sm90.cu, gemm_cute_mma.cu). waves: of as many blocks as run at once. memory: all
// operands and y once, and the slices' sums, which are written and read; blocks that are too few for the memory's rate
// get their part of it: half the multiprocessors can ask for all that memory gives. What is assumed stands here, for
// want of a fit: lenslet-bench-gemm-cute prints the estimate beside the time.
double cute_plan_us(const CuteProblem& p, const CutePlan& plan, const DeviceProfile& device) {
  struct Rate {
    double share;     ///< of the tensor cores' rate
    double blocks;    ///< on a multiprocessor at once
    double start_us;  ///< until the first step's operands have come, and from the last sum to y
  };
  const Rate rate = plan.core == Core::wgmma ? Rate{plan.tile_n == 256 ? 0.8 : 0.7, 1, 1.5}
                    : plan.tile_m == 128     ? Rate{0.4, 2, 2}
                                             : Rate{0.3, 3, 1.5};
  // 16-bit products run at twice the rate of TF32 ones on every architecture.
  const double tensor = device.flops_per_us(p.multiply == Multiply::fp32 ? Multiply::fp32 : Multiply::tf32);
  const double peak = is_half(p) ? 2 * tensor : tensor;
  const double units = device.units, blocks = static_cast<double>(tiles_of(p, plan) * plan.slices);
  const double at_once = std::clamp(blocks, 1.0, units * rate.blocks),
               waves = std::ceil(blocks / (units * rate.blocks));
  const double steps = static_cast<double>(ceil_div(steps_of(p), plan.slices));
  const double step_flops = 2.0 * plan.tile_m * plan.tile_n * static_cast<double>(cute_tile_k(p.element_bytes()));
  const double here = std::max(1.0, std::min(rate.blocks, blocks / units));  // blocks that share a multiprocessor
  const double element_wise = p.aligned && (p.b_transposed || plan.core == Core::wgmma) ? 1 : 4;
  const double step_us = element_wise * step_flops * here / (rate.share * peak / units);
  const double sums = plan.slices > 1 ? 4.0 * static_cast<double>(p.batch * p.m * p.n) : 0;
  const double share_of_memory = std::min(1.0, at_once / (units / 2));
  const double memory_us = p.bytes() / (device.bytes_per_us * share_of_memory);
  // The sums of slices are read out of L2, which gives about twice what memory does.
  const double add_us =
      plan.slices > 1 ? device.launch_us + 1.5 + sums * static_cast<double>(2 * plan.slices) / (2 * device.bytes_per_us)
                      : 0;
  return device.launch_us + std::max(waves * (rate.start_us + steps * step_us), rate.start_us + memory_us) + add_us;
}

// Of what the device has the one that would be best on the reference: where sums are cut belongs to the problem.
CutePlan plan_cute(const CuteProblem& p, const DeviceProfile& device) {
  const std::vector<CutePlan> plans = cute_plans(p, device);
  return *std::min_element(plans.begin(), plans.end(), [&](const CutePlan& x, const CutePlan& y) {
    return cute_plan_us(p, x, reference_gpu()) < cute_plan_us(p, y, reference_gpu());
  });
}

std::size_t cute_workspace_bytes(const CuteProblem& p, const CutePlan& plan) {
  return plan.slices == 1 ? 0 : sizeof(float) * static_cast<std::size_t>(p.batch * plan.slices * p.m * p.n);
}

}  // namespace lenslet::cuda

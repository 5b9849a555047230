#include "ops/conv/cuda/winograd_plan.h"

#include <algorithm>

namespace lenslet::cuda {
namespace {

constexpr std::int64_t max_workspace_bytes = 256 << 20;
/// A chunk has at least so many tiles: rows of the smallest tile of the product.
constexpr std::int64_t min_chunk = 32;
/// Sizes that kernels count in 32 bits, with room for a tile beyond the edge.
constexpr std::int64_t max_index = 1 << 30;

// Rates behind the estimate, as multiples of what memory delivers. Fitted to 38 problems on an H200 (21 November 2026),
// which they meet to 5 %.
/// V and M that fit into this share of L2 are written and read there, like x and y.
constexpr double cached_share = 0.8, cache_speed = 1.25;
/// The filters, each of which one block reads at a time and waits for: U of 512x512 takes 30 us though L2 holds it.
constexpr double filter_speed = 0.3;

std::int64_t round_up(std::int64_t x, std::int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

std::int64_t alpha2_of(int m) { return static_cast<std::int64_t>(m + 2) * (m + 2); }

/// Of V and M.
std::int64_t bytes_a_tile(const ConvProblem& p, int m) {
  return alpha2_of(m) * (round_up(p.c, gemm_step) + round_up(p.k, 4)) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t tiles_of(const ConvProblem& p, int m) { return p.n * ((p.p + m - 1) / m) * ((p.q + m - 1) / m); }

}  // namespace

std::optional<std::string> refuse_winograd(const ConvProblem& p, int m) {
  if (p.r != 3 || p.s != 3) return "filter is not 3x3";
  if (p.stride_h != 1 || p.stride_w != 1) return "stride is not 1";
  if (p.dilation_h != 1 || p.dilation_w != 1) return "dilation is not 1";
  if (p.groups != 1) return "groups are not 1";
  if (p.c > max_index || p.k > max_index || bytes_a_tile(p, m) * min_chunk > max_workspace_bytes)
    return "workspace would exceed 256 MiB";
  if (std::max({p.h, p.p, p.w * p.c, p.q * p.k, tiles_of(p, m)}) > max_index) return "sizes exceed 32-bit indices";
  return std::nullopt;
}

WinogradPlan plan_winograd(const ConvProblem& p, int m) {
  WinogradPlan plan;
  plan.m = m;
  plan.alpha2 = static_cast<int>(alpha2_of(m));
  plan.down = static_cast<int>((p.p + m - 1) / m);
  plan.across = static_cast<int>((p.q + m - 1) / m);
  plan.count = static_cast<int>(tiles_of(p, m));
  plan.c = static_cast<int>(round_up(p.c, gemm_step));
  plan.k = static_cast<int>(round_up(p.k, 4));
  // As few chunks as the workspace allows, alike in size.
  const std::int64_t most = max_workspace_bytes / bytes_a_tile(p, m);
  const std::int64_t chunks = (plan.count + most - 1) / most;
  plan.chunk = static_cast<int>((plan.count + chunks - 1) / chunks);
  return plan;
}

double estimate_winograd_us(const ConvProblem& p, int m, const MachineRates& rates) {
  const WinogradPlan plan = plan_winograd(p, m);
  const double chunks = static_cast<double>((plan.count + plan.chunk - 1) / plan.chunk);
  const auto bytes = [](auto floats) { return static_cast<double>(floats) * sizeof(float); };
  const auto v = bytes(plan.v_floats()), product = bytes(plan.product_floats()), u = bytes(plan.u_floats());
  const double x = bytes(p.n * p.h * p.w * p.c), y = bytes(p.n * p.p * p.q * p.k) * (p.residual ? 2 : 1);
  const double rate = rates.bytes_per_us * (v + product <= cached_share * rates.l2_bytes ? cache_speed : 1);

  const BatchedGemm gemm = plan.gemm(plan.chunk);
  const double arithmetic = batched_gemm_us(gemm, choose_batched_gemm_tile(gemm, rates), rates) + product / rate;
  const double reading = (v + product) / rate + u / (filter_speed * rates.bytes_per_us);
  const double transforms = chunks * (v + product) / rate + (x + y) / rate;
  return transforms + chunks * std::max(arithmetic, reading) + 3 * chunks * rates.launch_us;
}

}  // namespace lenslet::cuda

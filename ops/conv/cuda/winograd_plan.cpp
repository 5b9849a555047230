#include "ops/conv/cuda/winograd_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/conv/winograd_filter.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

constexpr std::int64_t max_workspace_bytes = 256 << 20;
/// Fewest tiles of a chunk: rows of the smallest GEMM tile.
constexpr std::int64_t min_chunk = 32;
/// Limits the launches: three a chunk, each a node of the CUDA graph.
constexpr std::int64_t most_chunks = 128;
/// Limit of sizes that kernels index in 32 bits, with slack for a tile past the edge.
constexpr std::int64_t max_index = 1 << 30;

// Cost model: rates relative to memory bandwidth, fitted to 38 problems on an H200 (21 November 2026) within 5 %.
/// V and M stay in L2 up to this share of it, as x and y do.
constexpr double cached_share = 0.8, cache_speed = 1.25;
/// Filters: one block at a time reads and waits for them; U of 512x512 takes 30 us though it is in L2.
constexpr double filter_speed = 0.3;

std::int64_t round_up(std::int64_t x, std::int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

std::int64_t alpha2_of(const ConvProblem& p, int m) { return (m + p.r - 1) * (m + p.r - 1); }

/// Bytes of V and M a tile.
std::int64_t bytes_a_tile(const ConvProblem& p, int m) {
  return alpha2_of(p, m) * (round_up(p.c, gemm_step) + round_up(p.k, 4)) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t tiles_of(const ConvProblem& p, int m) { return p.n * ceil_div(p.p, m) * ceil_div(p.q, m); }

/// Threads a multiprocessor from which on each takes several channels: fewer do not hide memory latency.
constexpr std::int64_t wide_threads = 512;

/// Plan with as few chunks as the workspace allows, alike in size.
WinogradPlan tiling(const ConvProblem& p, int m) {
  WinogradPlan plan;
  plan.m = m;
  plan.r = static_cast<int>(p.r);
  plan.alpha2 = static_cast<int>(alpha2_of(p, m));
  plan.down = static_cast<int>(ceil_div(p.p, m));
  plan.across = static_cast<int>(ceil_div(p.q, m));
  plan.count = static_cast<int>(tiles_of(p, m));
  plan.c = static_cast<int>(round_up(p.c, gemm_step));
  plan.k = static_cast<int>(round_up(p.k, 4));
  const std::int64_t most = max_workspace_bytes / bytes_a_tile(p, m);
  const std::int64_t chunks = ceil_div(plan.count, most);
  plan.chunk = static_cast<int>(ceil_div(plan.count, chunks));
  return plan;
}

/// tiling(), then those of 5x5 and 7x7 with more chunks. They move twice the bytes an output of F(4,3): smaller chunks
/// keep V and M in L2, but the GEMM wants enough blocks to hide its start, and nearly whole waves.
std::vector<WinogradPlan> chunkings(const ConvProblem& p, int m) {
  WinogradPlan plan = tiling(p, m);
  std::vector<WinogradPlan> chunkings{plan};
  for (std::int64_t chunks = ceil_div(plan.count, plan.chunk) + 1; plan.r > 3 && chunks <= most_chunks; ++chunks) {
    plan.chunk = static_cast<int>(ceil_div(plan.count, chunks));
    if (plan.chunk < min_chunk) break;
    if (plan.chunk != chunkings.back().chunk) chunkings.push_back(plan);
  }
  return chunkings;
}

}  // namespace

std::optional<std::string> refuse_winograd(const ConvProblem& p, int m, int r) {
  if (auto why = refuse_winograd_form(p, r)) return why;
  if (p.dilation_h != 1 || p.dilation_w != 1) return "dilation is not 1";
  if (const double bound = winograd_tolerance(m, r, p.c); r > 3 && bound > most_winograd_tolerance)
    return fmt::format("its error may be {:.1e} of the output's rms, and float32 shall keep to {:.1e}", bound,
                       most_winograd_tolerance);
  if (p.c > max_index || p.k > max_index || bytes_a_tile(p, m) * min_chunk > max_workspace_bytes)
    return "workspace would exceed 256 MiB";
  if (std::max({p.h, p.p, p.w * p.c, p.q * p.k, tiles_of(p, m)}) > max_index) return "sizes exceed 32-bit indices";
  return std::nullopt;
}

std::string WinogradPlan::str() const {
  return ConfigWriter()
      .add("chunk", std::int64_t{chunk})
      .add("tile", to_string(tile))
      .add("wide_input", wide_input)
      .add("wide_output", wide_output)
      .str();
}

std::vector<WinogradPlan> winograd_tilings(const ConvProblem& p, int m) {
  std::vector<WinogradPlan> tilings;
  for (WinogradPlan plan : chunkings(p, m))
    for (const GemmTile tile : AllGemmTiles::all)
      for (const bool wide_input : {false, true})
        for (const bool wide_output : {false, true}) {
          const int width = winograd_width(m, plan.r);
          if ((wide_input && p.c % width != 0) || (wide_output && p.k % width != 0)) continue;
          plan.tile = tile;
          plan.wide_input = wide_input;
          plan.wide_output = wide_output;
          tilings.push_back(plan);
        }
  return tilings;
}

WinogradPlan plan_winograd(const ConvProblem& p, int m, const DeviceProfile& device) {
  std::vector<WinogradPlan> tilings = chunkings(p, m);
  for (WinogradPlan& plan : tilings) {
    plan.tile = choose_batched_gemm_tile(plan.gemm(plan.chunk), device);
    const auto wide = [&](std::int64_t channels, std::int64_t row) {
      const int width = winograd_width(m, plan.r);
      return channels % width == 0 && plan.chunk * row / width >= wide_threads * device.units;
    };
    plan.wide_input = wide(p.c, plan.c);
    plan.wide_output = wide(p.k, p.k);
  }
  return best_tiling(tilings, [&](const auto& plan) { return estimate_winograd_us(p, plan, device); }).value();
}

WinogradPlan read_winograd_plan(const ConvProblem& p, int m, std::string_view config) {
  WinogradPlan plan = tiling(p, m);
  ConfigReader reader(config);
  plan.chunk = static_cast<int>(reader.integer("chunk", 1, plan.chunk));
  plan.tile = read_tile(reader, AllGemmTiles::all);
  plan.wide_input = reader.flag("wide_input");
  plan.wide_output = reader.flag("wide_output");
  reader.finish();
  const int width = winograd_width(m, plan.r);
  if ((plan.wide_input && p.c % width != 0) || (plan.wide_output && p.k % width != 0))
    reader.refuse("the channels are not a multiple of what a wide thread takes");
  return plan;
}

double estimate_winograd_us(const ConvProblem& p, const WinogradPlan& plan, const DeviceProfile& device) {
  const double chunks = static_cast<double>((plan.count + plan.chunk - 1) / plan.chunk);
  const auto bytes = [](auto floats) { return static_cast<double>(floats) * sizeof(float); };
  const auto v = bytes(plan.v_floats()), product = bytes(plan.product_floats()), u = bytes(plan.u_floats());
  const double x = bytes(p.n * p.h * p.w * p.c), y = bytes(p.n * p.p * p.q * p.k) * (p.residual ? 2 : 1);
  const bool cached = v + product <= cached_share * static_cast<double>(device.l2_bytes);
  const double rate = device.bytes_per_us * (cached ? cache_speed : 1);

  const double arithmetic = batched_gemm_us(plan.gemm(plan.chunk), plan.tile, device) + product / rate;
  const double reading = (v + product) / rate + u / (filter_speed * device.bytes_per_us);
  const double transforms = chunks * (v + product) / rate + (x + y) / rate;
  // Fewer filters than a GEMM thread computes: 1.4 to 1.8 of the estimate on an H100 (1x16x256x256 -> 1, 3x3, 26.7 us);
  // 1.25, because direct_tile takes 1.05 to 1.3 of its own there.
  const double few = p.k < 8 ? 1.25 : 1;
  return few * (transforms + chunks * std::max(arithmetic, reading)) + 3 * chunks * device.launch_us;
}

}  // namespace lenslet::cuda

#include "ops/conv/cuda/winograd_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/conv/winograd_filter.h"

namespace lenslet::cuda {
namespace {

constexpr std::int64_t max_workspace_bytes = 256 << 20;
/// A chunk has at least so many tiles: rows of the smallest tile of the product.
constexpr std::int64_t min_chunk = 32;
/// Launches are three a chunk, and each is a node of the graph.
constexpr std::int64_t most_chunks = 128;
/// Sizes that kernels count in 32 bits, with room for a tile beyond the edge.
constexpr std::int64_t max_index = 1 << 30;

// Rates behind the estimate, as multiples of what memory delivers. Fitted to 38 problems on an H200 (21 November 2026),
// which they meet to 5 %.
/// V and M that fit into this share of L2 are written and read there, like x and y.
constexpr double cached_share = 0.8, cache_speed = 1.25;
/// The filters, each of which one block reads at a time and waits for: U of 512x512 takes 30 us though L2 holds it.
constexpr double filter_speed = 0.3;

/// A first guess for 5x5 and 7x7, of which nothing is measured: so much more must they save than the estimate says. To
/// be fitted, by layers of 5 to 10 us first.
constexpr double unmeasured_us = 5;

std::int64_t round_up(std::int64_t x, std::int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

std::int64_t alpha2_of(const ConvProblem& p, int m) { return (m + p.r - 1) * (m + p.r - 1); }

/// Of V and M.
std::int64_t bytes_a_tile(const ConvProblem& p, int m) {
  return alpha2_of(p, m) * (round_up(p.c, gemm_step) + round_up(p.k, 4)) * static_cast<std::int64_t>(sizeof(float));
}

/// That the workspace has room for at a time.
std::int64_t most_tiles(const ConvProblem& p, int m, bool pipelined) {
  return max_workspace_bytes / bytes_a_tile(p, m) / (pipelined ? 2 : 1);
}

std::int64_t tiles_of(const ConvProblem& p, int m) { return p.n * ((p.p + m - 1) / m) * ((p.q + m - 1) / m); }

/// Threads a multiprocessor from which on they take several channels each: fewer do not hide the latency of memory.
constexpr std::int64_t wide_threads = 512;

/// With as few chunks as the workspace allows, alike in size.
WinogradPlan cut(const ConvProblem& p, int m) {
  WinogradPlan plan;
  plan.m = m;
  plan.r = static_cast<int>(p.r);
  plan.alpha2 = static_cast<int>(alpha2_of(p, m));
  plan.down = static_cast<int>((p.p + m - 1) / m);
  plan.across = static_cast<int>((p.q + m - 1) / m);
  plan.count = static_cast<int>(tiles_of(p, m));
  plan.c = static_cast<int>(round_up(p.c, gemm_step));
  plan.k = static_cast<int>(round_up(p.k, 4));
  const std::int64_t most = most_tiles(p, m, false);
  const std::int64_t chunks = (plan.count + most - 1) / most;
  plan.chunk = static_cast<int>((plan.count + chunks - 1) / chunks);
  return plan;
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
  ConfigWriter config;
  config.add("chunk", std::int64_t{chunk}).add("tile", to_string(tile));
  config.add("wide_input", wide_input).add("wide_output", wide_output);
  if (pipelined) config.add("pipelined", true);
  return config.str();
}

WinogradPlan plan_winograd(const ConvProblem& p, int m, const DeviceProfile& device) {
  WinogradPlan plan = cut(p, m);
  const auto decide = [&] {
    plan.tile = choose_batched_gemm_tile(plan.gemm(plan.chunk), device);
    const auto wide = [&](std::int64_t channels, std::int64_t row) {
      const int width = winograd_width(m, plan.r);
      return channels % width == 0 && plan.chunk * row / width >= wide_threads * device.units;
    };
    plan.wide_input = wide(p.c, plan.c);
    plan.wide_output = wide(p.k, p.k);
  };
  decide();
  if (plan.r == 3) return plan;
  // The transforms of 5x5 and 7x7 move twice the bytes of F(4,3) for each output: in smaller chunks L2 holds V and M,
  // and the product wants them neither so small that starts count nor a little more than whole rounds of blocks.
  // Pipelined, the transforms take place behind the product's back.
  WinogradPlan best = plan;
  double least = estimate_winograd_us(p, plan, device);
  const auto consider = [&](const WinogradPlan& other) {
    const double us = estimate_winograd_us(p, other, device);
    if (us >= least) return;
    least = us;
    best = other;
  };
  for (std::int64_t chunks = (plan.count + plan.chunk - 1) / plan.chunk + 1; chunks <= most_chunks; ++chunks) {
    plan.chunk = static_cast<int>((plan.count + chunks - 1) / chunks);
    if (plan.chunk < min_chunk) break;
    decide();
    consider(plan);
    WinogradPlan pipelined = plan;
    pipelined.pipelined = true;
    pipelined.wide_input = pipelined.wide_output = false;
    if (plan.chunk > most_tiles(p, m, true)) continue;
    for (const GemmTile tile : PipelineTiles::all) {
      pipelined.tile = tile;
      consider(pipelined);
    }
  }
  return best;
}

WinogradPlan read_winograd_plan(const ConvProblem& p, int m, std::string_view config) {
  WinogradPlan plan = cut(p, m);
  ConfigReader reader(config);
  plan.chunk = static_cast<int>(reader.integer("chunk", 1, plan.chunk));
  plan.tile = read_tile(reader, AllGemmTiles::all);
  plan.wide_input = reader.flag("wide_input");
  plan.wide_output = reader.flag("wide_output");
  plan.pipelined = !reader.done() && reader.flag("pipelined");
  reader.finish();
  if (plan.pipelined) {
    if (plan.chunk > most_tiles(p, m, true)) reader.refuse("two chunks of that size exceed the workspace");
    if (plan.wide_input || plan.wide_output) reader.refuse("pipelined transforms are not wide");
    if (std::find(PipelineTiles::all.begin(), PipelineTiles::all.end(), plan.tile) == PipelineTiles::all.end())
      reader.refuse("no pipelined kernel has that tile");
  }
  const int width = winograd_width(m, plan.r);
  if ((plan.wide_input && p.c % width != 0) || (plan.wide_output && p.k % width != 0))
    reader.refuse("the channels are no multiple of what a wide thread takes");
  return plan;
}

namespace {

/// A launch takes what its product and the instructions of its transforms take, the product with half a round of blocks
/// in which not all multiprocessors have one, or what its bytes do: V and M written and read, x, y and U. Before the
/// pipeline is full and while it drains, transforms run alone.
double estimate_pipelined_us(const ConvProblem& p, const WinogradPlan& plan, const DeviceProfile& device) {
  // A first guess: 2 alpha transforms of alpha numbers, and a load and a store for each of alpha^2, are 9 to 11
  // instructions an element of V and as many of M.
  constexpr double transform_instructions = 10, idle_rounds = 0.5;
  const GemmTileShape& shape = shape_of(plan.tile);
  const auto ceil_div = [](int a, int b) { return (a + b - 1) / b; };
  const double chunks = ceil_div(plan.count, plan.chunk);
  const double blocks = static_cast<double>(ceil_div(plan.chunk, shape.m)) * ceil_div(plan.k, shape.n) * plan.alpha2;
  const double rounds = std::max(1.0, blocks / (shape.blocks * device.units) + idle_rounds);
  const double floats = static_cast<double>(plan.v_floats() + plan.product_floats());
  const double images = static_cast<double>(p.n * p.h * p.w * p.c + p.n * p.p * p.q * p.k * (p.residual ? 2 : 1));

  const double arithmetic = rounds * batched_gemm_round_us(plan.c, plan.tile, device) +
                            2 * transform_instructions * floats / device.fp32_flops_per_us;
  const double moved = sizeof(float) / device.bytes_per_us;  // microseconds a float
  const double filters = static_cast<double>(plan.u_floats()) / filter_speed;
  const double memory = (2 * floats + images / chunks + filters) * moved;
  const double alone = (floats + images / chunks) * moved;
  return chunks * std::max(arithmetic, memory) + alone + (chunks + 2) * device.launch_us;
}

}  // namespace

double estimate_winograd_us(const ConvProblem& p, const WinogradPlan& plan, const DeviceProfile& device) {
  const double unmeasured = plan.r == 3 ? 0 : unmeasured_us;
  if (plan.pipelined) return estimate_pipelined_us(p, plan, device) + unmeasured;
  const double chunks = static_cast<double>((plan.count + plan.chunk - 1) / plan.chunk);
  const auto bytes = [](auto floats) { return static_cast<double>(floats) * sizeof(float); };
  const auto v = bytes(plan.v_floats()), product = bytes(plan.product_floats()), u = bytes(plan.u_floats());
  const double x = bytes(p.n * p.h * p.w * p.c), y = bytes(p.n * p.p * p.q * p.k) * (p.residual ? 2 : 1);
  const bool cached = v + product <= cached_share * static_cast<double>(device.l2_bytes);
  const double rate = device.bytes_per_us * (cached ? cache_speed : 1);

  const double arithmetic = batched_gemm_us(plan.gemm(plan.chunk), plan.tile, device) + product / rate;
  const double reading = (v + product) / rate + u / (filter_speed * device.bytes_per_us);
  const double transforms = chunks * (v + product) / rate + (x + y) / rate;
  return transforms + chunks * std::max(arithmetic, reading) + 3 * chunks * device.launch_us + unmeasured;
}

}  // namespace lenslet::cuda

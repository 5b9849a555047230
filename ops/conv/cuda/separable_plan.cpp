#include "ops/conv/cuda/separable_plan.h"

#include <algorithm>
#include <cmath>

#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

/// Constants of the cost model: scheduler cycles, and latencies of a lone warp. Fitted to 1500 configurations of
/// MobileNetV2's layers at batch 1, 8 and 64 (lenslet-bench-separable, H100, 25 November 2026): 9 % in 16 bits, 10 % in
/// TF32; the configuration taken is 2 % behind the best on average, 21 % at worst.
struct Costs {
  double start_us;                      ///< besides the launch
  double chunk, column, load, product;  ///< cycles of a chunk; each of its columns, loads and products
  double tile;                          ///< cycles of a tile's epilogue
  double filter_byte;                   ///< cycles, into shared memory
  double chunk_us, product_us, job_us;  ///< latencies of a lone warp; a job reduces a set of filters
  double memory_share;
};
constexpr Costs cost_of_halves{0.64, 260, 113, 3.5, 1.86, 52, 0.0053, 0.386, 0.0103, 0.72, 0.86};
constexpr Costs cost_of_floats{0.73, 39, 338, 3.3, 3.05, 37, 0, 0.597, 0.0167, 0.456, 0.65};

constexpr int tile_counts[] = {4, 8, 12};

}  // namespace

std::string SeparableTiling::str() const {
  return ConfigWriter()
      .add("columns", std::int64_t{columns})
      .add("tiles", std::int64_t{tiles})
      .add("pixels", std::int64_t{pixel_warps})
      .add("channels", std::int64_t{channel_warps})
      .add("blocks", std::int64_t{blocks})
      .str();
}

SeparableSizes::SeparableSizes(const SeparableProblem& problem)
    : floats(problem.depthwise.storage == DType::f32),
      chunk(floats ? 16 : 32),
      n(problem.depthwise.n),
      p(problem.depthwise.p),
      q(problem.depthwise.q),
      c(problem.depthwise.c),
      k(problem.pointwise.k),
      stride(problem.depthwise.stride_h),
      chunks(ceil_div(c, chunk)) {}

std::int64_t SeparableSizes::items(const SeparableTiling& tiling) const {
  return n * ceil_div(p, 2) * ceil_div(q, tiling.columns);
}
std::int64_t SeparableSizes::turns(const SeparableTiling& tiling) const {
  return ceil_div(items(tiling), 8 * tiling.pixel_warps);
}
std::int64_t SeparableSizes::groups(const SeparableTiling& tiling) const { return ceil_div(k, 8 * tiling.tiles); }
std::int64_t SeparableSizes::warp_chunks(const SeparableTiling& tiling) const {
  return ceil_div(chunks, tiling.channel_warps);
}

std::size_t SeparableSizes::shared_bytes(const SeparableTiling& tiling) const {
  constexpr std::int64_t tile_bytes = 512;
  const std::int64_t filters = chunks * (tile_bytes * tiling.tiles + 16 * chunk_taps());
  const std::int64_t bias = 32 * tiling.tiles, residual = 2 * 16 * 32 * tiling.warps();
  const std::int64_t acc = tiling.adds() ? residual + tiling.warps() * tiling.columns * tiling.tiles * tile_bytes : 0;
  return static_cast<std::size_t>(filters + bias + acc);
}

bool separable_has(int columns, int tiles, std::int64_t stride) {
  if (std::find(std::begin(tile_counts), std::end(tile_counts), tiles) == std::end(tile_counts)) return false;
  return columns == 1 || (columns == 2 && tiles == 4 && stride == 1);
}

int separable_resident(std::int64_t stride, const SeparableTiling& tiling, std::size_t shared_bytes,
                       const DeviceProfile& device) {
  const int warps = separable_most_warps(stride, tiling.columns, tiling.tiles) * separable_bound_blocks(tiling.columns);
  const std::size_t with_reserve = shared_bytes + 1024;
  return std::max(1, std::min(warps / tiling.warps(), static_cast<int>(device.shared_bytes_per_unit / with_reserve)));
}

namespace {

/// As many as are resident at once, or fewer with the same number of iterations.
int blocks_of(const SeparableSizes& sizes, const SeparableTiling& tiling, const DeviceProfile& device) {
  const std::int64_t at_once = std::int64_t{std::max(device.units, 1)} *
                               separable_resident(sizes.stride, tiling, sizes.shared_bytes(tiling), device) /
                               sizes.groups(tiling);
  const std::int64_t turns = sizes.turns(tiling);
  return static_cast<int>(ceil_div(turns, ceil_div(turns, std::max<std::int64_t>(1, at_once))));
}

}  // namespace

double estimate_separable_us(const SeparableProblem& problem, const SeparableTiling& tiling,
                             const DeviceProfile& device) {
  const SeparableSizes sizes(problem);
  const Costs& cost = sizes.floats ? cost_of_floats : cost_of_halves;
  const auto number = [](std::int64_t of) { return static_cast<double>(of); };
  const double columns = tiling.columns, tiles = tiling.tiles, warps = tiling.warps();
  const double stride = number(sizes.stride), warp_chunks = number(sizes.warp_chunks(tiling));
  const double loads = (stride + 3) * ((columns - 1) * stride + 3);
  const double products = columns * ((sizes.floats ? 0 : 20) + 2 * tiles);
  const double chunk = cost.chunk + cost.column * columns + cost.load * loads + cost.product * products;
  const double waves = number(ceil_div(sizes.turns(tiling), tiling.blocks));
  const double unit_blocks = number(ceil_div(tiling.blocks * sizes.groups(tiling), std::max(device.units, 1)));
  const double filter_bytes = number(sizes.chunks * (512 * tiling.tiles + 16 * sizes.chunk_taps()));
  const double cycles_per_us = device.fp32_flops_per_us / (256.0 * std::max(device.units, 1));

  const double issue =
      unit_blocks *
      (warps * waves * (warp_chunks * chunk + cost.tile * tiles * columns) / 4 + cost.filter_byte * filter_bytes) /
      cycles_per_us;
  const double memory = problem.bytes() / (cost.memory_share * device.bytes_per_us);
  // Sets of filters that a warp reduces.
  const double jobs =
      tiling.adds() ? std::ceil(tiling.pixel_warps * columns * tiles / (sizes.floats ? 2 : 4) / warps) : 0;
  const double alone = waves * (warp_chunks * (cost.chunk_us + cost.product_us * products) + cost.job_us * jobs);
  const auto power = [](double v) { return std::pow(v, 1.7); };
  return device.launch_us + cost.start_us + std::pow(power(issue) + power(memory) + power(alone), 1 / 1.7);
}

std::vector<SeparableTiling> separable_tilings(const SeparableProblem& problem, const DeviceProfile& device) {
  const SeparableSizes sizes(problem);
  std::vector<SeparableTiling> tilings;
  for (const int columns : {1, 2})
    for (const int tiles : tile_counts) {
      if (!separable_has(columns, tiles, problem.depthwise.stride_h)) continue;
      // Unused tiles are computed all the same.
      if (tiles > 4 && 8 * tiles - 32 >= sizes.k) continue;
      for (int channel_warps = 1; channel_warps <= separable_most_warps(problem.depthwise.stride_h, columns, tiles);
           ++channel_warps)
        for (const int pixel_warps : {1, 2, 4, 8}) {
          SeparableTiling tiling{columns, tiles, pixel_warps, channel_warps, 1};
          if (tiling.warps() > separable_most_warps(problem.depthwise.stride_h, columns, tiles)) continue;
          if (channel_warps > 1 && channel_warps > sizes.chunks) continue;
          const std::size_t shared = sizes.shared_bytes(tiling);
          if (device.refuse_shared(shared)) continue;
          tiling.blocks = blocks_of(sizes, tiling, device);
          tilings.push_back(tiling);
        }
    }
  return tilings;
}

std::optional<SeparableTiling> plan_separable(const SeparableProblem& problem, const DeviceProfile& device) {
  // The order of a sum depends on channel_warps: the same on every device where it fits.
  for (const DeviceProfile* const planned : {&reference_gpu(), &device}) {
    auto best = best_tiling(separable_tilings(problem, *planned),
                            [&](const auto& tiling) { return estimate_separable_us(problem, tiling, *planned); });
    const SeparableSizes sizes(problem);
    if (!best || device.refuse_shared(sizes.shared_bytes(*best))) continue;
    best->blocks = blocks_of(sizes, *best, device);
    return best;
  }
  return std::nullopt;
}

std::vector<SeparableTiling> separable_by_estimate(const SeparableProblem& problem, const DeviceProfile& device) {
  const SeparableSizes sizes(problem);
  auto all = by_estimate(separable_tilings(problem, reference_gpu()),
                         [&](const auto& tiling) { return estimate_separable_us(problem, tiling, reference_gpu()); });
  std::erase_if(all, [&](const auto& tiling) { return device.refuse_shared(sizes.shared_bytes(tiling)).has_value(); });
  for (SeparableTiling& tiling : all) tiling.blocks = blocks_of(sizes, tiling, device);
  return all;
}

SeparableTiling read_separable_tiling(const SeparableProblem& problem, std::string_view config) {
  ConfigReader reader(config);
  const auto integer = [&](std::string_view name, int most) { return static_cast<int>(reader.integer(name, 1, most)); };
  SeparableTiling tiling;
  tiling.columns = integer("columns", 2);
  tiling.tiles = integer("tiles", 12);
  tiling.pixel_warps = integer("pixels", 8);
  tiling.channel_warps = integer("channels", 8);
  tiling.blocks = integer("blocks", 1 << 24);
  reader.finish();
  const SeparableSizes sizes(problem);
  if (!separable_has(tiling.columns, tiling.tiles, problem.depthwise.stride_h))
    reader.refuse("there is no such kernel");
  if (tiling.warps() > separable_most_warps(problem.depthwise.stride_h, tiling.columns, tiling.tiles))
    reader.refuse("these are more warps than a block may have");
  if (tiling.channel_warps > sizes.chunks) reader.refuse("the problem has fewer channels");
  return tiling;
}

}  // namespace lenslet::cuda

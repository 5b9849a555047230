#include "ops/conv/cuda/separable_plan.h"

#include <algorithm>
#include <cmath>

#include "ops/core/config_text.h"

namespace lenslet::cuda {
namespace {

std::int64_t over(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

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

std::string SeparableCut::str() const {
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
      chunks(over(c, chunk)) {}

std::int64_t SeparableSizes::items(const SeparableCut& cut) const { return n * over(p, 2) * over(q, cut.columns); }
std::int64_t SeparableSizes::turns(const SeparableCut& cut) const { return over(items(cut), 8 * cut.pixel_warps); }
std::int64_t SeparableSizes::groups(const SeparableCut& cut) const { return over(k, 8 * cut.tiles); }
std::int64_t SeparableSizes::warp_chunks(const SeparableCut& cut) const { return over(chunks, cut.channel_warps); }

std::size_t SeparableSizes::shared_bytes(const SeparableCut& cut) const {
  constexpr std::int64_t tile_bytes = 512;
  const std::int64_t filters = chunks * (tile_bytes * cut.tiles + 16 * chunk_taps());
  const std::int64_t bias = 32 * cut.tiles, residual = 2 * 16 * 32 * cut.warps();
  const std::int64_t sums = cut.adds() ? residual + cut.warps() * cut.columns * cut.tiles * tile_bytes : 0;
  return static_cast<std::size_t>(filters + bias + sums);
}

bool separable_has(int columns, int tiles, std::int64_t stride) {
  if (std::find(std::begin(tile_counts), std::end(tile_counts), tiles) == std::end(tile_counts)) return false;
  return columns == 1 || (columns == 2 && tiles == 4 && stride == 1);
}

int separable_resident(std::int64_t stride, const SeparableCut& cut, std::size_t shared_bytes,
                       const DeviceProfile& device) {
  const int warps = separable_most_warps(stride, cut.columns, cut.tiles) * separable_bound_blocks(cut.columns);
  const std::size_t with_reserve = shared_bytes + 1024;
  return std::max(1, std::min(warps / cut.warps(), static_cast<int>(device.shared_bytes_per_unit / with_reserve)));
}

namespace {

/// As many as are resident at once, or fewer with the same number of iterations.
int blocks_of(const SeparableSizes& sizes, const SeparableCut& cut, const DeviceProfile& device) {
  const std::int64_t at_once = std::int64_t{std::max(device.units, 1)} *
                               separable_resident(sizes.stride, cut, sizes.shared_bytes(cut), device) /
                               sizes.groups(cut);
  const std::int64_t turns = sizes.turns(cut);
  return static_cast<int>(over(turns, over(turns, std::max<std::int64_t>(1, at_once))));
}

}  // namespace

double estimate_separable_us(const SeparableProblem& problem, const SeparableCut& cut, const DeviceProfile& device) {
  const SeparableSizes sizes(problem);
  const Costs& cost = sizes.floats ? cost_of_floats : cost_of_halves;
  const auto number = [](std::int64_t of) { return static_cast<double>(of); };
  const double columns = cut.columns, tiles = cut.tiles, warps = cut.warps();
  const double stride = number(sizes.stride), warp_chunks = number(sizes.warp_chunks(cut));
  const double loads = (stride + 3) * ((columns - 1) * stride + 3);
  const double products = columns * ((sizes.floats ? 0 : 20) + 2 * tiles);
  const double chunk = cost.chunk + cost.column * columns + cost.load * loads + cost.product * products;
  const double rounds = number(over(sizes.turns(cut), cut.blocks));
  const double unit_blocks = number(over(cut.blocks * sizes.groups(cut), std::max(device.units, 1)));
  const double filter_bytes = number(sizes.chunks * (512 * cut.tiles + 16 * sizes.chunk_taps()));
  const double cycles_per_us = device.fp32_flops_per_us / (256.0 * std::max(device.units, 1));

  const double issue =
      unit_blocks *
      (warps * rounds * (warp_chunks * chunk + cost.tile * tiles * columns) / 4 + cost.filter_byte * filter_bytes) /
      cycles_per_us;
  const double memory = problem.bytes() / (cost.memory_share * device.bytes_per_us);
  // Sets of filters that a warp reduces.
  const double jobs = cut.adds() ? std::ceil(cut.pixel_warps * columns * tiles / (sizes.floats ? 2 : 4) / warps) : 0;
  const double alone = rounds * (warp_chunks * (cost.chunk_us + cost.product_us * products) + cost.job_us * jobs);
  const auto power = [](double v) { return std::pow(v, 1.7); };
  return device.launch_us + cost.start_us + std::pow(power(issue) + power(memory) + power(alone), 1 / 1.7);
}

std::vector<SeparableCut> separable_cuts(const SeparableProblem& problem, const DeviceProfile& device) {
  const SeparableSizes sizes(problem);
  std::vector<SeparableCut> cuts;
  for (const int columns : {1, 2})
    for (const int tiles : tile_counts) {
      if (!separable_has(columns, tiles, problem.depthwise.stride_h)) continue;
      // Unused tiles are computed all the same.
      if (tiles > 4 && 8 * tiles - 32 >= sizes.k) continue;
      for (int channel_warps = 1; channel_warps <= separable_most_warps(problem.depthwise.stride_h, columns, tiles);
           ++channel_warps)
        for (const int pixel_warps : {1, 2, 4, 8}) {
          SeparableCut cut{columns, tiles, pixel_warps, channel_warps, 1};
          if (cut.warps() > separable_most_warps(problem.depthwise.stride_h, columns, tiles)) continue;
          if (channel_warps > 1 && channel_warps > sizes.chunks) continue;
          const std::size_t shared = sizes.shared_bytes(cut);
          if (device.refuse_shared(shared)) continue;
          cut.blocks = blocks_of(sizes, cut, device);
          cuts.push_back(cut);
        }
    }
  return cuts;
}

std::optional<SeparableCut> plan_separable(const SeparableProblem& problem, const DeviceProfile& device) {
  // The order of a sum depends on channel_warps: the same on every device where it fits.
  for (const DeviceProfile* const planned : {&reference_gpu(), &device}) {
    const std::vector<SeparableCut> cuts = separable_cuts(problem, *planned);
    const auto best = std::min_element(cuts.begin(), cuts.end(), [&](const SeparableCut& a, const SeparableCut& b) {
      return estimate_separable_us(problem, a, *planned) < estimate_separable_us(problem, b, *planned);
    });
    const SeparableSizes sizes(problem);
    if (best == cuts.end() || device.refuse_shared(sizes.shared_bytes(*best))) continue;
    SeparableCut cut = *best;
    cut.blocks = blocks_of(sizes, cut, device);
    return cut;
  }
  return std::nullopt;
}

SeparableCut read_separable_cut(const SeparableProblem& problem, std::string_view config) {
  ConfigReader reader(config);
  const auto integer = [&](std::string_view name, int most) { return static_cast<int>(reader.integer(name, 1, most)); };
  SeparableCut cut;
  cut.columns = integer("columns", 2);
  cut.tiles = integer("tiles", 12);
  cut.pixel_warps = integer("pixels", 8);
  cut.channel_warps = integer("channels", 8);
  cut.blocks = integer("blocks", 1 << 24);
  reader.finish();
  const SeparableSizes sizes(problem);
  if (!separable_has(cut.columns, cut.tiles, problem.depthwise.stride_h)) reader.refuse("there is no such kernel");
  if (cut.warps() > separable_most_warps(problem.depthwise.stride_h, cut.columns, cut.tiles))
    reader.refuse("a block has not so many warps");
  if (cut.channel_warps > sizes.chunks) reader.refuse("there are not so many channels");
  return cut;
}

}  // namespace lenslet::cuda

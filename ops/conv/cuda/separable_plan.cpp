#include "ops/conv/cuda/separable_plan.h"

#include <algorithm>

#include "ops/core/config_text.h"

namespace lenslet::cuda {
namespace {

std::int64_t over(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr int tile_counts[] = {4, 8, 12, 16, 20};

}  // namespace

std::string SeparableCut::str() const {
  return ConfigWriter()
      .add("columns", std::int64_t{columns})
      .add("tiles", std::int64_t{tiles})
      .add("pixels", std::int64_t{pixel_warps})
      .add("channels", std::int64_t{channel_warps})
      .add("slices", std::int64_t{slices})
      .add("clusters", std::int64_t{clusters})
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
      chunks(over(c, chunk)) {}

std::int64_t SeparableSizes::items(const SeparableCut& cut) const { return n * over(p, 2) * over(q, cut.columns); }
std::int64_t SeparableSizes::turns(const SeparableCut& cut) const { return over(items(cut), 8 * cut.pixel_warps); }
std::int64_t SeparableSizes::groups(const SeparableCut& cut) const { return over(k, 8 * cut.tiles); }
std::int64_t SeparableSizes::block_chunks(const SeparableCut& cut) const { return over(chunks, cut.slices); }
std::int64_t SeparableSizes::warp_chunks(const SeparableCut& cut) const {
  return over(block_chunks(cut), cut.channel_warps);
}

std::size_t SeparableSizes::shared_bytes(const SeparableCut& cut) const {
  constexpr std::int64_t tile_bytes = 512;
  const std::int64_t filters = block_chunks(cut) * (tile_bytes * cut.tiles + 16 * chunk_taps());
  const std::int64_t bias = 32 * cut.tiles, residual = 2 * 16 * 32 * cut.warps();
  const std::int64_t sums = cut.adds() ? residual + cut.warps() * cut.columns * cut.tiles * tile_bytes : 0;
  return static_cast<std::size_t>(filters + bias + sums);
}

bool separable_has(int columns, int tiles, std::int64_t stride) {
  if (std::find(std::begin(tile_counts), std::end(tile_counts), tiles) == std::end(tile_counts)) return false;
  return columns == 1 || (columns == 2 && tiles <= 12 && stride == 1);
}

int separable_resident(std::int64_t stride, const SeparableCut& cut, std::size_t shared_bytes,
                       const DeviceProfile& device) {
  const int warps =
      separable_most_warps(stride, cut.columns, cut.tiles) * separable_bound_blocks(cut.columns, cut.tiles);
  const std::size_t with_reserve = shared_bytes + 1024;
  return std::max(1, std::min(warps / cut.warps(), static_cast<int>(device.shared_bytes_per_unit / with_reserve)));
}

double estimate_separable_us(const SeparableProblem& problem, const SeparableCut& cut, const DeviceProfile& device) {
  const SeparableSizes sizes(problem);
  constexpr double start_us = 1.0, chunk_us = 0.2, add_us = 0.5, cluster_us = 0.5, memory_share = 0.8;
  constexpr double chunk_instructions = 240, tile_instructions = 4, instruction_share = 0.7;
  const double groups = static_cast<double>(sizes.groups(cut)), m16 = cut.columns;
  const double warp_turns = static_cast<double>(sizes.turns(cut)) * cut.pixel_warps * groups;
  const double instructions =
      warp_turns * 32 * static_cast<double>(sizes.chunks) * m16 * (chunk_instructions + tile_instructions * cut.tiles);
  const double issue = instructions / (instruction_share * device.fp32_flops_per_us / 2);
  const double memory = problem.bytes() / (memory_share * device.bytes_per_us);
  const auto rounds = static_cast<double>(over(sizes.turns(cut), cut.clusters));
  const double alone = rounds * chunk_us * static_cast<double>(sizes.warp_chunks(cut)) * m16;
  return device.launch_us + start_us + std::max({issue, memory, alone}) + (cut.adds() ? rounds * add_us : 0) +
         (cut.slices > 1 ? rounds * cluster_us : 0);
}

std::vector<SeparableCut> separable_cuts(const SeparableProblem& problem, const DeviceProfile& device) {
  const SeparableSizes sizes(problem);
  std::vector<SeparableCut> cuts;
  for (const int columns : {1, 2})
    for (const int tiles : tile_counts) {
      if (!separable_has(columns, tiles, problem.depthwise.stride_h)) continue;
      // Tiles that are not wanted are multiplied all the same.
      if (8 * tiles >= sizes.k + 64 || (tiles > 4 && 8 * tiles - 32 >= sizes.k)) continue;
      for (const int slices : {1, 2, 4, 8}) {
        if (slices > 1 && (!device.clusters || slices > sizes.chunks)) continue;
        for (int channel_warps = 1; channel_warps <= separable_most_warps(problem.depthwise.stride_h, columns, tiles);
             ++channel_warps)
          for (const int pixel_warps : {1, 2, 4, 8}) {
            SeparableCut cut{columns, tiles, pixel_warps, channel_warps, slices, 1};
            if (cut.warps() > separable_most_warps(problem.depthwise.stride_h, columns, tiles)) continue;
            if (channel_warps > 1 && channel_warps > sizes.block_chunks(cut)) continue;
            const std::size_t shared = sizes.shared_bytes(cut);
            if (device.refuse_shared(shared)) continue;
            const std::int64_t at_once = std::int64_t{device.units} *
                                         separable_resident(problem.depthwise.stride_h, cut, shared, device) / slices /
                                         sizes.groups(cut);
            const std::int64_t turns = sizes.turns(cut);
            const std::int64_t rounds = over(turns, std::max<std::int64_t>(1, at_once));
            cut.clusters = static_cast<int>(over(turns, rounds));
            cuts.push_back(cut);
          }
      }
    }
  return cuts;
}

SeparableCut plan_separable(const SeparableProblem& problem, const DeviceProfile& device) {
  const std::vector<SeparableCut> cuts = separable_cuts(problem, device);
  return *std::min_element(cuts.begin(), cuts.end(), [&](const SeparableCut& a, const SeparableCut& b) {
    return estimate_separable_us(problem, a, device) < estimate_separable_us(problem, b, device);
  });
}

SeparableCut read_separable_cut(const SeparableProblem& problem, std::string_view config) {
  ConfigReader reader(config);
  const auto integer = [&](std::string_view name, int most) { return static_cast<int>(reader.integer(name, 1, most)); };
  SeparableCut cut;
  cut.columns = integer("columns", 2);
  cut.tiles = integer("tiles", 20);
  cut.pixel_warps = integer("pixels", 8);
  cut.channel_warps = integer("channels", 8);
  cut.slices = integer("slices", 8);
  cut.clusters = integer("clusters", 1 << 24);
  reader.finish();
  const SeparableSizes sizes(problem);
  if (!separable_has(cut.columns, cut.tiles, problem.depthwise.stride_h)) reader.refuse("there is no such kernel");
  if (cut.warps() > separable_most_warps(problem.depthwise.stride_h, cut.columns, cut.tiles))
    reader.refuse("a block has not so many warps");
  if (cut.slices > sizes.chunks || cut.channel_warps > sizes.block_chunks(cut))
    reader.refuse("there are not so many channels");
  return cut;
}

}  // namespace lenslet::cuda

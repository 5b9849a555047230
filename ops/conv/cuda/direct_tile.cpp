// direct_tile: refusals, cost, tile configurations and filters. Kernel: direct_tile.cu.

#include "ops/conv/cuda/direct_tile.h"

#include <algorithm>
#include <string>

#include "ops/core/not_built.h"

namespace lenslet::cuda {
namespace {

using namespace direct_tile_sizes;

/// All channels where they fit, else even chunks. 0: not one channel fits.
std::int64_t chunk_for(const ConvProblem& p, const InputTile& tile) {
  if (tile.channels_in(whole_bytes) >= p.c) return p.c;
  const std::int64_t most = std::min(tile.channels_in(chunked_bytes / 2), p.c);
  return most < 1 ? 0 : group_count(p.c, group_count(p.c, most));
}

/// Large blocks share more of the halo and filters, as long as every multiprocessor has a block. chunk 0: nothing fits
/// into shared memory.
Tiling choose_tiling(const ConvProblem& p, int multiprocessors) {
  Tiling t;
  t.filters = round_up(p.k, 6) < round_up(p.k, 8) ? 6 : 8;  // whichever pads less
  t.warps_k = std::min<std::int64_t>(group_count(p.k, t.filters), max_warps);
  t.warps_p = t.warps_k <= 2 ? 4 : t.warps_k <= 4 ? 2 : 1;
  while (t.warps_p > 1 && t.blocks(p) < 2 * multiprocessors) t.warps_p /= 2;
  while (t.warps_k > 1 && t.blocks(p) < multiprocessors / 2) t.warps_k = (t.warps_k + 1) / 2;
  while ((t.chunk = chunk_for(p, InputTile(p, t))) == 0 && t.warps_p * t.warps_k > 1) {
    if (t.warps_p > 1)
      t.warps_p /= 2;
    else
      t.warps_k = (t.warps_k + 1) / 2;
  }
  return t;
}

Tiling read_tiling(const ConvProblem& p, std::string_view config) {
  ConfigReader reader(config);
  Tiling t;
  t.filters = reader.integer("filters", 6, 8);
  t.warps_p = reader.integer("warps_p", 1, max_warps);
  t.warps_k = reader.integer("warps_k", 1, max_warps);
  t.chunk = reader.integer("chunk", 1, p.c);
  reader.finish();
  if (t.filters == 7) reader.refuse("groups are of 6 or 8 filters");
  if (t.warps_p * t.warps_k > max_warps) reader.refuse("a block has 8 warps at most");
  if (InputTile(p, t).channels_in(t.chunk < p.c ? chunked_bytes / 2 : whole_bytes) < t.chunk)
    reader.refuse("the chunks do not fit into shared memory");
  return t;
}

}  // namespace

std::optional<std::string> DirectTile::refuse(const ConvProblem& p, const Target& target) const {
  if (auto reason = target.device.refuse_shared(chunked_bytes)) return reason;
  if (auto reason = refuse_direct(p)) return reason;
  if (choose_tiling(p, 1).chunk == 0) return "one channel of an input tile does not fit into shared memory";
  return std::nullopt;
}

ConvCandidate DirectTile::candidate(const ConvProblem& p, const Target& target) const {
  return candidate_of(p, choose_tiling(p, target.device.units), target);
}

std::vector<ConvCandidate> DirectTile::candidates(const ConvProblem& p, const Target& target) const {
  std::vector<ConvCandidate> candidates;
  for (const std::int64_t filters : {6, 8})
    for (const std::int64_t warps_p : {1, 2, 4, 8})
      for (std::int64_t warps_k = 1; warps_k <= std::min(max_warps / warps_p, group_count(p.k, filters)); ++warps_k) {
        Tiling t{filters, warps_p, warps_k};
        t.chunk = chunk_for(p, InputTile(p, t));
        if (t.chunk > 0) candidates.push_back(candidate_of(p, t, target));
      }
  return by_time(std::move(candidates));
}

ConvCandidate DirectTile::candidate_of(const ConvProblem& p, const Tiling& t, const Target& target) const {
  // Share of peak on full multiprocessors; warps that fill one; copies a us that a full one issues; wait for the first
  // tile. Within 15 % for 17 of 18 layers on an H200, 8 to 117 us.
  constexpr double window_share = 0.77, taps_share = 0.21, warps_to_fill = 8, copies_a_us = 6250, start_us = 3.9;
  const DeviceProfile& device = target.device;
  const InputTile tile(p, t);
  const auto blocks = static_cast<double>(t.blocks(p)), channels = static_cast<double>(p.c);
  const auto taps = static_cast<double>(p.r * p.s), warps = blocks * static_cast<double>(t.warps_p * t.warps_k);
  const double issued = 2 * warps * warp_rows * warp_columns * static_cast<double>(t.filters) * channels * taps;
  // The input is copied by floats, the filters by fours.
  const double copies =
      blocks * channels *
      (static_cast<double>(tile.rows * tile.columns) + taps * static_cast<double>(t.warps_k * (group_floats / 4)));
  const double filled = std::min(1.0, warps / (warps_to_fill * device.units));
  const double share = direct_windows[window_for(p)].size != 0 ? window_share : taps_share;
  return {.pitched = true,
          .config = t.str(),
          .estimated_us = device.launch_us + start_us + issued / (filled * share * device.fp32_flops_per_us) +
                          copies / (filled * copies_a_us * device.units) + p.bytes() / device.bytes_per_us,
          .tolerance = direct_tolerance(p)};
}

ConvAlgorithm::FilterForm DirectTile::filter_form(const ConvProblem& p, std::string_view config) const {
  const Tiling t = read_tiling(p, config);
  return {.elements = grouped_floats(p, t.filters), .form = "groups of " + std::to_string(t.filters)};
}

void DirectTile::transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                           std::span<std::byte> bytes) const {
  group_filters(p, filter, read_tiling(p, config).filters, as_floats(bytes));
}

std::unique_ptr<const BoundKernel> DirectTile::bind_conv(const ConvProblem& p, std::string_view config,
                                                         const DeviceProfile&) const {
  const Tiling t = read_tiling(p, config);
  if constexpr (cuda_built)
    return bind_direct_tile(p, t);
  else
    return not_built();
}

const Kernel& conv_direct_tile() {
  static const DirectTile algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

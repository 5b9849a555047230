// depthwise: refusals, cost and filters. Kernels: depthwise.cu, depthwise_half.cu,
// depthwise_shared.cu.

#include "ops/conv/cuda/depthwise.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/aligned_format.h"
#include "base/convert.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/taps_inside.h"
#include "ops/core/choose.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

std::span<const DepthwiseVariant> variants_of(DType storage) {
  return storage == DType::f32 ? std::span<const DepthwiseVariant>(float_depthwise_variants) : half_depthwise_variants;
}

bool computes(const DepthwiseVariant& variant, const ConvProblem& p) {
  if (p.k % variant.lanes != 0) return false;
  if (variant.channels == 0 && p.c != p.k) return false;
  // At most two channels: a channel has no fewer filters than the thread.
  if (variant.channels == 2 && p.k / p.c < variant.lanes) return false;
  if (variant.size == 0) return true;
  return p.r == variant.size && p.s == variant.size && p.stride_h == variant.stride && p.stride_w == variant.stride &&
         p.dilation_h == 1 && p.dilation_w == 1;
}

/// Threads, where a tile has `rows` rows.
double item_count(const ConvProblem& p, const DepthwiseVariant& variant, std::int64_t rows) {
  return static_cast<double>(p.n * (p.k / variant.lanes)) * static_cast<double>(ceil_div(p.p, rows)) *
         static_cast<double>(ceil_div(p.q, variant.tile_q));
}

/// Estimate for strips in us, without the launch: total work at the memory or instruction rate, plus one thread's time,
/// for the last wave. First guesses, to be fitted.
double strips_us(const ConvProblem& p, const DepthwiseVariant& variant, std::int64_t rows,
                 const DeviceProfile& device) {
  // An input row shared by two strips is read the second time from L2.
  constexpr double memory_share = 0.8, again_share = 0.4, instruction_share = 0.6, row_us = 0.1, first_us = 0.7;
  constexpr double item_instructions = 200, output_row_instructions = 33, load_instructions = 36, products = 72;
  const auto inputs = static_cast<double>((rows - 1) * p.stride_h + p.r), outputs = static_cast<double>(rows);
  const double again = inputs / static_cast<double>(rows * p.stride_h) - 1;
  const double x_bytes = static_cast<double>(p.n * p.c * p.h * p.w * static_cast<std::int64_t>(dtype_bytes(p.storage)));
  const double memory = (p.bytes() + again_share * again * x_bytes) / (memory_share * device.bytes_per_us);
  const double instructions = item_instructions + output_row_instructions * outputs +
                              (load_instructions + products / static_cast<double>(p.stride_h)) * inputs;
  const double issue = item_count(p, variant, rows) * instructions / (instruction_share * device.fp32_flops_per_us / 2);
  return std::max(memory, issue) + first_us + row_us * inputs;
}

/// Rows of a tile, or of strips that are as even as the image allows.
std::vector<std::int64_t> heights_of(const ConvProblem& p, const DepthwiseVariant& variant) {
  if (variant.tile_p != any_height) return {variant.tile_p};
  std::vector<std::int64_t> heights{std::max(p.p, std::int64_t{1})};
  for (std::int64_t strips = 2; strips <= p.p; ++strips)
    if (const std::int64_t rows = ceil_div(p.p, strips); rows != heights.back()) heights.push_back(rows);
  return heights;
}

/// A block's tile where it shares one: rows and strips of shared_depthwise_columns; rows are even.
struct SharedTile {
  std::int64_t rows, strips, threads;
};

/// A third of a multiprocessor's.
constexpr std::int64_t most_shared_bytes = 72 << 10;

/// Estimate for a shared tile in us, without the launch: instructions and bytes of all blocks overlap, unless the
/// blocks are too few; then one block after the other. First guesses, to be fitted.
double shared_us(const ConvProblem& p, const SharedTile& tile, const DeviceProfile& device) {
  constexpr double an_fma = 1.28, a_thread_tile = 170, a_copy = 14, a_filter = 9, issue_share = 0.8, alone_share = 0.5;
  constexpr double load_us = 0.8, l2_rate = 1.3, overlap = 0.75, resident_threads = 640, resident_bytes = 220e3;
  const auto number = [](auto of) { return static_cast<double>(of); };
  const double units = device.units, cycles_per_us = device.fp32_flops_per_us / (2 * 128 * units);
  const double tile_instructions = an_fma * number(4 * shared_depthwise_columns * p.r * p.s) + a_thread_tile;
  const std::int64_t blocks_c = ceil_div(p.k, shared_depthwise_channels), thread_tiles = tile.rows / 2 * tile.strips;
  const double blocks =
      number(p.n * blocks_c * ceil_div(p.p, tile.rows) * ceil_div(p.q, tile.strips * shared_depthwise_columns));
  const double bytes = number(shared_depthwise_bytes(p.s, tile.rows, tile.strips));
  const double start = (a_copy * bytes / 16 + a_filter * number(p.r * p.s) * 16) / number(tile.threads);
  const double all_tiles = number(p.n * blocks_c * ceil_div(p.p, 2) * ceil_div(p.q, shared_depthwise_columns));
  const double warp_instructions = all_tiles / 2 * tile_instructions + blocks * number(tile.threads) / 32 * start;
  const double a_unit = blocks / units, uneven = a_unit > 0 ? std::ceil(a_unit) / a_unit : 1;
  const double issue = uneven * warp_instructions / (4 * units * cycles_per_us * issue_share);
  const double memory = std::max(p.bytes() / device.bytes_per_us, blocks * bytes / (l2_rate * device.bytes_per_us));
  const double a_block = load_us + (start + number(ceil_div(16 * thread_tiles, tile.threads)) * tile_instructions) /
                                       (alone_share * cycles_per_us);
  const double resident =
      std::min(std::floor(resident_threads / number(tile.threads)), std::floor(resident_bytes / bytes));
  const double waves = std::ceil(a_unit / resident);
  // Within a network one wave of blocks waits for filters that are in no cache: 12.1 us for 6.8 of 1x192x28x28.
  const double cold_us = waves > 1 ? 0 : 5;
  return cold_us +
         std::max(waves * a_block, a_block + std::max(issue, memory) + (1 - overlap) * std::min(issue, memory));
}

/// Tiles worth a try, the best first.
std::vector<SharedTile> shared_tiles(const ConvProblem& p, const DeviceProfile& device) {
  std::vector<SharedTile> tiles;
  for (std::int64_t parts = 1, before = 0; parts <= ceil_div(p.p, 2); ++parts) {
    const std::int64_t rows = 2 * ceil_div(p.p, 2 * parts);
    if (rows == before) continue;
    before = rows;
    for (const std::int64_t strips : {1, 2, 4})
      if (strips == 1 || strips < 2 * ceil_div(p.q, shared_depthwise_columns))
        for (const std::int64_t threads : {32, 64, 128})
          if (threads <= ceil_div(rows * strips, 4) * 32 &&
              shared_depthwise_bytes(p.s, rows, strips) <= most_shared_bytes)
            tiles.push_back({rows, strips, threads});
  }
  return by_estimate(std::move(tiles), [&](const SharedTile& tile) { return shared_us(p, tile, device); });
}

/// Vectors of channels in a chunk of strips: 128 bytes where the channels divide into such chunks, so that a block's
/// threads share columns.
std::int64_t chunk_groups(std::int64_t groups) {
  for (const std::int64_t chunk : {16, 12, 8})
    if (groups % chunk == 0) return chunk;
  return groups;
}

/// The largest tile that still gives each multiprocessor one warp per scheduler. Beyond that, loads saved cost less
/// than multiprocessors left idle.
const DepthwiseVariant& choose_variant(const ConvProblem& p, int multiprocessors) {
  const auto known = variants_of(p.storage);
  return *std::find_if(known.begin(), known.end(), [&](const DepthwiseVariant& variant) {
    const bool any = variant.tile_p == any_height || (variant.tile_p * variant.tile_q == 1 && variant.channels <= 1);
    return !variant.shared && computes(variant, p) &&
           (any || item_count(p, variant, variant.tile_p) >= 128.0 * multiprocessors);
  });
}

/// The problem with `padding` more channels.
ConvProblem padded(const ConvProblem& p, std::int64_t padding) {
  ConvProblem more = p;
  more.c += padding, more.k += padding, more.groups += padding;
  return more;
}
/// Padding channels a pixel, in the format of the neighbouring convolutions, so that loads are vectors.
std::int64_t padding_of(const ConvProblem& p, const Target& target) {
  if (p.c != p.k) return 0;
  const std::int64_t pitch = home_format({p.storage, {p.n, p.k, p.p, p.q}}, target).pixel_pitch;
  return pitch == 0 ? 0 : pitch - p.k;
}

class Depthwise final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "depthwise"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& given, const Target& target) const override {
    const ConvProblem problem = padded(given, padding_of(given, target));
    if (problem.groups != problem.c) return "not depthwise: groups and input channels differ";
    if (!fits_32_bits(problem) || item_count(problem, variants_of(problem.storage).back(), 1) > 0x7fffff00)
      return "a tensor beyond 32-bit offsets";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& given, const Target& target) const override {
    const DeviceProfile& device = target.device;
    const ConvProblem p = padded(given, padding_of(given, target));
    const DepthwiseVariant& variant = choose_variant(p, device.units);
    const bool strips = variant.tile_p == any_height;
    const std::int64_t rows = best_tiling(heights_of(p, variant), [&](std::int64_t height) {
                                return strips ? strips_us(p, variant, height, device) : 0;
                              }).value();
    // Small problems take small blocks, so that every multiprocessor gets one. 16-bit kernels other than strips always
    // do: with up to 255 registers a thread, five small blocks fit where two large ones would.
    const bool small = (p.storage != DType::f32 && !strips) ||
                       item_count(p, variant, rows) < max_depthwise_threads * device.units * (strips ? 4.0 : 1.0);
    const ConvCandidate apart =
        candidate_of(given, variant, rows, small ? max_depthwise_threads / 2 : max_depthwise_threads, target);
    const std::vector<ConvCandidate> shared = shared_candidates(given, target, 1);
    return !shared.empty() && shared[0].estimated_us < apart.estimated_us ? shared[0] : apart;
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& given, const Target& target) const override {
    const ConvProblem p = padded(given, padding_of(given, target));
    std::vector<ConvCandidate> candidates = shared_candidates(given, target, 6);
    for (const DepthwiseVariant& variant : variants_of(p.storage))
      for (const std::int64_t rows : heights_of(p, variant))
        for (const int threads : {max_depthwise_threads / 2, max_depthwise_threads})
          if (!variant.shared && computes(variant, p))
            candidates.push_back(candidate_of(given, variant, rows, threads, target));
    return by_time(std::move(candidates));
  }

  /// The best of a shared tile, `most` at most; none where no such kernel computes the problem.
  static std::vector<ConvCandidate> shared_candidates(const ConvProblem& given, const Target& target,
                                                      std::size_t most) {
    const ConvProblem p = padded(given, padding_of(given, target));
    std::vector<ConvCandidate> candidates;
    for (const DepthwiseVariant& variant : variants_of(p.storage)) {
      if (!variant.shared || !computes(variant, p)) continue;
      for (const SharedTile& tile : shared_tiles(p, target.device)) {
        if (candidates.size() == most) break;
        candidates.push_back(candidate_of(given, variant, tile.rows, tile.threads, target, tile.strips));
      }
    }
    return candidates;
  }

  /// Each tensor once at the rate of memory (L2 is no faster for so few bytes). Within 25 % for MobileNetV2's layers on
  /// an H200, batch 1 and 8.
  static ConvCandidate candidate_of(const ConvProblem& given, const DepthwiseVariant& variant, std::int64_t rows,
                                    std::int64_t threads, const Target& target, std::int64_t strips_of_tile = 0) {
    const std::int64_t padding = padding_of(given, target);
    const ConvProblem p = padded(given, padding);
    constexpr double start_us = 0.5;
    const DeviceProfile& device = target.device;
    const bool strips = variant.tile_p == any_height;
    const auto taps = static_cast<double>(p.r * p.s);
    const double memory = p.bytes() / device.bytes_per_us;
    // Rates of the `any` kernels: us for a million outputs on 132 multiprocessors, and us a tap where the grid does not
    // fill them. Within 15 % for most of 90 problems on an H100 (1.7 to 430 us). Long rows (`long_row` taps) skip rows
    // outside of the image, and loads of neighbouring lanes coalesce.
    double any_us = 0;
    if (variant.size == 0) {
      const bool one = variant.lanes == 1, half = p.storage != DType::f32, long_rows = p.s >= long_row;
      const double an_output = one ? 6.8 : half ? 0.3 : 0.0;
      const double a_tap = one ? (long_rows ? 0.85 : 1.24) : variant.channels == 0 ? 0.25 : half ? 0.37 : 0.47;
      const double of_long_row = one || variant.lanes == 2 ? (p.c == 1 || half ? 0.055 : 0.09) : 0.12;
      const double alone_us_a_tap = long_rows ? of_long_row : one ? (half ? 0.05 : 0.07) : 0.1, alone_us = 0.4;
      const double outputs = 1e-6 * static_cast<double>(p.n * p.k * p.p * p.q) * 132 / device.units;
      const double tap_rows = mean_rows_inside(p), inside = long_rows ? tap_rows * static_cast<double>(p.s) : taps;
      const double together = outputs * (an_output + a_tap * inside);
      const double alone = alone_us + alone_us_a_tap * inside + (long_rows ? 0.4 * (tap_rows - 1) : 0);
      any_us = long_rows ? std::hypot(together, alone) : std::max(together, alone);
    }
    // 7x7, and in 16 bits 5x5, are bound by multiplications, not by loads. First guesses in float32; in 16 bits fitted
    // to 7x7 at batch 64 on an H200, where code that each thread runs once waits for instructions.
    const bool halves = p.storage != DType::f32, large = variant.size >= (halves ? 5 : 7);
    const double large_us_a_tap = variant.size < 7 ? 0 : 0.03, large_rate = halves ? 0.36 : 0.6;
    const double products = p.flops() / (large_rate * device.fp32_flops_per_us);
    const double large_us = large ? large_us_a_tap * taps + std::max(products - memory, 0.0) : 0;
    ConfigWriter config;
    config.add("tile", variant.name);
    if (strips || variant.shared) config.add("rows", rows);
    if (variant.shared) config.add("strips", strips_of_tile);
    config.add("threads", threads);
    if (padding > 0) config.add("padding", padding);
    return {.format = padding > 0 ? aligned_nhwc(given.k, p.storage) : formats::nhwc,
            .pitched = true,
            .config = config.str(),
            .estimated_us = device.launch_us + (strips           ? strips_us(p, variant, rows, device)
                                                : variant.shared ? shared_us(p, {rows, strips_of_tile, threads}, device)
                                                                 : start_us + memory + any_us + large_us),
            .tolerance = p.storage == DType::f32 ? sum_tolerance(p.r * p.s) : half_sum_tolerance(p.storage, p.r * p.s)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    const std::int64_t channels = read(p, config).channels;
    return {.elements = channels * p.r * p.s,
            .form = std::string(to_string(p.storage)).append(" padding=").append(std::to_string(channels - p.k)),
            .element_bytes = static_cast<std::size_t>(dtype_bytes(p.storage))};
  }
  /// [R][S][K], zeros in the padding channels
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> to) const override {
    const std::int64_t channels = read(p, config).channels;
    dispatch(p.storage, Types<float, Float16, BFloat16>(), [&]<typename T>(std::type_identity<T>) {
      auto* const taps = reinterpret_cast<T*>(to.data());
      for (std::int64_t tap = 0; tap < filter.gemm_k; ++tap)
        for (std::int64_t k = 0; k < channels; ++k)
          taps[tap * channels + k] = convert<T>(k < p.k ? filter.exact_weight(k, tap) : 0.0);
    });
  }

  struct Configured {
    const DepthwiseVariant* variant = nullptr;
    std::int64_t rows = 0, strips = 0, channels = 0;  ///< channels: K with padding
    unsigned threads = 0;
  };
  static Configured read(const ConvProblem& given, std::string_view config) {
    ConfigReader reader(config);
    Configured read;
    const std::string_view name = reader.word("tile");
    const auto known = variants_of(given.storage);
    const auto named = std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.name == name; });
    const bool strips = named != known.end() && named->tile_p == any_height;
    const bool shared = named != known.end() && named->shared;
    if (strips || shared) read.rows = reader.integer("rows", 1, std::max(given.p, std::int64_t{1}) + shared);
    if (shared) read.strips = reader.integer("strips", 1, ceil_div(given.q, shared_depthwise_columns) + 2);
    read.threads = static_cast<unsigned>(reader.integer("threads", 1, max_depthwise_threads));
    const std::int64_t padding = reader.done() ? 0 : reader.integer("padding", 1, 7);
    reader.finish();
    if (shared && (read.rows % 2 != 0 || read.threads % 16 != 0 ||
                   shared_depthwise_bytes(given.s, read.rows, read.strips) > most_shared_bytes))
      reader.refuse("a shared tile has even rows, threads by 16, and fits shared memory");
    if (padding > 0 && given.c != given.k) reader.refuse("padding wants as many filters as channels");
    read.channels = given.k + padding;
    const auto variant = std::find_if(known.begin(), known.end(), [&](const DepthwiseVariant& one) {
      return one.name == name && computes(one, padded(given, padding));
    });
    if (variant == known.end()) reader.refuse("no kernel has this tile for this problem");
    read.variant = &*variant;
    if (!strips && !shared) read.rows = variant->tile_p;
    return read;
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& given, std::string_view config,
                                               const DeviceProfile&) const override {
    const Configured as = read(given, config);
    const ConvProblem p = padded(given, as.channels - given.k);
    const std::int64_t groups = p.k / as.variant->lanes;
    const DepthwiseLaunch launch{.variant = static_cast<std::size_t>(as.variant - variants_of(p.storage).data()),
                                 .items = static_cast<std::int64_t>(item_count(p, *as.variant, as.rows)),
                                 .rows = as.rows,
                                 .chunk = as.variant->tile_p == any_height ? chunk_groups(groups) : groups,
                                 .biases = given.k,
                                 .threads = as.threads,
                                 .strips = as.strips};
    if constexpr (cuda_built)
      return as.variant->shared ? bind_depthwise_shared(p, launch) : bind_depthwise(p, launch);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_depthwise() {
  static const Depthwise algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

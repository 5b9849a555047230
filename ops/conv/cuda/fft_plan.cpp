#include "ops/conv/cuda/fft_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>
#include <vector>

#include "ops/core/sum_tolerance.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

/// Smaller filters need fewer multiplications by Winograd or directly.
constexpr std::int64_t least_taps = 16;

constexpr std::int64_t max_workspace_bytes = 256 << 20, max_filter_bytes = 512 << 20;
/// Fewest tiles of a chunk: rows of the smallest product tile.
constexpr std::int64_t min_chunk = 32;
/// Limit of sizes that kernels index in 32 bits, with slack for a tile past the edge.
constexpr std::int64_t max_index = 1 << 30;

std::int64_t round_up(std::int64_t x, std::int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

std::string tile_text(const FftProductShape& shape) { return fmt::format("{}x{}", shape.m, shape.n); }

/// Half the row lengths of V and M.
std::int64_t c_of(const ConvProblem& p) { return round_up(p.c, fft_channels); }
std::int64_t k_of(const ConvProblem& p) { return round_up(p.k, 4); }

/// Bytes of V and M a tile.
std::int64_t bytes_a_tile(const ConvProblem& p, int size) {
  return std::int64_t{size} * size * (c_of(p) + k_of(p)) * static_cast<std::int64_t>(sizeof(float));
}
double filter_bytes(const ConvProblem& p, int size) {
  return 1.5 * size * size * static_cast<double>(c_of(p)) * static_cast<double>(k_of(p)) * sizeof(float);
}
std::int64_t tiles_of(const ConvProblem& p, int size) {
  return p.n * ceil_div(p.p, size + 1 - p.r) * ceil_div(p.q, size + 1 - p.s);
}

/// Why tiles of that size cannot do it, or nothing.
std::optional<std::string> refuse_size(const ConvProblem& p, int size) {
  if (std::max(p.r, p.s) > largest_fft_window(size))
    return fmt::format("filter is larger than {0}x{0}", largest_fft_window(size));
  if (filter_bytes(p, size) > static_cast<double>(max_filter_bytes)) return "filters would exceed 512 MiB";
  if (bytes_a_tile(p, size) * min_chunk > max_workspace_bytes) return "workspace would exceed 256 MiB";
  if (tiles_of(p, size) > max_index) return "sizes exceed 32-bit indices";
  return std::nullopt;
}

/// Plan with tiles of that size: as few chunks as the workspace allows, alike in size.
FftPlan tiling(const ConvProblem& p, int size) {
  FftPlan plan;
  plan.size = size;
  plan.slots = size * size / 2;
  plan.rows_out = static_cast<int>(size + 1 - p.r);
  plan.columns_out = static_cast<int>(size + 1 - p.s);
  plan.down = static_cast<int>(ceil_div(p.p, plan.rows_out));
  plan.across = static_cast<int>(ceil_div(p.q, plan.columns_out));
  plan.count = static_cast<int>(tiles_of(p, size));
  plan.c = static_cast<int>(c_of(p));
  plan.k = static_cast<int>(k_of(p));
  const std::int64_t most = max_workspace_bytes / bytes_a_tile(p, size);
  plan.chunk = static_cast<int>(ceil_div(plan.count, ceil_div(plan.count, most)));
  return plan;
}

std::vector<FftPlan> tilings_of_size(const ConvProblem& p, int size) {
  FftPlan plan = tiling(p, size);
  std::vector<FftPlan> tilings;
  // A few chunks more than the workspace needs may fill waves better. Chunks that fit L2 do not pay: too few blocks a
  // launch (64x128x96x96 -> 128, 5x5: 2.0 ms, 2.7 in chunks of 40 MB).
  const std::int64_t fewest = ceil_div(plan.count, plan.chunk);
  for (std::int64_t chunks = fewest; chunks < fewest + 4; ++chunks) {
    plan.chunk = static_cast<int>(ceil_div(plan.count, chunks));
    if (chunks > fewest && (plan.chunk < min_chunk || plan.chunk == tilings.back().chunk)) continue;
    for (std::size_t tile = 0; tile < fft_product_tiles.size(); ++tile) {
      plan.tile = static_cast<FftProductTile>(tile);
      tilings.push_back(plan);
    }
  }
  return tilings;
}

// Cost model, fitted to single kernels on an H200 (24 November 2026; docs/conv-choice.md).
/// Overhead of a wave of product blocks: first loads, stores of the accumulators.
constexpr double wave_us = 2.3;
/// Shares of memory bandwidth: products (reading V and U, writing M), x and y in their transforms.
constexpr double products_memory = 0.65, x_memory = 0.9, y_memory = 0.73;
/// Time from a transform's start to its first stores.
constexpr double input_us = 4, output_us = 2.5;

/// Share of memory bandwidth at which a tile size writes V and reads M: larger tiles take more registers a thread, so
/// fewer threads are resident.
struct TransformSpeed {
  int size;
  double input, output;
};
constexpr std::array<TransformSpeed, fft_sizes.size()> transform_speeds{
    {{16, 0.66, 0.88}, {20, 0.66, 0.76}, {24, 0.66, 0.70}, {32, 0.64, 0.62}, {36, 0.60, 0.53}, {40, 0.53, 0.48}}};

const TransformSpeed& speed_of(int size) {
  return *std::find_if(transform_speeds.begin(), transform_speeds.end(),
                       [&](const TransformSpeed& speed) { return speed.size == size; });
}

/// Products of one chunk.
double products_us(const FftPlan& plan, const DeviceProfile& device) {
  const FftProductShape& shape = shape_of(plan.tile);
  const std::int64_t blocks = ceil_div(plan.chunk, shape.m) * ceil_div(plan.k, shape.n) * plan.slots;
  const double block_us =
      2.0 * 3 * plan.c * shape.m * shape.n * device.units / (device.fp32_flops_per_us * shape.efficiency);
  // The fullest multiprocessor decides: full waves of resident blocks, then the rest.
  const std::int64_t most = ceil_div(blocks, device.units), left = most % shape.blocks;
  const double waves = static_cast<double>(most / shape.blocks);
  double us = waves * (block_us * (shape.blocks + shape.idle_blocks) + wave_us);
  if (left > 0) us += block_us * (static_cast<double>(left) + shape.idle_blocks) + wave_us;
  const double bytes = static_cast<double>(plan.v_floats() + plan.u_floats() + plan.product_floats()) * sizeof(float);
  return std::max(us, bytes / (products_memory * device.bytes_per_us));
}

}  // namespace

std::optional<std::string> refuse_fft(const ConvProblem& p) {
  if (p.r * p.s < least_taps) return fmt::format("filter has fewer than {} taps", least_taps);
  if (p.stride_h != 1 || p.stride_w != 1) return "stride is not 1";
  if (p.dilation_h != 1 || p.dilation_w != 1) return "dilation is not 1";
  if (p.groups != 1) return "groups are not 1";
  if (std::max({p.c, p.k, p.h, p.p}) > max_index || std::max(p.w * p.c, p.q * p.k) > max_index)
    return "sizes exceed 32-bit indices";
  std::optional<std::string> reason;
  for (const int size : fft_sizes) {
    reason = refuse_size(p, size);
    if (!reason) break;
  }
  return reason;
}

std::string FftPlan::str() const {
  return ConfigWriter()
      .add("size", std::int64_t{size})
      .add("chunk", std::int64_t{chunk})
      .add("tile", tile_text(shape_of(tile)))
      .str();
}

std::vector<FftPlan> fft_tilings(const ConvProblem& p) {
  std::vector<FftPlan> all;
  for (const int size : fft_sizes)
    if (!refuse_size(p, size)) std::ranges::move(tilings_of_size(p, size), std::back_inserter(all));
  return all;
}

FftPlan plan_fft(const ConvProblem& p, int size, const DeviceProfile& device) {
  return best_tiling(tilings_of_size(p, size), [&](const auto& plan) { return estimate_fft_us(p, plan, device); })
      .value();
}

FftPlan plan_fft(const ConvProblem& p, const DeviceProfile& device) {
  const auto us = [&](const FftPlan& plan) { return estimate_fft_us(p, plan, reference_gpu()); };
  return plan_fft(p, best_tiling(fft_tilings(p), us).value().size, device);
}

FftPlan read_fft_plan(const ConvProblem& p, std::string_view config) {
  ConfigReader reader(config);
  const int size = static_cast<int>(reader.integer("size", fft_sizes.front(), fft_sizes.back()));
  if (std::find(fft_sizes.begin(), fft_sizes.end(), size) == fft_sizes.end())
    reader.refuse("there are no tiles of that size");
  if (const auto reason = refuse_size(p, size)) reader.refuse(*reason);
  FftPlan plan = tiling(p, size);
  plan.chunk = static_cast<int>(reader.integer("chunk", 1, plan.chunk));
  const std::string_view tile = reader.word("tile");
  reader.finish();
  const auto known = std::find_if(fft_product_tiles.begin(), fft_product_tiles.end(),
                                  [&](const FftProductShape& shape) { return tile_text(shape) == tile; });
  if (known == fft_product_tiles.end()) reader.refuse("no kernel has this tile");
  plan.tile = static_cast<FftProductTile>(known - fft_product_tiles.begin());
  return plan;
}

double estimate_fft_us(const ConvProblem& p, const FftPlan& plan, const DeviceProfile& device) {
  const double chunks = static_cast<double>(ceil_div(plan.count, plan.chunk));
  const auto bytes_us = [&](auto floats) { return static_cast<double>(floats) * sizeof(float) / device.bytes_per_us; };
  const TransformSpeed& speed = speed_of(plan.size);
  const double x = bytes_us(p.n * p.h * p.w * p.c), y = bytes_us(p.n * p.p * p.q * p.k) * (p.residual ? 2 : 1);
  const double transforms = bytes_us(plan.v_floats()) / speed.input + bytes_us(plan.product_floats()) / speed.output;
  return x / x_memory + y / y_memory +
         chunks * (transforms + products_us(plan, device) + input_us + output_us + 3 * device.launch_us);
}

double fft_tolerance(const ConvProblem& p) { return sum_tolerance(2 * p.c) + std::ldexp(96, -24); }

void fft_filters(const ConvProblem& p, const FftPlan& plan, const ConvFilter& filter, std::span<float> u) {
  const auto size = static_cast<std::size_t>(plan.size), half = size / 2;
  const auto rows = static_cast<std::size_t>(p.r), columns = static_cast<std::size_t>(p.s);
  const auto c_row = static_cast<std::size_t>(plan.c), k_row = static_cast<std::size_t>(plan.k);
  std::fill(u.begin(), u.end(), 0.0F);
  std::vector<double> cosines(size), sines(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(size);
    cosines[i] = std::cos(angle);
    sines[i] = std::sin(angle);
  }
  // Filters are innermost, as in U.
  constexpr std::size_t lanes = 16;
  using Lanes = std::array<double, lanes>;
  std::vector<Lanes> weights(rows * columns), lines_re(rows), lines_im(rows);
  // Adds x e^(2 pi i turn / size). The input has the conjugate: this is correlation.
  const auto add = [&](const Lanes& x, std::size_t turn, Lanes& re, Lanes& im) {
    const double cosine = cosines[turn % size], sine = sines[turn % size];
    for (std::size_t e = 0; e < lanes; ++e) {
      re[e] += x[e] * cosine;
      im[e] += x[e] * sine;
    }
  };
  for (std::size_t c = 0; c < static_cast<std::size_t>(p.c); ++c)
    for (std::size_t first = 0; first < static_cast<std::size_t>(p.k); first += lanes) {
      const std::size_t filters = std::min(lanes, static_cast<std::size_t>(p.k) - first);
      for (std::size_t tap = 0; tap < weights.size(); ++tap)
        for (std::size_t e = 0; e < filters; ++e)
          weights[tap][e] = filter.exact_weight(static_cast<std::int64_t>(first + e),
                                                static_cast<std::int64_t>(c * weights.size() + tap));
      const auto put = [&](std::size_t column, std::size_t slot, std::size_t part, double scale, const Lanes& x) {
        float* const to = u.data() + (((column * size + slot) * 3 + part) * c_row + c) * k_row + first;
        for (std::size_t e = 0; e < filters; ++e) to[e] = static_cast<float>(scale * x[e]);
      };
      const double scale = 1 / static_cast<double>(size * size);
      for (std::size_t column = 0; column <= half; ++column) {
        for (std::size_t r = 0; r < rows; ++r) {
          lines_re[r] = lines_im[r] = {};
          for (std::size_t s = 0; s < columns; ++s) add(weights[r * columns + s], s * column, lines_re[r], lines_im[r]);
        }
        const bool edge = column == 0 || column == half;  // both in column 0
        for (std::size_t row = 0; row < (edge ? half + 1 : size); ++row) {
          Lanes re{}, im{}, turned_re{}, turned_im{};
          for (std::size_t r = 0; r < rows; ++r) {
            add(lines_re[r], r * row, re, im);
            add(lines_im[r], r * row, turned_re, turned_im);
          }
          Lanes less, more;
          for (std::size_t e = 0; e < lanes; ++e) {
            re[e] -= turned_im[e];
            im[e] += turned_re[e];
            less[e] = im[e] - re[e];
            more[e] = re[e] + im[e];
          }
          if (edge && row % half == 0) {  // real, and not doubled by the transforms
            put(0, row, column == 0 ? 1 : 2, column == 0 ? scale : -scale, re);
            continue;
          }
          const std::size_t slot = column == half ? size - row : row;
          put(column % half, slot, 0, scale / 2, re);
          put(column % half, slot, 1, scale / 2, less);
          put(column % half, slot, 2, scale / 2, more);
        }
      }
    }
}

}  // namespace lenslet::cuda

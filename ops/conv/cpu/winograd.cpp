// Winograd F(m x m, 3 x 3), m = 2, 4, 6, in NHWC: input tiles become alpha^2 matrices V [tiles][C]; alpha^2 GEMMs with
// the filters U [C][K] give [tiles][K], which become output tiles. With dilation d, outputs d apart (a phase) are an
// undilated convolution of inputs d apart: d * d phases with their own tiles.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/conv/cpu/winograd_transforms.h"
#include "ops/conv/winograd_filter.h"
#include "ops/core/fused_clamp.h"
#include "ops/gemm/gemm.h"

namespace lenslet {
namespace {

constexpr std::int64_t max_alpha2 = 64;
// Each block reads all of U, mostly from L3: below 24 tiles that costs more than keeping V and products in L2 saves.
constexpr std::int64_t min_block = 24, max_block = 192;
// Up to this many blocks of tiles are done as one; threads then split the GEMMs by matrix.
constexpr std::int64_t shared_blocks = 3;
constexpr double max_workspace_bytes = 256 << 20;
/// Filters up to here are charged as L3 reads after the first block.
constexpr double cached_filter_bytes = 4 << 20;

struct Tiles {
  std::int64_t m, alpha2;
  std::int64_t phases_h, phases_w;
  std::int64_t down, across;  ///< of tiles, a phase
  std::int64_t count;         ///< over all phases and images
  std::int64_t block;         ///< tiles at a time
  bool shared;                ///< all tiles at once: threads split the GEMMs by matrix, so that each reads U once
  std::int64_t v_stride, product_stride;  ///< floats between matrices of a block

  std::int64_t block_floats() const { return alpha2 * (v_stride + product_stride); }
};

/// Pitch of matrices that is no multiple of 4 KiB: a tile's alpha^2 stores would share an L1 set.
std::int64_t apart(std::int64_t floats) { return (floats + 15) / 16 * 16 + 16; }

Tiles tiles_of(const ConvProblem& p, std::int64_t m, int threads) {
  Tiles t{};
  t.m = m;
  t.alpha2 = (m + 2) * (m + 2);
  const auto parts = [](std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; };
  t.phases_h = std::min(p.dilation_h, p.p);
  t.phases_w = std::min(p.dilation_w, p.q);
  t.down = parts(parts(p.p, p.dilation_h), m);
  t.across = parts(parts(p.q, p.dilation_w), m);
  t.count = p.n * t.phases_h * t.phases_w * t.down * t.across;
  // V and products of a block should stay in L2 (384 of 512 KiB and more).
  constexpr std::int64_t l2_floats = 96 << 10;
  const std::int64_t fitting = l2_floats / (t.alpha2 * (p.c + p.k));
  const std::int64_t most = std::clamp(fitting / 12 * 12, min_block, max_block);
  t.shared = t.count <= shared_blocks * most;
  std::int64_t blocks = t.shared ? 1 : (t.count + most - 1) / most;
  // Equally many a thread, unless that makes blocks small.
  if (const auto even = (blocks + threads - 1) / threads * threads; !t.shared && t.count >= even * (min_block - 6))
    blocks = even;
  t.block = (t.count + blocks - 1) / blocks;
  t.v_stride = apart(t.block * p.c);
  t.product_stride = apart(t.block * p.k);
  return t;
}

/// A tile's first output; past P or Q where its phase has fewer tiles than others.
struct TilePlace {
  std::int64_t n, row, column;
};
TilePlace place_of(const ConvProblem& p, const Tiles& t, std::int64_t tile) {
  const std::int64_t phase = tile / (t.down * t.across), phase_row = phase / t.phases_w;
  return {.n = phase_row / t.phases_h,
          .row = phase_row % t.phases_h + tile / t.across % t.down * t.m * p.dilation_h,
          .column = phase % t.phases_w + tile % t.across * t.m * p.dilation_w};
}

/// Floats of one of U's alpha^2 matrices, packed.
std::int64_t matrix_floats(const ConvProblem& p) { return (packed_b_floats(p.c, p.k) + 15) / 16 * 16; }

class BoundWinograd final : public BoundConv {
 public:
  BoundWinograd(const ConvProblem& p, const Tiles& tiles, int threads)
      : BoundConv(p, static_cast<std::size_t>(apart(p.c) + tiles.block_floats() * (tiles.shared ? 1 : threads)) *
                         sizeof(float)),
        tiles_(tiles) {}

 private:
  void compute(const ConvRun& run) const override;
  void transform_in(const ConvRun& run, const float* zeros, std::int64_t first, std::int64_t begin, std::int64_t end,
                    float* v) const;
  void transform_out(const ConvRun& run, std::int64_t first, std::int64_t begin, std::int64_t end,
                     const float* products) const;
  void multiply(const ConvRun& run, std::int64_t matrix, std::int64_t count, const float* v, float* products) const;

  Tiles tiles_;
};

/// Transforms tiles [begin, end) into rows of the block's V; `first` is the block's first tile.
void BoundWinograd::transform_in(const ConvRun& run, const float* zeros, std::int64_t first, std::int64_t begin,
                                 std::int64_t end, float* v) const {
  const ConvProblem& p = problem;
  const Tiles& t = tiles_;
  const std::int64_t alpha = t.m + 2;
  std::array<const float*, max_alpha2> pixels;
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const TilePlace place = place_of(p, t, tile);
    const std::int64_t top = place.row - p.pad_top, left = place.column - p.pad_left;
    std::size_t at = 0;
    for (std::int64_t h = top; h < top + alpha * p.dilation_h; h += p.dilation_h) {
      const bool row_inside = h >= 0 && h < p.h;
      const float* line = run.x<float>() + (place.n * p.h + (row_inside ? h : 0)) * p.w * p.c;
      for (std::int64_t w = left; w < left + alpha * p.dilation_w; w += p.dilation_w)
        pixels[at++] = row_inside && w >= 0 && w < p.w ? line + w * p.c : zeros;
    }
    winograd_input(static_cast<int>(t.m), {pixels.data(), p.c, v + (tile - first) * p.c, t.v_stride});
  }
}

void BoundWinograd::transform_out(const ConvRun& run, std::int64_t first, std::int64_t begin, std::int64_t end,
                                  const float* products) const {
  const ConvProblem& p = problem;
  const Tiles& t = tiles_;
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const auto [n, row, column] = place_of(p, t, tile);
    if (row >= p.p || column >= p.q) continue;
    WinogradOutputTile out;
    out.products = products + (tile - first) * p.k;
    out.stride = t.product_stride;
    out.channels = p.k;
    out.rows = std::min(t.m, (p.p - row + p.dilation_h - 1) / p.dilation_h);
    out.columns = std::min(t.m, (p.q - column + p.dilation_w - 1) / p.dilation_w);
    out.bias = run.bias<float>();
    out.max_pool = static_cast<bool>(p.max_pool);
    if (p.max_pool) {
      out.y = run.y<float>() + ((n * (p.p / 2) + row / 2) * (p.q / 2) + column / 2) * run.y_pixel;
      out.line = p.q / 2 * run.y_pixel;
      out.pixel = run.y_pixel;
    } else {
      const std::int64_t pixel = (n * p.p + row) * p.q + column;
      out.residual = run.residual<float>() == nullptr ? nullptr : run.residual<float>() + pixel * p.k;
      out.y = run.y<float>() + pixel * run.y_pixel;
      out.line = p.dilation_h * p.q * run.y_pixel;
      out.pixel = p.dilation_w * run.y_pixel;
    }
    winograd_output(static_cast<int>(t.m), out, p.activation);
  }
}

void BoundWinograd::multiply(const ConvRun& run, std::int64_t matrix, std::int64_t count, const float* v,
                             float* products) const {
  const ConvProblem& p = problem;
  const Tiles& t = tiles_;
  Gemm call;
  call.m = count;
  call.n = p.k;
  call.k = p.c;
  call.a.base = v + matrix * t.v_stride;
  call.a.stride = p.c;
  call.b = run.filter<float>() + matrix * matrix_floats(p);
  call.c = products + matrix * t.product_stride;
  call.ldc = p.k;
  // The output transform amplifies the GEMMs' rounding errors, most of F(6)'s, by up to 32. Short partial sums halve
  // it or better (rms at C = 64, 256, 512: 2.9e-6, 5.8e-6 and more to 2.1e-6, 2.7e-6, 2.6e-6).
  call.partial_length = t.m == 6 ? 32 : 0;
  gemm_serial(call);
}

void BoundWinograd::compute(const ConvRun& run) const {
  const ConvProblem& p = problem;
  const Tiles& t = tiles_;
  auto* zeros = reinterpret_cast<float*>(run.workspace.data());
  std::fill(zeros, zeros + p.c, 0.0F);
  float* blocks = zeros + apart(p.c);

  if (t.shared) {
    float* v = blocks;
    float* products = v + t.alpha2 * t.v_stride;
    // A tile transforms alpha^2 * C floats: pieces of 2 us and more.
    const std::int64_t grain = std::max<std::int64_t>(1, (32 << 10) / (t.alpha2 * (p.c + p.k)));
    run.pool->parallel_for(
        t.count, grain, [&](std::int64_t begin, std::int64_t end, int) { transform_in(run, zeros, 0, begin, end, v); });
    run.pool->parallel_for(t.alpha2, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t matrix = begin; matrix < end; ++matrix) multiply(run, matrix, t.count, v, products);
    });
    run.pool->parallel_for(t.count, grain, [&](std::int64_t begin, std::int64_t end, int) {
      transform_out(run, 0, begin, end, products);
    });
    return;
  }
  const std::int64_t count = (t.count + t.block - 1) / t.block;
  run.pool->parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* v = blocks + worker * t.block_floats();
    float* products = v + t.alpha2 * t.v_stride;
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * t.block, last = std::min(t.count, first + t.block);
      transform_in(run, zeros, first, first, last, v);
      for (std::int64_t matrix = 0; matrix < t.alpha2; ++matrix) multiply(run, matrix, last - first, v, products);
      transform_out(run, first, first, last, products);
    }
  });
}

double estimate_us(const ConvProblem& p, const Tiles& t, const DeviceProfile& rates) {
  const auto alpha2 = static_cast<double>(t.alpha2), tiles = static_cast<double>(t.count);
  const auto block = static_cast<double>(t.block);
  const double blocks = std::ceil(tiles / block);
  // GEMMs reach 88 % of peak (F(6), with partial sums: 80 %), overlapped with reading all of U in each block. A tile's
  // overhead is 7 iterations over C.
  const auto c = static_cast<double>(p.c);
  const double product = blocks * alpha2 * gemm_issued_flops(t.block, p.k, p.c) * (c + 7) / c /
                         ((t.m == 6 ? 0.8 : 0.88) * rates.fp32_flops_per_us);
  // The first block reads U at memory speed even where filters stay in L3 (19 to 24 GB/s inside GoogLeNet and
  // DenseNet); further blocks four times as fast if it fits L3 comfortably.
  const double u_bytes = alpha2 * 4.0 * c * static_cast<double>(p.k);
  const double u = u_bytes / rates.bytes_per_us * (1 + (blocks - 1) / (u_bytes <= cached_filter_bytes ? 4 : 1));
  // Transforms: a time a tile and a float of V and products, fitted to ResNet, VGG, SqueezeNet and CIFAR layers on Zen
  // 3 (2.4 GHz nominal, one thread, L3 shared) within 20 %. In FMAs, since longer vectors speed up both (Zen 5:
  // 64x56x56 -> 64 F(4) 346 us). F(6) is never far ahead of F(4), which is six times as accurate.
  const double tile_us = t.m == 2 ? 0.06 : t.m == 4 ? 0.12 : 0.2;
  const double float_flops = t.m == 2 ? 14 : t.m == 4 ? 22 : 39;
  const double transforms =
      tiles * (tile_us / rates.units + alpha2 * static_cast<double>(p.c + p.k) * float_flops / rates.fp32_flops_per_us);
  // Fewer blocks than threads, or a partial last wave.
  const double threads = rates.units;
  const double idle = t.shared ? 1 : std::ceil(blocks / threads) * threads / blocks;
  return 2 + idle * (std::max(product, u) + 0.3 * std::min(product, u) + transforms);
}

// U = G g G^T in double, rounded once.
template <int M>
void transform_filters(const ConvProblem& p, const ConvFilter& filter, float* u) {
  constexpr std::size_t alpha = static_cast<std::size_t>(M) + 2;
  // One panel of filters at a time, one row of their U: [alpha][filters][C] floats of scratch, which stay in L2.
  const std::int64_t panel = gemm_tile_cols();
  std::vector<float> rows(alpha * static_cast<std::size_t>(std::min(panel, p.k) * p.c));
  for (std::int64_t first = 0; first < p.k; first += panel) {
    const std::int64_t filters = std::min(panel, p.k - first);
    const auto matrix = static_cast<std::size_t>(filters * p.c);
    const float* const w = filter.elements<float>() + first * p.c * 9;
    for (std::size_t i = 0; i < alpha; ++i) {
      for (std::size_t at = 0; at < matrix; ++at) {
        const auto line = winograd_filter_row<M>(i, w + at * 9);
        const double scale = filter.factor(first + static_cast<std::int64_t>(at) / p.c);
        for (std::size_t j = 0; j < alpha; ++j)
          rows[j * matrix + at] = static_cast<float>(scale * winograd_filter_element<M>(j, line));
      }
      for (std::size_t j = 0; j < alpha; ++j)
        pack_b(rows.data() + j * matrix, 1, p.c, p.c, filters,
               u + static_cast<std::int64_t>(i * alpha + j) * matrix_floats(p) + first * p.c);
    }
  }
}

class Winograd final : public ConvAlgorithm {
 public:
  Winograd(std::int64_t m, std::string_view name) : m_(m), name_(name) {}
  std::string_view name() const override { return name_; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  bool pools(const ConvProblem& p) const override {
    return p.max_pool == maxima_of_four && p.dilation_h == 1 && p.dilation_w == 1 && !FusedClamp(p.activation).after;
  }
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (auto why = refuse_winograd_form(p)) return why;
    const double floats_a_tile =
        static_cast<double>((m_ + 2) * (m_ + 2)) * (static_cast<double>(p.c) + static_cast<double>(p.k));
    if (floats_a_tile * 4 * shared_blocks * min_block > max_workspace_bytes) return "workspace would exceed 256 MiB";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const Tiles t = tiles_of(p, m_, target.device.units);
    ConvCandidate candidate;
    candidate.pitched = true;
    candidate.tolerance = winograd_tolerance(m_, p.c);
    candidate.estimated_us = estimate_us(p, t, target.device);
    return candidate;
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = (m_ + 2) * (m_ + 2) * matrix_floats(p),
            .form = fmt::format("packed for {} columns", gemm_tile_cols())};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    const std::span<float> to = as_floats(bytes);
    std::fill(to.begin(), to.end(), 0.0F);
    if (m_ == 2) return transform_filters<2>(p, filter, to.data());
    if (m_ == 4) return transform_filters<4>(p, filter, to.data());
    return transform_filters<6>(p, filter, to.data());
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundWinograd>(p, tiles_of(p, m_, device.units), device.units);
  }

  std::int64_t m_;
  std::string_view name_;
};

}  // namespace

const Kernel& conv_winograd_f2() {
  static const Winograd algorithm(2, "winograd_f2");
  return algorithm;
}
const Kernel& conv_winograd_f4() {
  static const Winograd algorithm(4, "winograd_f4");
  return algorithm;
}
const Kernel& conv_winograd_f6() {
  static const Winograd algorithm(6, "winograd_f6");
  return algorithm;
}

}  // namespace lenslet

// Winograd F(m x m, 3 x 3), m = 2, 4, 6, in NHWC: tiles of the input become alpha^2 matrices V [tiles][C], which
// alpha^2 products with the filters U [C][K] turn into [tiles][K], which become tiles of the output.

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <vector>

#include "ops/conv/cpu/algorithms.h"
#include "ops/conv/cpu/winograd_transforms.h"
#include "ops/conv/winograd_matrices.h"
#include "ops/gemm/gemm.h"

namespace lenslet {
namespace {

constexpr std::int64_t max_alpha2 = 64;
// Every block reads all of U, mostly out of L3: below 24 tiles that costs more than V and products in L2 save.
constexpr std::int64_t min_block = 24, max_block = 192;
// Up to so many blocks of tiles are done as one, the products shared by matrix instead.
constexpr std::int64_t shared_blocks = 3;
constexpr double max_workspace_bytes = 256 << 20;
/// Filters up to here are charged as read from L3.
constexpr double cached_filter_bytes = 4 << 20;

struct WinogradFilter final : PreparedFilter {
  struct Free {
    void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Free> u;  // alpha^2 times [C][K] as pack_b has it
  std::int64_t one = 0;              // floats of one of them
  std::size_t total = 0;
  std::size_t bytes() const override { return total; }
};

struct Tiles {
  std::int64_t m, alpha2;
  std::int64_t down, across, count;  ///< of tiles, over all images
  std::int64_t block;                ///< tiles at a time
  bool shared;  ///< all tiles at once: the threads share the products by matrix, and each reads U once
  std::int64_t v_stride, product_stride;  ///< floats from one matrix of a block to the next

  std::int64_t block_floats() const { return alpha2 * (v_stride + product_stride); }
};

/// Matrices must not lie at multiples of 4 KiB from each other: a tile's alpha^2 stores would share one set of L1.
std::int64_t apart(std::int64_t floats) { return (floats + 15) / 16 * 16 + 16; }

Tiles tiles_of(const ConvProblem& p, std::int64_t m) {
  Tiles t{};
  t.m = m;
  t.alpha2 = (m + 2) * (m + 2);
  t.down = (p.p + m - 1) / m;
  t.across = (p.q + m - 1) / m;
  t.count = p.n * t.down * t.across;
  // V and products of a block should stay in L2 (384 of 512 KiB and more).
  constexpr std::int64_t l2_floats = 96 << 10;
  const std::int64_t fitting = l2_floats / (t.alpha2 * (p.c + p.k));
  const std::int64_t most = std::clamp(fitting / 12 * 12, min_block, max_block);
  t.shared = t.count <= shared_blocks * most;
  const std::int64_t blocks = t.shared ? 1 : (t.count + most - 1) / most;
  t.block = (t.count + blocks - 1) / blocks;
  t.v_stride = apart(t.block * p.c);
  t.product_stride = apart(t.block * p.k);
  return t;
}

class Winograd final : public ConvAlgorithm {
 public:
  Winograd(std::int64_t m, std::string_view name) : m_(m), name_(name) {}
  std::string_view name() const override { return name_; }
  Format format() const override { return formats::nhwc; }

  std::optional<std::string> refuse(const ConvProblem& p) const override {
    if (p.r != 3 || p.s != 3) return "filter is not 3x3";
    if (p.stride_h != 1 || p.stride_w != 1) return "stride is not 1";
    if (p.dilation_h != 1 || p.dilation_w != 1) return "dilation is not 1";
    if (p.groups != 1) return "groups are not 1";
    const double floats_a_tile =
        static_cast<double>((m_ + 2) * (m_ + 2)) * (static_cast<double>(p.c) + static_cast<double>(p.k));
    if (floats_a_tile * 4 * shared_blocks * min_block > max_workspace_bytes) return "workspace would exceed 256 MiB";
    return std::nullopt;
  }

  /// Errors of the transforms and of sums over C, which grow like sqrt(C). On rectified Gaussian input of 26x26 images
  /// with C = 256 the worst were 3.5e-6 (F2), 1.4e-5 (F4) and 1.1e-4 (F6) of the output's rms. In trained networks the
  /// terms cancel more: F2 reached 1.9e-5 in ResNet-50 (C = 256), F6 6.5e-5 in waifu2x (C = 3).
  double tolerance(const ConvProblem& p) const override {
    const double c = std::sqrt(static_cast<double>(p.c));
    if (m_ == 2) return 8e-6 + 1.2e-6 * c;
    if (m_ == 4) return 1e-5 + 2e-6 * c;
    return 1e-4 + 4e-6 * c;
  }

  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override;

  std::size_t workspace_bytes(const ConvProblem& p, int threads) const override {
    const Tiles t = tiles_of(p, m_);
    const std::int64_t floats = apart(p.c) + t.block_floats() * (t.shared ? 1 : threads);
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& p, const ConvFilter& filter) const override {
    if (m_ == 2) return transform_filters<2>(p, filter);
    if (m_ == 4) return transform_filters<4>(p, filter);
    return transform_filters<6>(p, filter);
  }

  void run(const ConvRun& run) const override;

 private:
  template <int M>
  static std::unique_ptr<PreparedFilter> transform_filters(const ConvProblem& p, const ConvFilter& filter);
  void transform_in(const ConvRun& run, const Tiles& t, const float* zeros, std::int64_t first, std::int64_t begin,
                    std::int64_t end, float* v) const;
  void transform_out(const ConvRun& run, const Tiles& t, std::int64_t first, std::int64_t begin, std::int64_t end,
                     const float* products) const;
  static void multiply(const ConvRun& run, const Tiles& t, std::int64_t matrix, std::int64_t count, const float* v,
                       float* products);

  std::int64_t m_;
  std::string_view name_;
};

// U = G g G^T in double, rounded once.
template <int M>
std::unique_ptr<PreparedFilter> Winograd::transform_filters(const ConvProblem& p, const ConvFilter& filter) {
  constexpr std::size_t alpha = static_cast<std::size_t>(M) + 2;
  constexpr const auto& g = winograd_matrices<M>.g;
  auto prepared = std::make_unique<WinogradFilter>();
  prepared->one = (packed_b_floats(p.c, p.k) + 15) / 16 * 16;
  prepared->total = alpha * alpha * static_cast<std::size_t>(prepared->one) * sizeof(float);
  prepared->u.reset(static_cast<float*>(::operator new (prepared->total, std::align_val_t{64})));
  // One row of U at a time for all filters: [alpha][K][C] floats of scratch.
  const auto matrix = static_cast<std::size_t>(p.k * p.c);
  std::vector<float> rows(alpha * matrix);
  for (std::size_t i = 0; i < alpha; ++i) {
    for (std::size_t at = 0; at < matrix; ++at) {
      const float* w = filter.w + at * 9;
      const std::size_t k = at / static_cast<std::size_t>(p.c);
      const double scale = filter.scale == nullptr ? 1.0 : static_cast<double>(filter.scale[k]);
      std::array<double, 3> line{};  // row i of G g
      for (std::size_t s = 0; s < 3; ++s)
        for (std::size_t r = 0; r < 3; ++r) line[s] += g[i][r] * static_cast<double>(w[r * 3 + s]);
      for (std::size_t j = 0; j < alpha; ++j)
        rows[j * matrix + at] = static_cast<float>(scale * (line[0] * g[j][0] + line[1] * g[j][1] + line[2] * g[j][2]));
    }
    for (std::size_t j = 0; j < alpha; ++j)
      pack_b(rows.data() + j * matrix, 1, p.c, p.c, p.k,
             prepared->u.get() + static_cast<std::int64_t>(i * alpha + j) * prepared->one);
  }
  return prepared;
}

/// Tiles [begin, end), the block's first being `first`, into rows of the block's V.
void Winograd::transform_in(const ConvRun& run, const Tiles& t, const float* zeros, std::int64_t first,
                            std::int64_t begin, std::int64_t end, float* v) const {
  const ConvProblem& p = run.problem;
  const std::int64_t alpha = m_ + 2;
  std::array<const float*, max_alpha2> pixels;
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const std::int64_t n = tile / (t.down * t.across);
    const std::int64_t top = tile / t.across % t.down * m_ - p.pad_top, left = tile % t.across * m_ - p.pad_left;
    std::size_t at = 0;
    for (std::int64_t h = top; h < top + alpha; ++h) {
      const bool row_inside = h >= 0 && h < p.h;
      const float* line = run.x + (n * p.h + (row_inside ? h : 0)) * p.w * p.c;
      for (std::int64_t w = left; w < left + alpha; ++w)
        pixels[at++] = row_inside && w >= 0 && w < p.w ? line + w * p.c : zeros;
    }
    winograd_input(static_cast<int>(m_), {pixels.data(), p.c, v + (tile - first) * p.c, t.v_stride});
  }
}

void Winograd::transform_out(const ConvRun& run, const Tiles& t, std::int64_t first, std::int64_t begin,
                             std::int64_t end, const float* products) const {
  const ConvProblem& p = run.problem;
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const std::int64_t n = tile / (t.down * t.across);
    const std::int64_t row = tile / t.across % t.down * m_, column = tile % t.across * m_;
    const std::int64_t at = ((n * p.p + row) * p.q + column) * p.k;
    WinogradOutputTile out;
    out.products = products + (tile - first) * p.k;
    out.stride = t.product_stride;
    out.channels = p.k;
    out.rows = std::min(m_, p.p - row);
    out.columns = std::min(m_, p.q - column);
    out.bias = run.bias;
    out.residual = run.residual == nullptr ? nullptr : run.residual + at;
    out.y = run.y + at;
    out.line = p.q * p.k;
    winograd_output(static_cast<int>(m_), out, p.activation);
  }
}

void Winograd::multiply(const ConvRun& run, const Tiles& t, std::int64_t matrix, std::int64_t count, const float* v,
                        float* products) {
  const auto& filter = static_cast<const WinogradFilter&>(*run.filter);
  Gemm call;
  call.m = count;
  call.n = run.problem.k;
  call.k = run.problem.c;
  call.a.base = v + matrix * t.v_stride;
  call.a.stride = run.problem.c;
  call.b = filter.u.get() + matrix * filter.one;
  call.c = products + matrix * t.product_stride;
  call.ldc = run.problem.k;
  // The output transform multiplies the roundings of the sums over C, most of F(6)'s error, by up to 32: short partial
  // sums halve it and more (rms at C = 64, 256, 512: 2.9e-6, 5.8e-6 and more to 2.1e-6, 2.7e-6, 2.6e-6).
  call.partial_length = t.m == 6 ? 32 : 0;
  gemm_serial(call);
}

void Winograd::run(const ConvRun& run) const {
  const ConvProblem& p = run.problem;
  const Tiles t = tiles_of(p, m_);
  auto* zeros = reinterpret_cast<float*>(run.workspace.data());
  std::fill(zeros, zeros + p.c, 0.0F);
  float* blocks = zeros + apart(p.c);

  if (t.shared) {
    float* v = blocks;
    float* products = v + t.alpha2 * t.v_stride;
    // A tile is alpha^2 * C floats to transform: pieces of 2 us and more.
    const std::int64_t grain = std::max<std::int64_t>(1, (32 << 10) / (t.alpha2 * (p.c + p.k)));
    run.pool->parallel_for(t.count, grain, [&](std::int64_t begin, std::int64_t end, int) {
      transform_in(run, t, zeros, 0, begin, end, v);
    });
    run.pool->parallel_for(t.alpha2, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t matrix = begin; matrix < end; ++matrix) multiply(run, t, matrix, t.count, v, products);
    });
    run.pool->parallel_for(t.count, grain, [&](std::int64_t begin, std::int64_t end, int) {
      transform_out(run, t, 0, begin, end, products);
    });
    return;
  }
  const std::int64_t count = (t.count + t.block - 1) / t.block;
  run.pool->parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* v = blocks + worker * t.block_floats();
    float* products = v + t.alpha2 * t.v_stride;
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * t.block, last = std::min(t.count, first + t.block);
      transform_in(run, t, zeros, first, first, last, v);
      for (std::int64_t matrix = 0; matrix < t.alpha2; ++matrix) multiply(run, t, matrix, last - first, v, products);
      transform_out(run, t, first, first, last, products);
    }
  });
}

double Winograd::estimate_us(const ConvProblem& p, const MachineRates& rates) const {
  const Tiles t = tiles_of(p, m_);
  const auto alpha2 = static_cast<double>(t.alpha2), tiles = static_cast<double>(t.count);
  const auto block = static_cast<double>(t.block);
  const double blocks = std::ceil(tiles / block);
  // Products at 88 % of the peak (F(6), with partial sums: 80 %), while U arrives: each block reads all of it. A tile
  // of C costs 7 steps of its loop.
  const auto c = static_cast<double>(p.c);
  const double product = blocks * alpha2 * gemm_issued_flops(t.block, p.k, p.c) * (c + 7) / c /
                         ((m_ == 6 ? 0.8 : 0.88) * rates.flops_per_us);
  // Filters that fit beside much else in L3 come from there, at four times the rate and more (66 GB/s measured): on the
  // second block for certain, and on the first in networks so small that their filters stay from run to run.
  const double u_bytes = alpha2 * 4.0 * c * static_cast<double>(p.k);
  const double u = blocks * u_bytes / (rates.bytes_per_us * (u_bytes <= cached_filter_bytes ? 4 : 1));
  // Transforms: a time for each tile and for each float of V and of the products, fitted to ResNet, VGG, SqueezeNet and
  // CIFAR layers on Zen 3 (2.4 GHz nominal, one thread, L3 shared): within 20 % where the machine was quiet. F(6) is
  // never far ahead of F(4), which is six times as accurate.
  const double tile_us = m_ == 2 ? 0.06 : m_ == 4 ? 0.12 : 0.2;
  const double float_us = m_ == 2 ? 0.00014 : m_ == 4 ? 0.00022 : 0.00038;
  const double transforms = tiles * (tile_us + alpha2 * static_cast<double>(p.c + p.k) * float_us) / rates.threads;
  // Fewer blocks than threads, or an odd one left over.
  const double threads = rates.threads;
  const double idle = t.shared ? 1 : std::ceil(blocks / threads) * threads / blocks;
  return 2 + idle * (std::max(product, u) + 0.3 * std::min(product, u) + transforms);
}

}  // namespace

const ConvAlgorithm& conv_winograd_f2() {
  static const Winograd algorithm(2, "winograd_f2");
  return algorithm;
}
const ConvAlgorithm& conv_winograd_f4() {
  static const Winograd algorithm(4, "winograd_f4");
  return algorithm;
}
const ConvAlgorithm& conv_winograd_f6() {
  static const Winograd algorithm(6, "winograd_f6");
  return algorithm;
}

}  // namespace lenslet

#include "ops/conv/cpu/packed_filter.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/grain.h"
#include "ops/core/sum_tolerance.h"
#include "ops/core/transpose_block.h"

namespace lenslet {
namespace {

// A product of two floats rounds the same as from double, as ConvFilter::weight.
void scale_columns(const float* scale, std::int64_t cols, float* packed, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row, packed += width)
    for (std::int64_t i = 0; i < cols; ++i) packed[i] *= scale[i];
}

}  // namespace

PackedFilter::PackedFilter(const ConvProblem& p, std::int64_t parts)
    : parts_(parts),
      part_floats_((packed_b_floats(p.group_c() * p.r * p.s / parts, p.group_k()) + 15) / 16 * 16),
      groups_(p.groups) {}

std::string PackedFilter::form() const { return fmt::format("packed for {} columns", gemm_tile_cols()); }

std::int64_t PackedFilter::pieces(const ConvProblem& p) const {
  return p.groups * ((p.group_k() + gemm_tile_cols() - 1) / gemm_tile_cols());
}

std::int64_t PackedFilter::scratch_floats(const ConvProblem& p) {
  const std::int64_t taps = p.r * p.s;
  return taps == 1 ? 0 : std::min(gemm_tile_cols(), p.group_k()) * p.group_c() * taps;
}

/// Packs one panel of a group's filters.
void PackedFilter::pack_piece(const ConvProblem& p, const ConvFilter& filter, std::int64_t piece, float* to,
                              float* scratch) const {
  const std::int64_t c = p.group_c(), k = p.group_k(), taps = p.r * p.s, gemm_k = c * taps, of_part = gemm_k / parts_;
  const std::int64_t panel = gemm_tile_cols(), panels = (k + panel - 1) / panel;
  const std::int64_t g = piece / panels, first = piece % panels * panel;
  float* const of_group = to + g * parts_ * part_floats_;
  const std::int64_t out = g * k + first, cols = std::min(panel, k - first), width = packed_b_floats(1, cols);
  const float* rows = filter.elements<float>() + out * gemm_k;
  if (taps > 1) {
    for (std::int64_t i = 0; i < cols; ++i)
      transpose_block(sizeof(float), rows + i * gemm_k, taps, scratch + i * gemm_k, c, c, taps);
    rows = scratch;
  }
  for (std::int64_t part = 0; part < parts_; ++part) {
    float* const of_this = of_group + part * part_floats_;
    float* const packed = of_this + first * of_part;
    pack_b(rows + part * of_part, 1, gemm_k, of_part, cols, packed);
    if (filter.scale != nullptr) scale_columns(filter.scale + out, cols, packed, of_part, width);
    if (first + panel >= k) std::fill(of_this + packed_b_floats(of_part, k), of_this + part_floats_, 0.0F);
  }
}

void PackedFilter::pack(const ConvProblem& p, const ConvFilter& filter, float* to) const {
  std::vector<float> scratch(static_cast<std::size_t>(scratch_floats(p)));
  for (std::int64_t piece = 0; piece < pieces(p); ++piece) pack_piece(p, filter, piece, to, scratch.data());
}

void PackedConv::pack(const ConvProblem& p, const ConvRun& run, std::span<std::byte> to, std::byte* scratch) const {
  const PackedFilter packed(p);
  auto* const floats_of_scratch = reinterpret_cast<float*>(scratch);
  const ConvFilter filter{.w = run.filter<float>(), .gemm_k = p.group_c() * p.r * p.s};
  const std::int64_t floats = filter.gemm_k * std::min(gemm_tile_cols(), p.group_k());
  run.pool->parallel_for(packed.pieces(p), 1 + elementwise_grain / (floats + 1),
                         [&](std::int64_t begin, std::int64_t end, int worker) {
                           for (std::int64_t piece = begin; piece < end; ++piece)
                             packed.pack_piece(p, filter, piece, as_floats(to).data(),
                                               floats_of_scratch + worker * PackedFilter::scratch_floats(p));
                         });
}

std::vector<std::int64_t> window_segments(const ConvProblem& p) {
  const bool adjacent = p.groups == 1 && p.dilation_w == 1;
  std::vector<std::int64_t> segments;
  for (std::int64_t r = 0; r < p.r; ++r)
    for (std::int64_t s = 0; s < (adjacent ? 1 : p.s); ++s)
      segments.push_back((r * p.dilation_h * p.w + s * p.dilation_w) * p.c);
  return segments;
}

Gemm group_product(const ConvProblem& p, const ConvRun& run, const PackedFilter& filter, std::int64_t group,
                   std::int64_t first, std::int64_t rows) {
  const std::int64_t channel = group * p.group_k();
  Gemm g;
  g.m = rows;
  g.n = p.group_k();
  g.k = p.group_c() * p.r * p.s;
  g.b = filter.group(run.filter<float>(), group);
  g.c = run.y<float>() + first * run.y_pixel + channel;
  g.ldc = run.y_pixel;
  g.bias = run.bias<float>() == nullptr ? nullptr : run.bias<float>() + channel;
  g.residual = run.residual<float>() == nullptr ? nullptr : run.residual<float>() + first * p.k + channel;
  g.activation = p.activation;
  return g;
}

GemmRows windows(const ConvProblem& p, const float* x) {
  GemmRows a;
  a.base = x;
  a.stride = p.stride_w * p.c;
  if (p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1) return a;  // one line
  a.width = p.q;
  a.line_stride = p.stride_h * p.w * p.c;
  a.height = p.p;
  a.image_stride = p.h * p.w * p.c;
  return a;
}

Gemm group_product(const ConvProblem& p, const ConvRun& run, const PackedFilter& filter, std::int64_t group,
                   const ImageRows& rows) {
  const std::int64_t first = (rows.image * p.p + rows.rows.begin) * p.q;
  Gemm g = group_product(p, run, filter, group, first, rows.rows.count() * p.q);
  g.c = rows.y.at(rows.rows.begin) + group * p.group_k();
  g.a = windows(p, rows.x.at(rows.rows.begin * p.stride_h) + group * p.group_c());
  g.a.height = 0;  // one image
  return g;
}

double packed_tolerance(const ConvProblem& p) { return sum_tolerance(p.group_c() * p.r * p.s); }

double gemm_estimate_us(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t segments, std::int64_t groups,
                        const DeviceProfile& rates) {
  // The kernel reaches 0.93 of peak; starting and storing a tile cost 7 k-steps, a segment 1.5.
  const auto steps = static_cast<double>(k);
  const double overhead = (steps + 7 + 1.5 * static_cast<double>(segments - 1)) / std::max(steps, 1.0);
  const bool shared = gemm_pieces(m, n, k, rates.units) > 1;
  const double flops_per_us = shared ? rates.fp32_flops_per_us : rates.fp32_flops_per_us / rates.units;
  double compute = gemm_issued_flops(m, n, k) * overhead * static_cast<double>(groups) / (0.93 * flops_per_us);
  // Tiles with partial vectors go through a buffer, except with AVX-512.
  const std::int64_t lanes = gemm_tile_cols() / 2;
  if (lanes < 16 && n % lanes != 0) {
    const std::int64_t tiles = (m + gemm_tile_rows() - 1) / gemm_tile_rows() * groups;
    compute += 0.06 * static_cast<double>(tiles) / rates.units;
  }
  // The first pass over B waits for memory; half of that is hidden by FMAs.
  const double b_bytes = 4.0 * static_cast<double>(groups) * static_cast<double>(k) * static_cast<double>(n);
  const double fork = shared ? 3.0 * static_cast<double>(groups) : 0.0;
  return compute + 0.5 * b_bytes / rates.bytes_per_us + fork;
}

}  // namespace lenslet

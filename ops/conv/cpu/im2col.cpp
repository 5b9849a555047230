// Columns times filters. One row of the column matrix is one output pixel's window, [R][S][C/groups] out of the NHWC
// input with zeros where the window leaves the image; the product with the filters [R*S*C/groups][K/groups] is the
// output as it lies in memory. Where the input itself has that form (1x1 without pads, any stride) nothing is copied.

#include <algorithm>
#include <cstring>

#include "ops/conv/cpu/algorithms.h"
#include "ops/conv/cpu/packed_filter.h"

namespace lenslet {
namespace {

/// Rows of columns that one thread makes and multiplies at a time. They should fit L2 beside the filters that pass
/// (half of 512 KiB), but filters pass once for each chunk, from L3: below 48 rows that costs more than it saves. 192
/// rows are one block of gemm().
constexpr std::int64_t chunk_bytes = 256 << 10;
constexpr std::int64_t min_chunk_rows = 48, max_chunk_rows = 192;
/// With few output pixels the threads build all columns together and then share the product by output channels, so
/// that each reads only its part of the filters: as long as all columns stay below this.
constexpr std::int64_t whole_bytes = 4 << 20;

bool input_is_columns(const ConvProblem& p) { return p.r == 1 && p.s == 1 && !p.padded(); }

struct Plan {
  std::int64_t pixels, terms;
  bool whole;         ///< all columns at once
  std::int64_t rows;  ///< of a chunk
};

Plan plan(const ConvProblem& p, int threads) {
  Plan plan{};
  plan.pixels = p.n * p.p * p.q;
  plan.terms = p.group_c() * p.r * p.s;
  const std::int64_t row_bytes = plan.terms * static_cast<std::int64_t>(sizeof(float));
  plan.rows = std::clamp(chunk_bytes / row_bytes / 12 * 12, min_chunk_rows, max_chunk_rows);
  plan.rows = std::min(plan.rows, plan.pixels);
  plan.whole = threads > 1 && plan.pixels <= whole_bytes / row_bytes && plan.pixels < 2 * threads * plan.rows;
  if (plan.whole) plan.rows = plan.pixels;
  return plan;
}

/// Column rows of output pixels [first, first + count), all images' pixels counted through.
void fill_columns(const ConvProblem& p, const float* x, std::int64_t group, std::int64_t first, std::int64_t count,
                  float* columns) {
  const std::int64_t c = p.group_c();
  const auto bytes = [](std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
  // Taps of one line that lie side by side in the input are copied together.
  const bool adjacent = p.dilation_w == 1 && p.groups == 1;
  std::int64_t q = first % p.q, line = first / p.q % p.p, image = first / (p.q * p.p);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t left = q * p.stride_w - p.pad_left;
    for (std::int64_t r = 0; r < p.r; ++r, columns += p.s * c) {
      const std::int64_t h = line * p.stride_h - p.pad_top + r * p.dilation_h;
      if (h < 0 || h >= p.h) {
        std::fill(columns, columns + p.s * c, 0.0F);
        continue;
      }
      const float* const from = x + (image * p.h + h) * p.w * p.c + group * c;
      if (adjacent) {
        const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, p.s), end = std::clamp(p.w - left, begin, p.s);
        std::fill(columns, columns + begin * c, 0.0F);
        if (begin < end) std::memcpy(columns + begin * c, from + (left + begin) * c, bytes((end - begin) * c));
        std::fill(columns + end * c, columns + p.s * c, 0.0F);
        continue;
      }
      for (std::int64_t s = 0; s < p.s; ++s) {
        const std::int64_t w = left + s * p.dilation_w;
        if (w < 0 || w >= p.w)
          std::fill(columns + s * c, columns + (s + 1) * c, 0.0F);
        else
          std::memcpy(columns + s * c, from + w * p.c, bytes(c));
      }
    }
    if (++q < p.q) continue;
    q = 0;
    if (++line < p.p) continue;
    line = 0;
    ++image;
  }
}

class Im2col final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "im2col"; }
  Format format() const override { return formats::nhwc; }
  std::optional<std::string> refuse(const ConvProblem& p) const override {
    const std::int64_t row_bytes = p.group_c() * p.r * p.s * static_cast<std::int64_t>(sizeof(float));
    if (!input_is_columns(p) && min_chunk_rows * row_bytes > max_workspace_a_thread)
      return "the columns of 48 output pixels exceed 64 MiB";
    return std::nullopt;
  }
  double tolerance(const ConvProblem& problem) const override { return packed_tolerance(problem); }

  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    const std::int64_t pixels = p.n * p.p * p.q, terms = p.group_c() * p.r * p.s;
    const double product = gemm_estimate_us(pixels, p.group_k(), terms, 1, p.groups, rates);
    if (input_is_columns(p)) return product;
    // Columns are written to L2 in runs; a run costs its call, a float its copy.
    const bool adjacent = p.dilation_w == 1 && p.groups == 1;
    const auto runs = static_cast<double>(pixels * p.groups) * static_cast<double>(p.r * (adjacent ? 1 : p.s));
    const auto floats = static_cast<double>(pixels) * static_cast<double>(p.groups * terms);
    return product + (runs * run_us + floats * float_us) / rates.threads;
  }

  std::size_t workspace_bytes(const ConvProblem& p, int threads) const override {
    if (input_is_columns(p)) return 0;
    const Plan chunks = plan(p, threads);
    const std::int64_t floats = chunks.rows * chunks.terms * (chunks.whole ? 1 : threads);
    return static_cast<std::size_t>(floats) * sizeof(float);
  }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const override {
    return std::make_unique<PackedFilter>(problem, filter);
  }

  void run(const ConvRun& run) const override {
    const ConvProblem& p = run.problem;
    const auto& filter = static_cast<const PackedFilter&>(*run.filter);
    if (input_is_columns(p)) return run_on_input(run, filter);
    const Plan chunks = plan(p, run.pool->threads());
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    if (chunks.whole) {
      for (std::int64_t g = 0; g < p.groups; ++g) {
        run.pool->parallel_for(chunks.pixels, 16, [&](std::int64_t begin, std::int64_t end, int) {
          fill_columns(p, run.x, g, begin, end - begin, workspace + begin * chunks.terms);
        });
        Gemm call = group_product(run, filter, g, 0, chunks.pixels);
        call.a.base = workspace;
        call.a.stride = chunks.terms;
        gemm(call, *run.pool);
      }
      return;
    }
    const std::int64_t count = (chunks.pixels + chunks.rows - 1) / chunks.rows;
    run.pool->parallel_for(count * p.groups, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const columns = workspace + worker * chunks.rows * chunks.terms;
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t group = piece / count, first = piece % count * chunks.rows;
        const std::int64_t rows = std::min(chunks.rows, chunks.pixels - first);
        fill_columns(p, run.x, group, first, rows, columns);
        Gemm call = group_product(run, filter, group, first, rows);
        call.a.base = columns;
        call.a.stride = chunks.terms;
        gemm_serial(call);
      }
    });
  }

 private:
  static constexpr std::int64_t max_workspace_a_thread = 64 << 20;
  static constexpr double run_us = 0.006, float_us = 0.00012;

  static void run_on_input(const ConvRun& run, const PackedFilter& filter) {
    const ConvProblem& p = run.problem;
    for (std::int64_t g = 0; g < p.groups; ++g) {
      Gemm call = group_product(run, filter, g, 0, p.n * p.p * p.q);
      call.a.base = run.x + g * p.group_c();
      call.a.stride = p.stride_w * p.c;
      if (p.stride_h != 1 || p.stride_w != 1) {
        call.a.width = p.q;
        call.a.line_stride = p.stride_h * p.w * p.c;
        call.a.height = p.p;
        call.a.image_stride = p.h * p.w * p.c;
      }
      gemm(call, *run.pool);
    }
  }
};

}  // namespace

const ConvAlgorithm& conv_im2col() {
  static const Im2col algorithm;
  return algorithm;
}

}  // namespace lenslet

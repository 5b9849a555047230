// im2col and GEMM, NHWC. A row of the column matrix is one output pixel's window, [R][S][C/groups] with zeros outside
// of the image; times the filters [R*S*C/groups][K/groups] it is the output in place. Inputs that already have that
// form (1x1 without pads, any stride) are not copied.

#include <algorithm>
#include <cstring>

#include "ops/conv/cpu/packed_filter.h"

namespace lenslet {
namespace {

/// Columns that a thread builds and multiplies at a time. They should fit L2 beside the filters (half of 512 KiB); but
/// each chunk reads all filters, from L3: below 48 rows that costs more. 192 rows are one block of gemm().
constexpr std::int64_t chunk_bytes = 256 << 10;
constexpr std::int64_t min_chunk_rows = 48, max_chunk_rows = 192;
/// With few output pixels the threads build all columns together, then split the GEMM by output channels, so that each
/// reads only its part of the filters: while all columns are below this.
constexpr std::int64_t whole_bytes = 4 << 20;

bool input_is_columns(const ConvProblem& p) { return p.r == 1 && p.s == 1 && !p.padded(); }

/// Chunking of the columns.
struct Columns {
  std::int64_t pixels, gemm_k;
  bool whole = false;     ///< all columns at once
  std::int64_t rows = 0;  ///< of a chunk

  explicit Columns(const ConvProblem& p) : pixels(p.n * p.p * p.q), gemm_k(p.group_c() * p.r * p.s) {}
  /// One chunk a thread; nothing where the input is its own columns.
  std::size_t workspace_bytes(int threads) const {
    return static_cast<std::size_t>(rows * gemm_k * (whole ? 1 : threads)) * sizeof(float);
  }
};

/// In chunks; then whole, where that is small enough.
std::vector<Columns> all_columns(const ConvProblem& p) {
  Columns columns(p);
  const std::int64_t row_bytes = columns.gemm_k * static_cast<std::int64_t>(sizeof(float));
  columns.rows = std::clamp(chunk_bytes / row_bytes / 12 * 12, min_chunk_rows, max_chunk_rows);
  columns.rows = std::min(columns.rows, columns.pixels);
  std::vector<Columns> all{columns};
  columns.whole = true;
  columns.rows = columns.pixels;
  if (columns.pixels <= whole_bytes / row_bytes) all.push_back(columns);
  return all;
}

Columns plan_columns(const ConvProblem& p, int threads) {
  const std::vector<Columns> all = all_columns(p);
  return threads > 1 && p.n * p.p * p.q < 2 * threads * all.front().rows ? all.back() : all.front();
}

/// Columns of output pixels [first, first + count), counted over all images.
void fill_columns(const ConvProblem& p, const float* x, std::int64_t group, std::int64_t first, std::int64_t count,
                  float* columns) {
  const std::int64_t c = p.group_c();
  const auto bytes = [](std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
  // Taps of a line that are adjacent in the input are copied together.
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

class BoundIm2col final : public BoundRowConv {
 public:
  BoundIm2col(const ConvProblem& p, const Columns& columns, int threads)
      : BoundRowConv(p, columns.workspace_bytes(threads)), filter_(p), columns_(columns) {}

 private:
  void compute(const ConvRun& run) const override {
    if (input_is_columns(problem)) return run_on_input(run);
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    if (columns_.whole) return run_whole(run, workspace);
    const std::int64_t count = (columns_.pixels + columns_.rows - 1) / columns_.rows;
    run.pool->parallel_for(count * problem.groups, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const columns = workspace + worker * columns_.rows * columns_.gemm_k;
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t group = piece / count, first = piece % count * columns_.rows;
        const std::int64_t rows = std::min(columns_.rows, columns_.pixels - first);
        fill_columns(problem, run.x<float>(), group, first, rows, columns);
        Gemm call = group_product(problem, run, filter_, group, first, rows);
        call.a.base = columns;
        call.a.stride = columns_.gemm_k;
        gemm_serial(call);
      }
    });
  }

  void run_whole(const ConvRun& run, float* columns) const {
    for (std::int64_t g = 0; g < problem.groups; ++g) {
      run.pool->parallel_for(columns_.pixels, 16, [&](std::int64_t begin, std::int64_t end, int) {
        fill_columns(problem, run.x<float>(), g, begin, end - begin, columns + begin * columns_.gemm_k);
      });
      Gemm call = group_product(problem, run, filter_, g, 0, columns_.pixels);
      call.a.base = columns;
      call.a.stride = columns_.gemm_k;
      gemm(call, *run.pool);
    }
  }

  void run_on_input(const ConvRun& run) const {
    const ConvProblem& p = problem;
    for (std::int64_t g = 0; g < p.groups; ++g) {
      Gemm call = group_product(p, run, filter_, g, 0, p.n * p.p * p.q);
      call.a = windows(p, run.x<float>() + g * p.group_c());
      gemm(call, *run.pool);
    }
  }

  bool has_rows() const override { return input_is_columns(problem); }
  void compute_rows(const ConvRun& run, const ImageRows& rows) const override {
    for (std::int64_t g = 0; g < problem.groups; ++g) gemm_serial(group_product(problem, run, filter_, g, rows));
  }

  PackedFilter filter_;
  Columns columns_;
};

class Im2col final : public PackedConv {
 public:
  std::string_view name() const override { return "im2col"; }

 private:
  static constexpr std::int64_t max_workspace_a_thread = 64 << 20;
  static constexpr double run_us = 0.006, float_us = 0.00012;

  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    const std::int64_t row_bytes = p.group_c() * p.r * p.s * static_cast<std::int64_t>(sizeof(float));
    if (!input_is_columns(p) && min_chunk_rows * row_bytes > max_workspace_a_thread)
      return "the columns of 48 output pixels exceed 64 MiB";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, plan_columns(p, target.device.units), target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    std::vector<ConvCandidate> candidates;
    for (const Columns& columns : all_columns(p)) candidates.push_back(candidate_of(p, columns, target));
    return candidates;
  }

  static ConvCandidate candidate_of(const ConvProblem& p, const Columns& columns, const Target& target) {
    const DeviceProfile& rates = target.device;
    const std::int64_t pixels = p.n * p.p * p.q, gemm_k = p.group_c() * p.r * p.s;
    ConvCandidate candidate;
    candidate.pitched = true;
    candidate.tolerance = packed_tolerance(p);
    candidate.estimated_us = gemm_estimate_us(pixels, p.group_k(), gemm_k, 1, p.groups, rates);
    if (input_is_columns(p)) return candidate;
    // Columns are written to L2 in runs: a cost per run and per float.
    const bool adjacent = p.dilation_w == 1 && p.groups == 1;
    const auto runs = static_cast<double>(pixels * p.groups) * static_cast<double>(p.r * (adjacent ? 1 : p.s));
    const auto floats = static_cast<double>(pixels) * static_cast<double>(p.groups * gemm_k);
    candidate.estimated_us += (runs * run_us + floats * float_us) / rates.units;
    candidate.config = ConfigWriter().add("rows", columns.rows).add("whole", columns.whole).str();
    return candidate;
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    Columns columns(p);
    ConfigReader reader(config);
    if (!input_is_columns(p)) {
      columns.rows = reader.integer("rows", 1, columns.pixels);
      columns.whole = reader.flag("whole");
      if (columns.whole && columns.rows != columns.pixels) reader.refuse("whole columns are all rows");
    }
    reader.finish();
    return std::make_unique<BoundIm2col>(p, columns, device.units);
  }
};

}  // namespace

const Kernel& conv_im2col() {
  static const Im2col algorithm;
  return algorithm;
}

}  // namespace lenslet

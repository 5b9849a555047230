// Filters times columns, NCHW, of images of one line: 1-D convolutions, and what reads each place by itself (1x1x1). A
// column of the right matrix is one output's window, [C/groups][S] with zeros where it leaves the line; the product of
// the filters as loaded [K/groups][C/groups*S] with it is the output as it lies in memory.

#include <algorithm>

#include "ops/conv/cpu/packed_filter.h"

namespace lenslet {
namespace {

/// Columns that one thread puts together and multiplies at a time: so many that they stay in L2 beside their sums.
std::int64_t chunk_columns(const ConvProblem& p) {
  constexpr std::int64_t chunk_floats = 32 << 10, most_columns = 512;
  const std::int64_t tile = gemm_tile_cols(), columns = chunk_floats / (p.group_c() * p.s);
  return std::clamp(std::min(columns, p.q) / tile * tile, tile, most_columns);
}

/// Lines are as far apart as one is long, and the machine's prefetchers begin anew with each.
template <bool for_writing>
void fetch(const float* line, std::int64_t count) {
  for (std::int64_t j = 0; j < count; j += 16) __builtin_prefetch(line + j, for_writing);
}

/// columns[i][j] of a line, i counting s: its window of output first + j.
void fill_columns(const ConvProblem& p, const float* line, std::int64_t first, std::int64_t count, float* columns) {
  for (std::int64_t s = 0; s < p.s; ++s, columns += count) {
    const std::int64_t left = first * p.stride_w - p.pad_left + s * p.dilation_w, step = p.stride_w;
    const std::int64_t begin = left < 0 ? std::min(count, (-left + step - 1) / step) : 0;
    const std::int64_t end = left < p.w ? std::clamp((p.w - 1 - left) / step + 1, begin, count) : begin;
    std::fill(columns, columns + begin, 0.0F);
    if (step == 1)
      std::copy(line + left + begin, line + left + end, columns + begin);
    else
      for (std::int64_t j = begin; j < end; ++j) columns[j] = line[left + j * step];
    std::fill(columns + end, columns + count, 0.0F);
  }
}

class BoundOneLine final : public BoundConv {
 public:
  BoundOneLine(const ConvProblem& p, int threads)
      : BoundConv(p, static_cast<std::size_t>(threads * scratch_floats(p)) * sizeof(float)) {}

 private:
  static std::int64_t terms(const ConvProblem& p) { return p.group_c() * p.s; }
  static std::int64_t scratch_floats(const ConvProblem& p) {
    const std::int64_t columns = chunk_columns(p);
    return (packed_b_floats(terms(p), columns) + std::max(terms(p), p.group_k()) * columns + 15) / 16 * 16;
  }

  void compute(const ConvRun& run) const override {
    const ConvProblem& p = problem;
    const std::int64_t most = chunk_columns(p), chunks = (p.q + most - 1) / most;
    run.pool->parallel_for(p.n * p.groups * chunks, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const packed = reinterpret_cast<float*>(run.workspace.data()) + worker * scratch_floats(p);
      float* const columns = packed + packed_b_floats(terms(p), most);
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t lines = item / chunks, first = item % chunks * most, count = std::min(most, p.q - first);
        const float* const x = run.x + lines * p.group_c() * p.w;
        for (std::int64_t c = 0; c < p.group_c(); ++c) {
          if (c + 1 < p.group_c())
            fetch<false>(x + (c + 1) * p.w + first * p.stride_w, std::min(count * p.stride_w, p.w));
          fill_columns(p, x + c * p.w, first, count, columns + c * p.s * count);
        }
        pack_b(columns, count, 1, terms(p), count, packed);
        multiply(run, lines, first, count, packed, columns);
      }
    });
  }

  /// The product goes to `sums` first: lines of y lie far apart, and are written a piece at a time.
  void multiply(const ConvRun& run, std::int64_t lines, std::int64_t first, std::int64_t count, const float* packed,
                float* sums) const {
    const ConvProblem& p = problem;
    const std::int64_t k = p.group_k(), filter = lines % p.groups * k, at = lines * k * p.q + first;
    Gemm g{.m = k,
           .n = count,
           .k = terms(p),
           .a = {.base = run.filter + filter * terms(p), .stride = terms(p)},
           .b = packed,
           .c = sums,
           .ldc = count,
           .activation = p.activation};
    if (run.bias != nullptr || run.residual != nullptr) {
      g.accumulate = true;
      for (std::int64_t i = 0; i < k; ++i) {
        const float bias = run.bias == nullptr ? 0.0F : run.bias[filter + i];
        for (std::int64_t j = 0; j < count; ++j)
          sums[i * count + j] = run.residual == nullptr ? bias : bias + run.residual[at + i * p.q + j];
      }
    }
    gemm_serial(g);
    for (std::int64_t i = 0; i < k; ++i) {
      if (i + 1 < k) fetch<true>(run.y + at + (i + 1) * p.q, count);
      std::copy(sums + i * count, sums + (i + 1) * count, run.y + at + i * p.q);
    }
  }
};

class OneLine final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "one_line"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  bool takes_anything() const override { return true; }
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    if (p.h != 1 || p.r != 1 || p.p != 1) return "its images have more than one line";
    if (p.pad_top != 0) return "its one line is padding";
    constexpr std::int64_t most_floats = 16 << 20;
    if (p.group_c() * p.s > most_floats / gemm_tile_cols()) return "the columns of a panel exceed 64 MiB";
    return std::nullopt;
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    Plan plan;
    plan.format = formats::nchw;
    plan.tolerance = packed_tolerance(p);
    const std::int64_t terms = p.group_c() * p.s;
    plan.estimated_us = gemm_estimate_us(p.group_k(), p.n * p.q, terms, 1, p.groups, rates);
    // Each column is written where it is put together and where it is packed, each sum once more.
    constexpr double float_us = 0.00012;
    const double floats = static_cast<double>(p.n * p.q) * static_cast<double>(2 * terms * p.groups + p.k);
    plan.estimated_us += floats * float_us / rates.units;
    // Filters wait for memory as B does, of which gemm_estimate_us knows.
    plan.estimated_us += 0.5 * 4 * static_cast<double>(p.k) * static_cast<double>(terms) / rates.bytes_per_us;
    return plan;
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundOneLine>(p, device.units);
  }
};

}  // namespace

const Kernel& conv_one_line() {
  static const OneLine algorithm;
  return algorithm;
}

}  // namespace lenslet

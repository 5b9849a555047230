// im2col and GEMM, NCHW: for 1-D convolutions, 1x1x1, and computed filters, which it reads unpacked (packing the
// columns of few pixels is cheaper). A column is one output's window, [C/groups][R][S] with zeros outside of the image;
// filters as loaded, [K/groups][C/groups*R*S], times columns are the output in place.

#include <algorithm>
#include <cstring>

#include "ops/conv/cpu/packed_filter.h"
#include "ops/core/grain.h"

namespace lenslet {
namespace {

std::int64_t gemm_k(const ConvProblem& p) { return p.group_c() * p.r * p.s; }
std::int64_t pixels(const ConvProblem& p) { return p.p * p.q; }

/// Columns that are packed and multiplied at a time. They and their results fit L2. Larger filters get more columns,
/// since each chunk reads all filters.
std::int64_t chunk_columns(const ConvProblem& p) {
  constexpr std::int64_t least_floats = 32 << 10, most_floats = 512 << 10, most_columns = 512;
  const std::int64_t tile = gemm_tile_cols(), filters = p.group_k() * gemm_k(p);
  const std::int64_t columns = std::clamp(filters / 4, least_floats, most_floats) / gemm_k(p);
  return std::clamp(std::min(columns, pixels(p) + tile - 1) / tile * tile, tile, most_columns);
}

/// Whether x already has the form of the columns.
bool input_is_columns(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && !p.padded();
}

/// Short lines are copied from a padded image by whole vectors: bounds checks would cost more than the copy.
constexpr std::int64_t vector_floats = 16, short_line = 64, most_padded_floats = 64 << 10;
std::int64_t padded_width(const ConvProblem& p) { return p.w + p.pad_left + p.pad_right; }
/// Most lines of the padded image that `count` outputs read; a vector of slack follows them.
std::int64_t padded_lines(const ConvProblem& p, std::int64_t count) {
  return (std::min(p.p, (count + p.q - 2) / p.q + 1) - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
}
std::int64_t padded_floats(const ConvProblem& p) {
  if (input_is_columns(p) || p.h == 1 || p.q > short_line) return 0;
  const std::int64_t floats = padded_lines(p, chunk_columns(p)) * padded_width(p) + vector_floats;
  return floats <= most_padded_floats ? floats : 0;
}

/// Copies lines [top, top + lines) of a plane with pads.
void pad_lines(const ConvProblem& p, const float* plane, std::int64_t top, std::int64_t lines, float* to) {
  const std::int64_t width = padded_width(p);
  for (std::int64_t i = 0; i < lines; ++i, to += width) {
    std::fill(to, to + width, 0.0F);
    const std::int64_t h = top + i - p.pad_top;
    if (h >= 0 && h < p.h) std::copy(plane + h * p.w, plane + (h + 1) * p.w, to + p.pad_left);
  }
}

/// Calls f(line, first column, count, offset among all) for the pieces of lines that outputs [first, first + count)
/// cover.
template <typename F>
void for_each_line(const ConvProblem& p, std::int64_t first, std::int64_t count, const F& f) {
  std::int64_t line = first / p.q, q = first % p.q;
  for (std::int64_t done = 0, run = 0; done < count; done += run, ++line, q = 0) {
    run = std::min(p.q - q, count - done);
    f(line, q, run, done);
  }
}

/// columns[i][j] of a plane, i counting r and s: output first + j's window. `padded` begins at the first line that
/// output `first` reads.
void fill_short_lines(const ConvProblem& p, const float* padded, std::int64_t first, std::int64_t count,
                      float* columns) {
  const std::int64_t width = padded_width(p), top = first / p.q;
  for (std::int64_t r = 0; r < p.r; ++r)
    for (std::int64_t s = 0; s < p.s; ++s, columns += count)
      for_each_line(p, first, count, [&](std::int64_t line, std::int64_t q, std::int64_t run, std::int64_t at) {
        const float* const from =
            padded + ((line - top) * p.stride_h + r * p.dilation_h) * width + q * p.stride_w + s * p.dilation_w;
        float* const to = columns + at;
        if (p.stride_w == 1 && at + run + vector_floats <= count)
          for (std::int64_t j = 0; j < run; j += vector_floats)
            std::memcpy(to + j, from + j, vector_floats * sizeof(float));
        else
          for (std::int64_t j = 0; j < run; ++j) to[j] = from[j * p.stride_w];
      });
}

/// Prefetches: column rows are far apart, so that hardware prefetchers restart with each.
template <bool for_writing>
void fetch(const float* line, std::int64_t count) {
  for (std::int64_t j = 0; j < count; j += 16) __builtin_prefetch(line + j, for_writing);
}

/// The same from a plane without pads.
void fill_columns(const ConvProblem& p, const float* plane, std::int64_t first, std::int64_t count, float* columns) {
  for (std::int64_t r = 0; r < p.r; ++r)
    for (std::int64_t s = 0; s < p.s; ++s, columns += count)
      for_each_line(p, first, count, [&](std::int64_t line, std::int64_t q, std::int64_t run, std::int64_t at) {
        float* const to = columns + at;
        const std::int64_t h = line * p.stride_h - p.pad_top + r * p.dilation_h;
        const std::int64_t left = q * p.stride_w - p.pad_left + s * p.dilation_w, step = p.stride_w;
        const bool inside = h >= 0 && h < p.h && left < p.w;
        const std::int64_t begin = left < 0 ? std::min(run, (-left + step - 1) / step) : 0;
        const std::int64_t end = inside ? std::clamp((p.w - 1 - left) / step + 1, begin, run) : begin;
        std::fill(to, to + begin, 0.0F);
        const float* const from = plane + h * p.w + left;
        if (step == 1 && begin < end)
          std::copy(from + begin, from + end, to + begin);
        else
          for (std::int64_t j = begin; j < end; ++j) to[j] = from[j * step];
        std::fill(to + end, to + run, 0.0F);
      });
}

class BoundIm2colNchw final : public BoundConv {
 public:
  BoundIm2colNchw(const ConvProblem& p, int threads)
      : BoundConv(p, static_cast<std::size_t>(threads * own_floats(p)) * sizeof(float)) {}

 private:
  static std::int64_t round_up(std::int64_t floats) { return (floats + 15) / 16 * 16; }
  /// Of a thread: packed columns, columns or results, some padded lines.
  static std::int64_t columns_at(const ConvProblem& p) { return packed_b_floats(gemm_k(p), chunk_columns(p)); }
  static std::int64_t padded_at(const ConvProblem& p) {
    const std::int64_t widest = std::max(input_is_columns(p) ? 0 : gemm_k(p), p.group_k());
    return columns_at(p) + round_up(widest * chunk_columns(p));
  }
  static std::int64_t own_floats(const ConvProblem& p) { return padded_at(p) + round_up(padded_floats(p)); }

  /// One chunk a thread or, with few chunks, all threads together.
  void compute(const ConvRun& run) const override {
    const std::int64_t chunks = (pixels(problem) + chunk_columns(problem) - 1) / chunk_columns(problem);
    const std::int64_t count = problem.n * problem.groups * chunks;
    if (count < 2 * run.pool->threads()) {
      for (std::int64_t i = 0; i < count; ++i) compute_chunk(run, i / chunks, i % chunks, 0, run.pool);
      return;
    }
    run.pool->parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) compute_chunk(run, i / chunks, i % chunks, worker, nullptr);
    });
  }

  void compute_chunk(const ConvRun& run, std::int64_t planes, std::int64_t chunk, int worker, ThreadPool* pool) const {
    const ConvProblem& p = problem;
    const std::int64_t most = chunk_columns(p), first = chunk * most, count = std::min(most, pixels(p) - first);
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    float* const packed = workspace + worker * own_floats(p);
    float* const columns = packed + columns_at(p);
    const float* const x = run.x<float>() + planes * p.group_c() * p.h * p.w;
    const auto fill = [&](std::int64_t begin, std::int64_t end, int filler) {
      for (std::int64_t c = begin; c < end; ++c) {
        const float* const plane = x + c * p.h * p.w;
        float* const to = columns + c * p.r * p.s * count;
        if (padded_floats(p) == 0) {
          if (p.h == 1 && c + 1 < end)
            fetch<false>(plane + p.w + first * p.stride_w, std::min(count * p.stride_w, p.w));
          fill_columns(p, plane, first, count, to);
          continue;
        }
        float* const padded = workspace + filler * own_floats(p) + padded_at(p);
        const std::int64_t top = first / p.q, bottom = (first + count - 1) / p.q;
        pad_lines(p, plane, top * p.stride_h, (bottom - top) * p.stride_h + (p.r - 1) * p.dilation_h + 1, padded);
        fill_short_lines(p, padded, first, count, to);
      }
    };
    if (input_is_columns(p)) {
      pack_b(x + first, pixels(p), 1, gemm_k(p), count, packed);
    } else {
      if (pool != nullptr)
        pool->parallel_for(p.group_c(), 1 + elementwise_grain / (p.r * p.s * count), fill);
      else
        fill(0, p.group_c(), worker);
      pack_b(columns, count, 1, gemm_k(p), count, packed);
    }
    multiply(run, planes, first, count, packed, columns, pool);
  }

  /// With several chunks results go to `sums` first: lines of y are far apart and are written in pieces.
  void multiply(const ConvRun& run, std::int64_t planes, std::int64_t first, std::int64_t count, const float* packed,
                float* sums, ThreadPool* pool) const {
    const ConvProblem& p = problem;
    const std::int64_t k = p.group_k(), filter = planes % p.groups * k, ldy = pixels(p), at = planes * k * ldy + first;
    const bool whole = count == ldy;
    if (whole) sums = run.y<float>() + at;
    Gemm g{.m = k,
           .n = count,
           .k = gemm_k(p),
           .a = {.base = run.filter<float>() + filter * gemm_k(p), .stride = gemm_k(p)},
           .b = packed,
           .c = sums,
           .ldc = count,
           .activation = p.activation};
    if (run.bias<float>() != nullptr || run.residual<float>() != nullptr) {
      g.accumulate = true;
      for (std::int64_t i = 0; i < k; ++i) {
        const float bias = run.bias<float>() == nullptr ? 0.0F : run.bias<float>()[filter + i];
        for (std::int64_t j = 0; j < count; ++j)
          sums[i * count + j] =
              run.residual<float>() == nullptr ? bias : bias + run.residual<float>()[at + i * ldy + j];
      }
    }
    pool == nullptr ? gemm_serial(g) : gemm(g, *pool);
    for (std::int64_t i = 0; !whole && i < k; ++i) {
      if (i + 1 < k) fetch<true>(run.y<float>() + at + (i + 1) * ldy, count);
      std::copy(sums + i * count, sums + (i + 1) * count, run.y<float>() + at + i * ldy);
    }
  }
};

class Im2colNchw final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "im2col_nchw"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  bool takes_anything() const override { return true; }
  std::optional<std::string> refuse(const ConvProblem& p, const Target&) const override {
    constexpr std::int64_t most_floats = 16 << 20;
    if (gemm_k(p) > most_floats / gemm_tile_cols()) return "the columns of a panel exceed 64 MiB";
    return std::nullopt;
  }
  std::optional<std::string> refuse_known(const ConvProblem& p) const override {
    if (p.h == 1 && p.r == 1 && p.p == 1 && p.pad_top == 0) return std::nullopt;
    return "its filters are constants, and its images have more than one line";
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    ConvCandidate candidate;
    candidate.format = formats::nchw;
    candidate.tolerance = packed_tolerance(p);
    candidate.estimated_us = gemm_estimate_us(p.group_k(), p.n * pixels(p), gemm_k(p), 1, p.groups, rates);
    // A column is written twice (built, packed), a result once more; a piece of a line has a fixed cost.
    constexpr double float_us = 0.00012, piece_us = 0.0015;
    const double columns = static_cast<double>(p.n * p.groups) * static_cast<double>(gemm_k(p));
    const double written = columns * (input_is_columns(p) ? 1 : 2) + static_cast<double>(p.n * p.k);
    candidate.estimated_us += static_cast<double>(pixels(p)) * written * float_us / rates.units;
    if (p.p > 1 && !input_is_columns(p))
      candidate.estimated_us += columns * static_cast<double>(p.p) * piece_us / rates.units;
    // Filters come from memory as B does, which gemm_estimate_us counts.
    candidate.estimated_us += 0.5 * 4 * static_cast<double>(p.k) * static_cast<double>(gemm_k(p)) / rates.bytes_per_us;
    return candidate;
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundIm2colNchw>(p, device.units);
  }
};

}  // namespace

const Kernel& conv_im2col_nchw() {
  static const Im2colNchw algorithm;
  return algorithm;
}

}  // namespace lenslet

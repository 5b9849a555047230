#include "ops/conv/cpu/lines.h"

#include <algorithm>

namespace lenslet {
namespace {

bool repeats(const ConvProblem& p) { return p.group_c() == 1 && p.k != p.c; }

/// Of one group, as the lines see it; a depthwise filter's repeated inputs are channels of their own.
std::int64_t group_k(const ConvProblem& p) { return repeats(p) ? 1 : p.k / p.groups; }

/// Channels computed at a time: whole groups and, where it can be, whole vectors, whose filters stay in L1 while a line
/// of pixels passes.
std::int64_t channel_block(const ConvProblem& p) {
  if (repeats(p)) return p.k;
  const std::int64_t l1_floats = p.group_c() == 1 ? 2048 : 4096, whole = 16 % group_k(p) == 0 ? 16 : group_k(p);
  const std::int64_t most = std::max(whole, l1_floats / (p.r * p.s * p.group_c()));
  const std::int64_t blocks = (p.k + most - 1) / most;
  return ((p.k + blocks - 1) / blocks + whole - 1) / whole * whole;
}

/// The next block's filters, which come from memory, meanwhile.
void fetch(const float* filters, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += 16) __builtin_prefetch(filters + i, 0, 2);
}

void repeat_channels(const float* from, float* to, std::int64_t count, std::int64_t times) {
  for (std::int64_t i = 0; i < count; ++i) to = std::fill_n(to, times, from[i]);
}

}  // namespace

std::int64_t line_filter_floats(const ConvProblem& p) { return p.k * p.group_c() * p.r * p.s; }

void transform_lines(const ConvProblem& p, const ConvFilter& filter, std::span<float> to) {
  const std::int64_t most = channel_block(p), taps = p.r * p.s;
  std::size_t at = 0;
  for (std::int64_t begin = 0; begin < p.k; begin += most) {
    const std::int64_t end = std::min(p.k, begin + most);
    for (std::int64_t r = 0; r < p.r; ++r)
      for (std::int64_t c = 0; c < p.group_c(); ++c)
        for (std::int64_t s = 0; s < p.s; ++s)
          for (std::int64_t k = begin; k < end; ++k) to[at++] = filter.weight(k, c * taps + r * p.s + s);
  }
}

std::int64_t BoundLines::repeated_floats(const ConvProblem& p) {
  return repeats(p) ? (p.r * p.w * p.k + 15) / 16 * 16 : 0;
}

BoundLines::BoundLines(const ConvProblem& p, LineKernel kernel, int threads)
    : BoundRowConv(p, static_cast<std::size_t>(repeated_floats(p) * threads) * sizeof(float)),
      kernel_(kernel),
      block_(channel_block(p)) {}

void BoundLines::compute(const ConvRun& run) const {
  const std::int64_t at_once = kernel_.pairs ? 2 : 1;
  const std::int64_t blocks = (problem.k + block_ - 1) / block_, lines = (problem.p + at_once - 1) / at_once;
  const std::int64_t line_work = at_once * problem.q * block_ * problem.group_c() * problem.r * problem.s;
  // Pieces of 8 us and more; fewer lines in a piece where there are few lines, as at 7x7.
  const std::int64_t grain = std::max<std::int64_t>(1, (256 << 10) / std::max<std::int64_t>(line_work, 1));
  auto* scratch = reinterpret_cast<float*>(run.workspace.data());

  // Rows innermost: the next one reads most of the same image rows.
  run.pool->parallel_for(problem.n * blocks * lines, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t p = i % lines * at_once;
      const std::int64_t k = i / lines % blocks * block_;
      const std::int64_t n = i / lines / blocks;
      const ImageRows rows{n, {0, problem.p}, image_of(run.x, x_shape(), n), image_of(run.y, y_shape(), n)};
      compute_line(run, rows, p, std::min(at_once, problem.p - p), k, scratch + worker * repeated_floats(problem));
    }
  });
}

void BoundLines::compute_rows(const ConvRun& run, const ImageRows& rows) const {
  const std::int64_t at_once = kernel_.pairs ? 2 : 1;
  for (std::int64_t k = 0; k < problem.k; k += block_)
    for (std::int64_t p = rows.rows.begin; p < rows.rows.end; p += at_once)
      compute_line(run, rows, p, std::min(at_once, rows.rows.end - p), k, nullptr);
}

/// Row p of the output, or `count` = 2 from there on, over the block of channels that begins with `k`.
void BoundLines::compute_line(const ConvRun& run, const ImageRows& at, std::int64_t p, std::int64_t count,
                              std::int64_t k, float* repeated) const {
  const std::int64_t terms = problem.r * problem.s * problem.group_c(), dilation = problem.dilation_h;
  const std::int64_t top = p * problem.stride_h - problem.pad_top;
  // Of the rows below the windows those inside the image.
  const std::int64_t rows = problem.r + (count - 1) * problem.stride_h;
  const std::int64_t first = top >= 0 ? 0 : std::min(rows, (-top + dilation - 1) / dilation);
  const std::int64_t last =
      top >= problem.h ? first : std::max(first, std::min(rows, (problem.h - 1 - top) / dilation + 1));

  ConvLine line;
  line.group_c = problem.group_c();
  line.group_k = group_k(problem);
  line.k = problem.k;
  line.block = std::min(block_, problem.k - k);
  line.first = first;
  line.x_rows = last - first;
  line.w = run.filter + k * terms;
  if (p == at.rows.begin) fetch(line.w + line.block * terms, std::min(block_, problem.k - k - line.block) * terms);
  // Of no rows nothing is read: any address that may be moved about will do.
  const float* const x = line.x_rows == 0 ? line.w : at.x.at(top + first * dilation);
  if (repeated_floats(problem) == 0) {
    line.x = x + k / line.group_k * line.group_c;
    line.x_row = dilation * at.x.row_floats;
    line.x_pixel = problem.c;
  } else {
    for (std::int64_t r = 0; r < line.x_rows; ++r)
      repeat_channels(x + r * dilation * at.x.row_floats, repeated + r * problem.w * problem.k, at.x.row_floats,
                      problem.k / problem.c);
    line.x = repeated;
    line.x_row = problem.w * problem.k;
    line.x_pixel = problem.k;
  }
  line.bias = run.bias == nullptr ? nullptr : run.bias + k;
  line.residual =
      run.residual == nullptr ? nullptr : run.residual + (at.image * problem.p + p) * problem.q * problem.k + k;
  line.y = at.y.at(p) + k;
  line.y_rows = static_cast<int>(count);
  line.y_row = problem.q * problem.k;
  kernel_.compute(line, problem);
}

}  // namespace lenslet

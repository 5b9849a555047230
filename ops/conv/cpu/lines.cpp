#include "ops/conv/cpu/lines.h"

#include <algorithm>

#include "ops/conv/taps_inside.h"

namespace lenslet {
namespace {

/// Pixels a thread from which on threads split pixels, not channels.
constexpr std::int64_t pixels_to_split = 26;

bool repeats(const ConvProblem& p) { return p.group_c() == 1 && p.k != p.c; }

/// Output channels of a group as lines.h sees it; repeated depthwise inputs are channels of their own.
std::int64_t group_k(const ConvProblem& p) { return repeats(p) ? 1 : p.k / p.groups; }

/// Prefetches the next block's filters from memory.
void fetch(const float* filters, std::int64_t floats) {
  for (std::int64_t i = 0; i < floats; i += 16) __builtin_prefetch(filters + i, 0, 2);
}

/// Size in floats of a worker's copy of input rows with each channel repeated, for depthwise filters with a channel
/// multiplier.
std::int64_t repeated_floats(const ConvProblem& p) { return repeats(p) ? (p.r * p.w * p.k + 15) / 16 * 16 : 0; }

std::int64_t l2_floats(const DeviceProfile& device) {
  return static_cast<std::int64_t>(device.l2_bytes / sizeof(float));
}

/// Pixels of a row computed for one vector of channels before the next, where two whole rows and their input exceed L2:
/// whole blocks of 7 and 8.
std::int64_t columns_at_once(const ConvProblem& p, std::int64_t block, const DeviceProfile& device) {
  const std::int64_t of_pixel = block * (std::min(p.r + p.stride_h, p.h) * p.stride_w + 2);
  const std::int64_t columns = l2_floats(device) / 2 / of_pixel;
  return columns >= p.q ? p.q : std::max<std::int64_t>(1, columns / 56) * 56;
}

/// Output rows computed for one vector of channels before the next: their input and output for a block of channels stay
/// in L2.
std::int64_t strip_rows(const ConvProblem& p, std::int64_t block, std::int64_t columns, const DeviceProfile& device) {
  const std::int64_t width = columns == p.q ? p.w : columns * p.stride_w;
  const std::int64_t row_floats = block * (std::min(p.stride_h, p.h) * width + columns);
  return std::max<std::int64_t>(1, l2_floats(device) / 2 / row_floats / 2) * 2;
}

void repeat_channels(const float* from, float* to, std::int64_t count, std::int64_t times) {
  for (std::int64_t i = 0; i < count; ++i) to = std::fill_n(to, times, from[i]);
}

}  // namespace

std::int64_t line_block(const ConvProblem& p) {
  if (repeats(p)) return p.k;
  const std::int64_t l1_floats = p.group_c() == 1 ? 2048 : 4096, whole = 16 % group_k(p) == 0 ? 16 : group_k(p);
  const std::int64_t most = std::max(whole, l1_floats / (p.r * p.s * p.group_c()));
  const std::int64_t blocks = (p.k + most - 1) / most;
  return ((p.k + blocks - 1) / blocks + whole - 1) / whole * whole;
}

std::int64_t line_filter_floats(const ConvProblem& p) { return p.k * p.group_c() * p.r * p.s; }

void transform_lines(const ConvProblem& p, const ConvFilter& filter, std::int64_t most, std::span<float> to) {
  const std::int64_t taps = p.r * p.s;
  std::size_t at = 0;
  for (std::int64_t begin = 0; begin < p.k; begin += most) {
    const std::int64_t end = std::min(p.k, begin + most);
    for (std::int64_t r = 0; r < p.r; ++r)
      for (std::int64_t c = 0; c < p.group_c(); ++c)
        for (std::int64_t s = 0; s < p.s; ++s)
          for (std::int64_t k = begin; k < end; ++k) to[at++] = filter.weight(k, c * taps + r * p.s + s);
  }
}

double any_taps(const ConvProblem& p) {
  std::int64_t taps = 0;
  for (std::int64_t q = 0, pixels = 0; q < p.q; q += pixels) {
    pixels = p.q - q >= 8 ? 8 : std::min<std::int64_t>(p.q - q, 2);
    const std::int64_t begin = columns_inside(p, q, q).begin, last = q + pixels - 1;
    const std::int64_t together = std::max<std::int64_t>(0, columns_inside(p, last, last).end - begin);
    taps += 8 * together;
    for (std::int64_t i = q; i <= last; ++i) taps += 4 * (columns_inside(p, i, i).count() - together);
  }
  // A row costs one extra tap.
  return static_cast<double>(taps) / static_cast<double>(p.q) * (1 + 1 / static_cast<double>(p.s));
}

BoundLines::BoundLines(const ConvProblem& p, LineKernel kernel, const DeviceProfile& device)
    : BoundRowConv(p, static_cast<std::size_t>(repeated_floats(p) * device.units) * sizeof(float)),
      kernel_(kernel),
      block_(line_block(p)),
      columns_(columns_at_once(p, block_, device)),
      strip_rows_(strip_rows(p, block_, columns_, device)) {}

bool BoundLines::has_rows() const { return !repeats(problem); }

/// Threads keep to their rows of an image, like the GEMMs before (split_rows in gemm_cpu.cpp), one block of channels
/// after the other. Small images are split by channels first.
void BoundLines::compute(const ConvRun& run) const {
  const int threads = run.pool->threads();
  const std::int64_t blocks = (problem.k + block_ - 1) / block_;
  const double work = static_cast<double>(problem.n * problem.p * problem.q * problem.k) *
                      static_cast<double>(problem.group_c() * problem.r * problem.s);
  // Pieces of 2 us and more, several a thread.
  const std::int64_t pieces = threads == 1 ? 1 : static_cast<std::int64_t>(std::min(work / (64 << 10), 4.0 * threads));
  const bool by_rows = problem.n * problem.p * problem.q >= pixels_to_split * threads;
  std::int64_t parts = std::max<std::int64_t>(1, pieces / (problem.n * blocks));
  if (pieces > 1 && by_rows && problem.n % threads != 0) parts = (parts + threads - 1) / threads * threads;
  parts = std::min(parts, problem.p);
  // Keeps pairs of rows together if all threads get equally many: 28 rows are 6 + 8 and 6 + 8, not four times 7 (0.94
  // of the time). 14 rows are 7 and 7: a row alone costs less than waiting for a thread with 8.
  const std::int64_t together = kernel_.pairs && problem.p % (2 * threads) == 0 ? 2 : 1, units = problem.p / together;
  auto* scratch = reinterpret_cast<float*>(run.workspace.data());

  const std::int64_t count = problem.n * parts * blocks, grain = pieces <= 1 ? count : 1;
  run.pool->parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t outer = by_rows ? i / blocks : i % (problem.n * parts), n = outer / parts,
                         part = outer % parts;
      const std::int64_t k = (by_rows ? i % blocks : i / (problem.n * parts)) * block_;
      const RowShape y{problem.n, problem.p, problem.q * run.y_pixel};
      const ImageRows at{n, {}, image_of(run.x<float>(), x_shape(), n), image_of(run.y<float>(), y, n)};
      const Rows rows{units * part / parts * together, units * (part + 1) / parts * together};
      if (repeats(problem)) {
        for (std::int64_t p = rows.begin; p < rows.end; ++p)
          compute_repeated(run, at, p, scratch + worker * repeated_floats(problem));
      } else {
        compute_lines(run, at, rows, k);
      }
    }
  });
}

void BoundLines::compute_rows(const ConvRun& run, const ImageRows& rows) const {
  for (std::int64_t k = 0; k < problem.k; k += block_) compute_lines(run, rows, rows.rows, k);
}

/// Output rows `rows` for the block of channels at `k`.
void BoundLines::compute_lines(const ConvRun& run, const ImageRows& at, Rows rows, std::int64_t k) const {
  ConvLines lines = lines_of(run, at, k);
  const std::int64_t gemm_k = problem.r * problem.s * problem.group_c();
  fetch(lines.w + lines.block * gemm_k, std::min(block_, problem.k - k - lines.block) * gemm_k);
  lines.pairs = kernel_.pairs;
  for (std::int64_t q = 0; q < problem.q; q += columns_)
    for (std::int64_t p = rows.begin; p < rows.end; p += strip_rows_) {
      lines.columns = {q, std::min(q + columns_, problem.q)};
      lines.rows = {p, std::min(p + strip_rows_, rows.end)};
      kernel_.compute(lines, problem);
    }
}

/// Output row p of a depthwise filter with a channel multiplier.
void BoundLines::compute_repeated(const ConvRun& run, const ImageRows& at, std::int64_t p, float* repeated) const {
  ConvLines lines = lines_of(run, at, 0);
  const std::int64_t top = p * problem.stride_h - problem.pad_top, row_floats = problem.w * problem.k;
  for (std::int64_t r = 0; r < problem.r; ++r) {
    const std::int64_t row = top + r * problem.dilation_h;
    if (row >= 0 && row < problem.h)
      repeat_channels(at.x.at(row), repeated + r * row_floats, at.x.row_floats, problem.k / problem.c);
  }
  // Row top + r * dilation is at r * row_floats.
  lines.x = {repeated, top, 0};
  lines.x_row = row_floats;
  lines.x_pixel = problem.k;
  lines.rows = {p, p + 1};
  lines.columns = {0, problem.q};
  kernel_.compute(lines, problem);
}

ConvLines BoundLines::lines_of(const ConvRun& run, const ImageRows& at, std::int64_t k) const {
  ConvLines lines;
  lines.group_c = problem.group_c();
  lines.group_k = group_k(problem);
  lines.x = at.x;
  // Rows that meet only padding have no image.
  if (lines.x.data != nullptr) lines.x.data += k / lines.group_k * lines.group_c;
  lines.x_row = problem.dilation_h * at.x.row_floats;
  lines.x_pixel = problem.c;
  lines.block = std::min(block_, problem.k - k);
  lines.w = run.filter<float>() + k * problem.r * problem.s * problem.group_c();
  lines.bias = run.bias<float>() == nullptr ? nullptr : run.bias<float>() + k;
  lines.residual = run.residual<float>() == nullptr
                       ? nullptr
                       : run.residual<float>() + at.image * problem.p * problem.q * problem.k + k;
  lines.y = at.y;
  lines.y.data += k;
  lines.y_pixel = run.y_pixel;
  return lines;
}

}  // namespace lenslet

// Blocking, packing and the split over threads.
//
// One block is up to max_block_rows rows of A times a group of panels of B. For each block of k and each panel, the
// panel (block_k x 2 vectors, 16 KiB with AVX2) stays in L1 while the block's rows of A (240 KiB) stream from L2. A is
// not packed but read in place, so that a convolution can pass its input.
#include "ops/gemm/gemm.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <span>

#include "base/simd/targets.h"
#include "ops/core/fused_clamp.h"
#include "ops/core/transpose_block.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/gemm_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

#include "ops/core/simd/activation-inl.h"
#include "ops/gemm/gemm_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {

// Rows of A per block: 240 KiB with block_k. A multiple of every tile_rows.
constexpr std::int64_t max_block_rows = 240 / tile_rows * tile_rows;
// k is blocked so that a panel fits L1 beside its rows of A.
constexpr std::int64_t block_k = 256;

std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>())); }
std::int64_t panel_cols() { return tile_vectors * lanes(); }

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }
std::int64_t packed_floats(std::int64_t k, std::int64_t n) { return k * round_up(n, lanes()); }

/// Columns of the panel that starts at column `j` of packed B.
std::int64_t packed_cols(std::int64_t n, std::int64_t j) { return n - j <= lanes() ? lanes() : panel_cols(); }

/// Addresses of the rows of A from `first` on.
void row_starts(const GemmRows& a, std::int64_t first, std::span<const float*> rows) {
  if (a.width == 0) {
    for (const float*& row : rows) row = a.base + first++ * a.stride;
    return;
  }
  std::int64_t pixel = first % a.width, line = first / a.width, image = 0;
  if (a.height > 0) {
    image = line / a.height;
    line %= a.height;
  }
  for (const float*& row : rows) {
    row = a.base + image * a.image_stride + line * a.line_stride + pixel * a.stride;
    if (++pixel < a.width) continue;
    pixel = 0;
    if (++line < a.height || a.height == 0) continue;
    line = 0;
    ++image;
  }
}

/// Activations other than clamps: from the tile just stored, still in L1, to C, which may be the same. Partial vectors
/// of columns only with stores_parts; `from` then has the whole vector.
void activate_tile(const Activation& activation, const float* from, std::int64_t from_stride, float* to,
                   std::int64_t to_stride, std::int64_t rows, std::int64_t cols) {
  const hn::ScalableTag<float> d;
  const std::int64_t whole = cols / lanes() * lanes();
  with_activation(activation, [&](auto act) HWY_ATTR {
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const row = from + i * from_stride;
      float* const at = to + i * to_stride;
      for (std::int64_t j = 0; j < whole; j += lanes()) hn::StoreU(act(d, hn::LoadU(d, row + j)), d, at + j);
      if constexpr (stores_parts) {
        if (whole == cols) continue;
        const auto some = hn::FirstN(d, static_cast<std::size_t>(cols - whole));
        hn::BlendedStore(act(d, hn::LoadU(d, row + whole)), some, d, at + whole);
      }
    }
  });
}

/// A tile whose last columns are no whole vector, computed in a buffer: nothing beside C, the residual and the bias is
/// touched. With stores_parts only before an activation, whose loads would span the stores of two rows and wait for
/// both (1x1, 24 to 24 channels, SiLU: 332 us, with the buffer 161).
void compute_edge_tile(TileFunction compute, Tile tile, std::int64_t rows, std::int64_t cols, std::int64_t packed,
                       const Activation* activation) {
  constexpr std::size_t max_cols = tile_vectors * hn::MaxLanes(hn::ScalableTag<float>());
  HWY_ALIGN float buffer[max_tile_rows * max_cols];
  HWY_ALIGN float bias[max_cols] = {};
  float* const c = tile.c;
  const std::int64_t c_stride = tile.c_stride;
  const std::size_t bytes = static_cast<std::size_t>(cols) * sizeof(float);
  if (tile.init != nullptr) {
    std::fill(buffer, buffer + rows * packed, 0.0f);
    for (std::int64_t i = 0; i < rows; ++i) std::memcpy(buffer + i * packed, tile.init + i * tile.init_stride, bytes);
    tile.init = buffer;
    tile.init_stride = packed;
  }
  if (tile.bias != nullptr) {
    std::memcpy(bias, tile.bias, bytes);
    tile.bias = bias;
  }
  tile.c = buffer;
  tile.c_stride = packed;
  tile.last_cols = 0;
  compute(tile);
  if (activation != nullptr) {
    if (stores_parts) return activate_tile(*activation, buffer, packed, c, c_stride, rows, cols);
    activate_tile(*activation, buffer, packed, buffer, packed, rows, packed);
  }
  for (std::int64_t i = 0; i < rows; ++i) std::memcpy(c + i * c_stride, buffer + i * packed, bytes);
}

/// The part of k that one pass over the block adds: elements [skip, skip + length) of segments [segment, segment +
/// count).
struct KBlock {
  std::int64_t segment, count, skip, length;
  std::int64_t start;  ///< row of B
  bool first, last;
};

void multiply_k_block(const Gemm& g, const KBlock& kb, const float* const* rows, std::int64_t m0, std::int64_t m1,
                      std::int64_t n0, std::int64_t n1) {
  static constexpr std::int64_t whole_row = 0;
  const std::int64_t* const segments = g.a.segments == nullptr ? &whole_row : g.a.segments;
  const FusedClamp clamp(kb.last ? g.activation : Activation{});
  const Activation* const activation = clamp.after ? &g.activation : nullptr;

  Tile tile;
  tile.segments = segments + kb.segment;
  tile.segment_count = kb.count;
  tile.segment_length = kb.length;
  tile.partial_length = g.partial_length > 0 ? g.partial_length : kb.length;
  tile.init_stride = tile.c_stride = g.ldc;
  tile.low = clamp.low;
  tile.high = clamp.high;
  const float* const init = !kb.first || g.accumulate ? g.c : g.residual;
  const std::int64_t m = m1 - m0, few_panels = panels_at_once(m) * panel_cols();
  for (std::int64_t j = n0, step = 0; j < n1; j += step) {
    const bool few = few_panels > panel_cols() && j + few_panels <= n1;
    step = few ? few_panels : panel_cols();
    const std::int64_t cols = std::min(step, g.n - j);
    const std::int64_t packed = few ? step : packed_cols(g.n, j);
    const bool narrow = packed == lanes();
    tile.last_cols = cols % lanes();
    tile.b = g.b + j * g.k + kb.start * std::min(packed, panel_cols());
    tile.b_stride = g.k * panel_cols();
    tile.bias = kb.first && g.bias != nullptr ? g.bias + j : nullptr;
    // In a network B comes from memory: the first tiles of a panel prefetch the next panel (ResNet-50 at batch 1: 0.87
    // of the time).
    const bool last_panel = j + step >= n1;
    const std::int64_t next = last_panel ? n0 : j + step, next_cols = packed_cols(g.n, next);
    const std::int64_t next_start = !last_panel ? kb.start : kb.last ? 0 : kb.start + kb.count * kb.length;
    const float* ahead = g.b + next * g.k + next_start * next_cols;
    // After the last one usually comes the next product: Winograd's, or kn2col's next tap.
    if (last_panel && kb.last && m1 == g.m && n1 == g.n) ahead = g.b + packed_floats(g.k, g.n);
    const float* const ahead_end = ahead + kb.count * kb.length * next_cols;
    const auto tiles = [&](std::int64_t begin, std::int64_t end, std::int64_t count) {
      if (begin == end) return;
      const TileFunction compute = few ? few_rows_function(count) : tile_function(static_cast<int>(count), narrow);
      tile.rows = rows + (begin - m0);
      tile.init = init == nullptr ? nullptr : init + begin * g.ldc + j;
      tile.c = g.c + begin * g.ldc + j;
      for (std::int64_t i = begin; i < end; i += count) {
        tile.ahead = ahead;
        tile.ahead_step = ahead < ahead_end ? 16 : 0;
        ahead += tile.ahead_step * kb.count * kb.length;
        if (cols == packed || (stores_parts && activation == nullptr)) {
          compute(tile);
          if (activation != nullptr) activate_tile(*activation, tile.c, g.ldc, tile.c, g.ldc, count, cols);
        } else {
          compute_edge_tile(compute, tile, count, cols, packed, activation);
        }
        tile.rows += count;
        if (init != nullptr) tile.init += count * g.ldc;
        tile.c += count * g.ldc;
      }
    };
    // The fewest tiles, with equal rows or one more: each tile reads the panel, and one with few rows waits for it (49
    // rows as 13 + 3 * 12: 97 us, as 3 * 12 + 7 + 6: 131).
    const std::int64_t full = narrow ? narrow_rows : tile_rows, count = (m + full - 1) / full;
    const std::int64_t rows_of_most = m / count, larger = m % count * (rows_of_most + 1);
    tiles(m0, m0 + larger, rows_of_most + 1);
    tiles(m0 + larger, m1, rows_of_most);
  }
}

/// Computes C[m0..m1, n0..n1); n0 starts a panel, `starts` are the addresses of the rows of A.
void multiply_columns(const Gemm& g, const float* const* starts, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                      std::int64_t n1) {
  const std::int64_t segments = g.a.segments == nullptr ? 1 : g.a.segment_count;
  const std::int64_t length = g.k / segments;
  // Either several whole segments at a time, or equal parts of a segment.
  const std::int64_t parts = (length + block_k - 1) / block_k;
  if (parts <= 1) {
    const std::int64_t at_once = std::max<std::int64_t>(1, length == 0 ? segments : block_k / length);
    for (std::int64_t s = 0; s < segments; s += at_once) {
      const std::int64_t count = std::min(at_once, segments - s);
      multiply_k_block(g, {s, count, 0, length, s * length, s == 0, s + count == segments}, starts, m0, m1, n0, n1);
    }
    return;
  }
  const float* rows[max_block_rows];
  for (std::int64_t s = 0; s < segments; ++s) {
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t skip = length * part / parts, end = length * (part + 1) / parts;
      for (std::int64_t i = 0; i < m1 - m0; ++i) rows[i] = starts[i] + skip;
      multiply_k_block(
          g, {s, 1, skip, end - skip, s * length + skip, s == 0 && part == 0, s == segments - 1 && part == parts - 1},
          rows, m0, m1, n0, n1);
    }
  }
}

/// Computes C[m0..m1, n0..n1): at most max_block_rows rows; n0 starts a panel.
void multiply_block(const Gemm& g, std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1) {
  assert(m1 - m0 <= max_block_rows);
  const float* starts[max_block_rows];
  row_starts(g.a, m0, {starts, static_cast<std::size_t>(m1 - m0)});
  // With few rows B is not reused: its panels are read to their ends, one group after another.
  const std::int64_t at_once = panels_at_once(m1 - m0);
  const std::int64_t step = at_once == 1 ? std::max<std::int64_t>(n1 - n0, 1) : at_once * panel_cols();
  for (std::int64_t n = n0; n < n1; n += step) multiply_columns(g, starts, m0, m1, n, std::min(n + step, n1));
}

/// Rows of equal blocks that make up `m`.
std::int64_t rows_of_blocks(std::int64_t m) {
  const std::int64_t blocks = std::max<std::int64_t>(1, (m + max_block_rows - 1) / max_block_rows);
  return round_up(std::max<std::int64_t>(1, (m + blocks - 1) / blocks), tile_rows);
}

void serial(const Gemm& g) {
  const std::int64_t rows = rows_of_blocks(g.m);
  for (std::int64_t m = 0; m < g.m; m += rows) multiply_block(g, m, std::min(m + rows, g.m), 0, g.n);
}

/// Chooses between splitting rows and columns of C over threads. Threads keep their image rows from step to step: a
/// split of columns reads half of A, and leaves half of C, in the other core's cache; a split of rows reads all of B in
/// each thread. A line from another core takes about three times as long as one from L3 (7 GB/s measured). Two cores of
/// an EPYC without a shared L3, 384 to 64 channels at 14x14: 36 -> 30 us, depthwise layers after it 28 -> 11;
/// MobileNetV3 0.82 of the time there, 0.82 on a Sapphire Rapids, 0.96 with a shared L3.
bool split_rows(const Gemm& g, std::int64_t threads) {
  const std::int64_t segments = g.a.segments == nullptr ? 1 : g.a.segment_count;  // they overlap
  constexpr std::int64_t across = 3;
  return g.m >= 2 * tile_rows * threads && across * g.m * (g.k / segments + g.n) >= g.n * g.k;
}

void parallel(const Gemm& g, ThreadPool& pool) {
  const std::int64_t wanted = gemm_pieces(g.m, g.n, g.k, pool.threads());
  if (wanted <= 1) return serial(g);

  // Splits rows first: the blocks share B, which is larger when rows are few. Then groups of panels. With few panels as
  // well, smaller blocks of rows.
  const bool by_rows = split_rows(g, pool.threads());
  std::int64_t rows = rows_of_blocks(g.m);
  if (by_rows) {
    const std::int64_t blocks = round_up((g.m + max_block_rows - 1) / max_block_rows, pool.threads());
    rows = (g.m + blocks - 1) / blocks;
  }
  const std::int64_t panels = (g.n + panel_cols() - 1) / panel_cols();
  std::int64_t row_blocks = (g.m + rows - 1) / rows;
  std::int64_t groups = std::min(panels, (wanted + row_blocks - 1) / row_blocks);
  if (!by_rows && row_blocks * groups < wanted) {
    const std::int64_t more = (wanted + groups - 1) / groups;
    rows = std::max<std::int64_t>(tile_rows, round_up((g.m + more - 1) / more, tile_rows));
    rows = std::min(rows, max_block_rows);
    row_blocks = (g.m + rows - 1) / rows;
  }
  const std::int64_t group_cols = (panels + groups - 1) / groups * panel_cols();
  groups = (g.n + group_cols - 1) / group_cols;
  // Small blocks (a tall, thin product): several per piece.
  const std::int64_t grain = std::max<std::int64_t>(1, row_blocks * groups / (2 * wanted));
  // A thread's share is contiguous: whole rows or whole columns.
  pool.parallel_for(row_blocks * groups, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t m = (by_rows ? piece / groups : piece % row_blocks) * rows;
      const std::int64_t n = (by_rows ? piece % groups : piece / row_blocks) * group_cols;
      multiply_block(g, m, std::min(m + rows, g.m), n, std::min(n + group_cols, g.n));
    }
  });
}

/// Packs `cols` columns of B, `col_stride` floats apart, into rows of `width`. Eight columns at a time: no more fit one
/// L1 set if their stride is a power of two. Sixteen rows: whole cache lines of the source.
void pack_adjacent_rows(const float* b, std::int64_t col_stride, std::int64_t k, std::int64_t cols, std::int64_t width,
                        float* packed) {
  for (std::int64_t i = 0; i < k; i += 16)
    for (std::int64_t c = 0; c < cols; c += 8)
      transpose_block(sizeof(float), b + i + c * col_stride, col_stride, packed + i * width + c, width,
                      std::min<std::int64_t>(8, cols - c), std::min<std::int64_t>(16, k - i));
}

void pack(const float* b, std::int64_t row_stride, std::int64_t col_stride, std::int64_t k, std::int64_t n,
          float* packed) {
  assert(row_stride == 1 || col_stride == 1);
  // Contiguous rows: several panels at once, so that reads are long enough for the hardware prefetcher; by vectors,
  // since a memcpy call takes as long as copying 128 bytes.
  const std::int64_t at_once = col_stride == 1 ? 16 * panel_cols() : panel_cols();
  const hn::ScalableTag<float> d;
  for (std::int64_t first = 0; first < n; first += at_once) {
    const std::int64_t end = std::min(n, first + at_once);
    for (std::int64_t i = 0; col_stride == 1 && i < k; ++i)
      for (std::int64_t j = first; j + lanes() <= end; j += lanes()) {
        const std::int64_t panel = j / panel_cols() * panel_cols();
        hn::StoreU(hn::LoadU(d, b + i * row_stride + j), d, packed + panel * k + i * packed_cols(n, panel) + j - panel);
      }
    for (std::int64_t j = first; j < end; j += panel_cols()) {
      const std::int64_t width = packed_cols(n, j), cols = std::min(width, n - j);
      const std::int64_t begin = col_stride == 1 ? cols / lanes() * lanes() : cols;
      float* to = packed + j * k;
      if (col_stride != 1) pack_adjacent_rows(b + j * col_stride, col_stride, k, cols, width, to);
      for (std::int64_t i = 0; cols < width && i < k; ++i, to += width) {
        std::copy(b + i * row_stride + j + begin, b + i * row_stride + j + cols, to + begin);
        std::fill(to + cols, to + width, 0.0f);
      }
    }
  }
}

std::int64_t kernel_rows() { return tile_rows; }

double issued_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  // A single row waits for B as long as a tile of two multiplies.
  const std::int64_t rows = m == 1 ? 2 : m;
  return 2.0 * static_cast<double>(rows) * static_cast<double>(round_up(n, lanes())) * static_cast<double>(k);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
HWY_EXPORT(serial);
HWY_EXPORT(parallel);
HWY_EXPORT(pack);
HWY_EXPORT(packed_floats);
HWY_EXPORT(kernel_rows);
HWY_EXPORT(panel_cols);
HWY_EXPORT(issued_flops);

std::int64_t packed_b_floats(std::int64_t k, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(packed_floats)(k, n); }

void pack_b(const float* b, std::int64_t row_stride, std::int64_t col_stride, std::int64_t k, std::int64_t n,
            float* packed) {
  HWY_DYNAMIC_DISPATCH(pack)(b, row_stride, col_stride, k, n, packed);
}

std::int64_t gemm_pieces(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  // Enough pieces to balance the threads, each worth its hand-over (about 10 us of one core).
  constexpr double flops_per_piece = 5e5;
  constexpr std::int64_t pieces_per_thread = 4;
  if (threads == 1) return 1;
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto worth = static_cast<std::int64_t>(std::min(flops / flops_per_piece, 1e9));
  return std::max<std::int64_t>(1, std::min(threads * pieces_per_thread, worth));
}

void gemm(const Gemm& call, ThreadPool& pool) { HWY_DYNAMIC_DISPATCH(parallel)(call, pool); }
void gemm_serial(const Gemm& call) { HWY_DYNAMIC_DISPATCH(serial)(call); }
std::int64_t gemm_tile_rows() { return HWY_DYNAMIC_DISPATCH(kernel_rows)(); }
std::int64_t gemm_tile_cols() { return HWY_DYNAMIC_DISPATCH(panel_cols)(); }
double gemm_issued_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return HWY_DYNAMIC_DISPATCH(issued_flops)(m, n, k);
}

}  // namespace lenslet
#endif

// Output sites and pairs together. Each tap maps the sorted inputs to an ascending list of output keys, as long as its
// list of pairs. Up to 125 such lists are merged by windows of keys: a bitmap in L1 marks the outputs of a window, and
// each pair finds its output's number by counting the bits before it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "ops/sparse/build_rulebook.h"
#include "ops/sparse/clear.h"

namespace lenslet {

namespace {

constexpr std::int64_t most_taps = 125;
// Inputs per piece in which pairs are counted and written; pieces in which lists are merged.
constexpr std::int64_t piece_sites = 4096;
constexpr std::int64_t merge_pieces = 64;
// Cells per window: 4 KiB of bits and of counts.
constexpr std::int64_t window_words = 512, window_cells = window_words * 64;

constexpr std::size_t on_lines(std::int64_t bytes) { return static_cast<std::size_t>((bytes + 63) / 64 * 64); }

/// The outputs of an input coordinate along one axis, per tap.
struct Meetings {
  std::int64_t count = 0;
  std::int64_t tap[5], out[5];

  void find(const SparseGeometry& g, std::size_t a, std::int64_t out_size, std::int64_t in) {
    count = 0;
    for (std::int64_t t = 0; t < g.kernel[a]; ++t) {
      std::int64_t at = 0;
      if (g.kind == SparseGeometry::Kind::transposed) {
        at = in * g.stride[a] + t * g.dilation[a] - g.pad_begin[a];
      } else {
        at = in + g.pad_begin[a] - t * g.dilation[a];
        if (at < 0 || at % g.stride[a] != 0) continue;
        at /= g.stride[a];
      }
      if (at < 0 || at >= out_size) continue;
      tap[count] = t;
      out[count++] = at;
    }
  }
};

/// The merge position of a piece in the lists of all taps.
struct Merge {
  std::int64_t at[most_taps], end[most_taps];
};

/// A thread's window of keys.
struct Window {
  std::uint64_t bits[window_words] = {};
  std::int32_t before[window_words];

  static std::size_t word(std::int64_t cell) { return static_cast<std::size_t>(cell / 64); }
  void mark(std::int64_t cell) { bits[word(cell)] |= std::uint64_t{1} << (cell % 64); }
  std::int32_t number(std::int64_t cell) const {
    const std::uint64_t below = bits[word(cell)] & ((std::uint64_t{1} << (cell % 64)) - 1);
    return before[word(cell)] + std::popcount(below);
  }
};

}  // namespace

RegularBuilder::RegularBuilder(const RulebookPlan& plan)
    : plan_(plan), out_(plan.geometry.output(plan.grid)), key_(out_) {}

std::int64_t RegularBuilder::pieces() const { return (plan_.max_inputs + piece_sites - 1) / piece_sites; }

std::size_t RegularBuilder::workspace_bytes() const {
  const std::int64_t taps = plan_.geometry.volume();
  return 2 * on_lines(plan_.max_pairs * 8) + on_lines(pieces() * taps * 8) + on_lines((merge_pieces + 1) * taps * 8) +
         2 * on_lines((merge_pieces + 1) * 8);
}

// Calls f(tap, input, output key) for the pairs of inputs [begin, end); each tap sees the inputs in order.
template <typename F>
void RegularBuilder::for_each_pair(const std::int32_t* indices, std::int64_t begin, std::int64_t end,
                                   const F& f) const {
  const SparseGeometry& g = plan_.geometry;
  Meetings z, y, x;
  std::array<std::int32_t, 4> last{-1, -1, -1, -1};
  for (std::int64_t i = begin; i < end; ++i) {
    const std::array<std::int32_t, 4> site = site_at(indices, plan_.grid.dims, i);
    // Neighbours mostly share a line.
    if (site[1] != last[1]) z.find(g, 0, out_.size[0], site[1]);
    if (site[2] != last[2]) y.find(g, 1, out_.size[1], site[2]);
    x.find(g, 2, out_.size[2], site[3]);
    last = site;
    for (std::int64_t a = 0; a < z.count; ++a)
      for (std::int64_t b = 0; b < y.count; ++b) {
        const std::int64_t line = key_(site[0], z.out[a], y.out[b], 0);
        const std::int64_t tap = (z.tap[a] * g.kernel[1] + y.tap[b]) * g.kernel[2];
        for (std::int64_t c = 0; c < x.count; ++c) f(tap + x.tap[c], i, line + x.out[c]);
      }
  }
}

void RegularBuilder::build(const std::int32_t* indices, std::int32_t* rulebook, std::int32_t* out_indices,
                           std::span<std::byte> workspace, ThreadPool& pool) const {
  const std::int64_t taps = plan_.geometry.volume(), capacity = plan_.max_pairs;
  std::byte* memory = workspace.data();
  const auto take = [&memory](std::int64_t count) {
    auto* const taken = reinterpret_cast<std::int64_t*>(memory);
    memory += on_lines(count * 8);
    return taken;
  };
  std::int64_t* const keys = take(capacity);                     // of each pair's output
  std::int64_t* const sites = take(capacity);                    // of the outputs, by piece
  std::int64_t* const counts = take(pieces() * taps);            // of pairs, by piece of the inputs and tap
  std::int64_t* const starts = take((merge_pieces + 1) * taps);  // by piece of the keys and tap
  std::int64_t* const first_site = take(merge_pieces + 1);       // of a piece, in `sites`
  std::int64_t* const found = take(merge_pieces + 1);            // outputs of a piece, then those before it

  const std::int64_t inputs = read_sites(indices, plan_.max_inputs, plan_.grid, SiteKeys(plan_.grid), nullptr);
  const std::int64_t used = (inputs + piece_sites - 1) / piece_sites;
  const auto of_piece = [&](std::int64_t piece, const auto& f) {
    for_each_pair(indices, piece * piece_sites, std::min(inputs, (piece + 1) * piece_sites), f);
  };
  pool.parallel_for(used, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      std::int64_t* const own = counts + piece * taps;
      std::fill(own, own + taps, 0);
      of_piece(piece, [own](std::int64_t tap, std::int64_t, std::int64_t) { ++own[tap]; });
    }
  });

  // Exclusive prefix sums: counts become write offsets.
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < used * taps; ++i) total += counts[i];
  if (total > capacity) refuse_count(total, capacity, "pairs", "max_pairs");
  std::int32_t* const begins = rulebook + 2;
  std::int64_t place = 0;
  for (std::int64_t t = 0; t < taps; ++t) {
    begins[t] = static_cast<std::int32_t>(place);
    for (std::int64_t piece = 0; piece < used; ++piece) {
      const std::int64_t own = counts[piece * taps + t];
      counts[piece * taps + t] = place;
      place += own;
    }
  }
  begins[taps] = static_cast<std::int32_t>(place);

  std::int32_t* const in = rulebook + rulebook_header(taps);
  std::int32_t* const out = in + capacity;
  pool.parallel_for(used, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      std::int64_t* const own = counts + piece * taps;
      of_piece(piece, [&](std::int64_t tap, std::int64_t input, std::int64_t key) {
        const std::int64_t to = own[tap]++;
        in[to] = static_cast<std::int32_t>(input);
        keys[to] = key;
      });
    }
  });

  // Pieces of the keys, cut by the tap with the most pairs. The result does not depend on the cuts.
  std::int64_t longest = 0;
  for (std::int64_t t = 1; t < taps; ++t)
    if (begins[t + 1] - begins[t] > begins[longest + 1] - begins[longest]) longest = t;
  const std::int64_t length = begins[longest + 1] - begins[longest];
  for (std::int64_t piece = 0; piece <= merge_pieces; ++piece) {
    const std::int64_t bound = piece == 0              ? std::numeric_limits<std::int64_t>::min()
                               : piece == merge_pieces ? std::numeric_limits<std::int64_t>::max()
                               : length == 0           ? 0
                                                       : keys[begins[longest] + piece * length / merge_pieces];
    first_site[piece] = 0;
    for (std::int64_t t = 0; t < taps; ++t) {
      starts[piece * taps + t] = std::lower_bound(keys + begins[t], keys + begins[t + 1], bound) - keys;
      first_site[piece] += starts[piece * taps + t] - begins[t];
    }
  }

  pool.parallel_for(merge_pieces, 1, [&](std::int64_t first, std::int64_t last, int) {
    Window window;
    Merge merge;
    for (std::int64_t piece = first; piece < last; ++piece) {
      std::copy_n(starts + piece * taps, taps, merge.at);
      std::copy_n(starts + (piece + 1) * taps, taps, merge.end);
      std::int64_t* const own = sites + first_site[piece];
      std::int64_t known = 0;
      for (;;) {
        std::int64_t base = std::numeric_limits<std::int64_t>::max();
        for (std::int64_t t = 0; t < taps; ++t)
          if (merge.at[t] < merge.end[t]) base = std::min(base, keys[merge.at[t]]);
        if (base == std::numeric_limits<std::int64_t>::max()) break;
        std::int64_t farthest = 0;
        for (std::int64_t t = 0; t < taps; ++t) {
          std::int64_t p = merge.at[t];
          for (; p < merge.end[t] && keys[p] - base < window_cells; ++p) window.mark(keys[p] - base);
          if (p > merge.at[t]) farthest = std::max(farthest, keys[p - 1] - base);
        }
        const auto words = Window::word(farthest) + 1;
        for (std::size_t w = 0; w < words; ++w) {
          window.before[w] = static_cast<std::int32_t>(known);
          for (std::uint64_t left = window.bits[w]; left != 0; left &= left - 1)
            own[known++] = base + static_cast<std::int64_t>(w) * 64 + std::countr_zero(left);
        }
        for (std::int64_t t = 0; t < taps; ++t) {
          std::int64_t p = merge.at[t];
          for (; p < merge.end[t] && keys[p] - base < window_cells; ++p) out[p] = window.number(keys[p] - base);
          merge.at[t] = p;
        }
        std::fill_n(window.bits, words, 0);
      }
      found[piece] = known;
    }
  });

  found[merge_pieces] = 0;
  std::exclusive_scan(found, found + merge_pieces + 1, found, std::int64_t{0});
  const std::int64_t outputs = found[merge_pieces];
  if (outputs > plan_.max_outputs) refuse_count(outputs, plan_.max_outputs, "output sites", "max_sites");
  rulebook[0] = static_cast<std::int32_t>(inputs);
  rulebook[1] = static_cast<std::int32_t>(outputs);
  pool.parallel_for(merge_pieces, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t piece = first; piece < last; ++piece) {
      const auto before = static_cast<std::int32_t>(found[piece]);
      for (std::int64_t t = 0; t < taps; ++t)
        for (std::int64_t p = starts[piece * taps + t]; p < starts[(piece + 1) * taps + t]; ++p) out[p] += before;
      const std::int64_t* const own = sites + first_site[piece];
      for (std::int64_t i = found[piece]; out_indices != nullptr && i < found[piece + 1]; ++i)
        put_cell(out_indices, out_, i, own[i - found[piece]]);
    }
  });
  const std::int64_t width = 1 + out_.dims;
  if (out_indices != nullptr)
    fill_with_none(out_indices + outputs * width, (plan_.max_outputs - outputs) * width, pool);
  clear_rest(rulebook, taps, capacity, pool);
}

}  // namespace lenslet

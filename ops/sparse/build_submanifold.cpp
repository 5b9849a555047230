// Finds half of the pairs: taps before the centre lead to sites with smaller keys than the output, in the same order.
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/sparse/build_rulebook.h"
#include "ops/sparse/clear.h"

namespace lenslet {

namespace {

// Outputs per piece: their keys and those of a line of taps are 64 KiB.
constexpr std::int64_t piece_sites = 4096;

constexpr std::size_t on_lines(std::int64_t bytes) { return static_cast<std::size_t>((bytes + 63) / 64 * 64); }

PerAxis reach_of(const SparseGeometry& g) {
  return {g.kernel[0] / 2 * g.dilation[0], g.kernel[1] / 2 * g.dilation[1], g.kernel[2] / 2 * g.dilation[2]};
}

}  // namespace

void clear_rest(std::int32_t* rulebook, std::int64_t stored_taps, std::int64_t max_pairs, ThreadPool& pool) {
  std::int32_t* const pairs = rulebook + rulebook_header(stored_taps);
  const std::int64_t used = rulebook[2 + stored_taps];
  fill_with_none(pairs + used, max_pairs - used, pool);
  fill_with_none(pairs + max_pairs + used, max_pairs - used, pool);
}

SubmanifoldBuilder::SubmanifoldBuilder(const RulebookPlan& plan)
    : plan_(plan), reach_(reach_of(plan.geometry)), key_(plan.grid, reach_) {
  const SparseGeometry& g = plan_.geometry;
  const std::int64_t stored = g.stored_taps();
  for (std::int64_t t = 0; t < stored; t += g.kernel[2]) {
    const PerAxis tap = g.tap(t);
    const PerAxis by{tap[0] * g.dilation[0] - reach_[0], tap[1] * g.dilation[1] - reach_[1], -reach_[2]};
    lines_.push_back({t, std::min(g.kernel[2], stored - t), key_.step(by)});
  }
}

std::int64_t SubmanifoldBuilder::pieces() const { return (plan_.max_inputs + piece_sites - 1) / piece_sites; }

std::size_t SubmanifoldBuilder::workspace_bytes() const {
  const std::int64_t stored = plan_.geometry.stored_taps();
  return on_lines((plan_.max_inputs + 1) * 8) + 2 * on_lines(stored * plan_.max_inputs * 4) +
         on_lines(pieces() * stored * 4);
}

// Finds pairs of one line's taps with outputs [begin, end): those of tap j go to row j of `in` and `out`, rows of
// max_inputs.
void SubmanifoldBuilder::find(const Line& line, const std::int64_t* keys, std::int64_t count, std::int64_t begin,
                              std::int64_t end, std::int32_t* in, std::int32_t* out, std::int32_t* counts) const {
  const std::int64_t dilation = plan_.geometry.dilation[2], row = plan_.max_inputs;
  std::int64_t found[5] = {};
  std::int64_t at = std::lower_bound(keys, keys + count, keys[begin] + line.first_step) - keys;
  for (std::int64_t site = begin; site < end; ++site) {
    std::int64_t wanted = keys[site] + line.first_step;
    while (keys[at] < wanted) ++at;
    std::int64_t next = at;
    for (std::int64_t j = 0; j < line.taps; ++j, wanted += dilation) {
      while (keys[next] < wanted) ++next;
      // Written unconditionally and kept if it is a pair: a branch would be unpredictable.
      const std::int64_t to = j * row + begin + found[j];
      in[to] = static_cast<std::int32_t>(next);
      out[to] = static_cast<std::int32_t>(site);
      found[j] += keys[next] == wanted ? 1 : 0;
    }
  }
  for (std::int64_t j = 0; j < line.taps; ++j) counts[j] = static_cast<std::int32_t>(found[j]);
}

void SubmanifoldBuilder::build(const std::int32_t* indices, std::int32_t* rulebook, std::span<std::byte> workspace,
                               ThreadPool& pool) const {
  const std::int64_t stored = plan_.geometry.stored_taps(), row = plan_.max_inputs;
  std::byte* memory = workspace.data();
  const auto take = [&memory](std::int64_t bytes) {
    std::byte* const taken = memory;
    memory += on_lines(bytes);
    return taken;
  };
  auto* const keys = reinterpret_cast<std::int64_t*>(take((row + 1) * 8));
  auto* const in = reinterpret_cast<std::int32_t*>(take(stored * row * 4));
  auto* const out = reinterpret_cast<std::int32_t*>(take(stored * row * 4));
  auto* const counts = reinterpret_cast<std::int32_t*>(take(pieces() * stored * 4));

  const std::int64_t count = read_sites(indices, row, plan_.grid, key_, keys);
  keys[count] = std::numeric_limits<std::int64_t>::max();
  const std::int64_t used = (count + piece_sites - 1) / piece_sites;
  pool.parallel_for(used, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t piece = first; piece < last; ++piece)
      for (const Line& line : lines_)
        find(line, keys, count, piece * piece_sites, std::min(count, (piece + 1) * piece_sites),
             in + line.first_tap * row, out + line.first_tap * row, counts + piece * stored + line.first_tap);
  });

  // Write offsets of each piece's pairs per tap.
  std::int64_t total = 0;
  for (std::int64_t t = 0; t < stored; ++t)
    for (std::int64_t piece = 0; piece < used; ++piece) total += counts[piece * stored + t];
  if (total > plan_.max_pairs) refuse_count(total, plan_.max_pairs, "pairs", "max_pairs");
  rulebook[0] = rulebook[1] = static_cast<std::int32_t>(count);
  std::int32_t* const begins = rulebook + 2;
  std::int32_t begin = 0;
  for (std::int64_t t = 0; t < stored; ++t) {
    begins[t] = begin;
    for (std::int64_t piece = 0; piece < used; ++piece) begin += counts[piece * stored + t];
  }
  begins[stored] = begin;

  std::int32_t* const pairs = rulebook + rulebook_header(stored);
  pool.parallel_for(stored, 1, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      std::int64_t to = begins[t];
      for (std::int64_t piece = 0; piece < used; ++piece) {
        const std::int64_t found = counts[piece * stored + t], from = t * row + piece * piece_sites;
        const std::size_t bytes = static_cast<std::size_t>(found) * sizeof(std::int32_t);
        if (found > 0) {
          std::memcpy(pairs + to, in + from, bytes);
          std::memcpy(pairs + plan_.max_pairs + to, out + from, bytes);
        }
        to += found;
      }
    }
  });
  clear_rest(rulebook, stored, plan_.max_pairs, pool);
}

}  // namespace lenslet

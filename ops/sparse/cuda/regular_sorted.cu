// Builds regular rulebooks by sorting the pairs' keys: for grids with too many cells for a bitmap.
#include "ops/sparse/cuda/make_rulebook.h"
#include "ops/sparse/cuda/meetings.cuh"
#include "ops/sparse/cuda/sort_entries.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = site_threads;

__global__ void __launch_bounds__(threads) count_kernel(const __grid_constant__ Inputs in, NeighbourTable table) {
  wait_for_previous();
  let_next_start();
  fill_with_none(table.table, 0, table.length);
  count_pairs(in, in.row(blockIdx.x));
}

/// Faults found before outputs are counted.
struct PairTotals {
  std::int64_t sites, pairs;
  std::uint64_t fault;
  bool wrong;

  __device__ PairTotals(const std::int64_t* totals, const Begins& begins, const Book& book)
      : sites(totals[book.taps]),
        pairs(begins.at[book.taps]),
        fault(static_cast<std::uint64_t>(totals[book.taps + 2])),
        wrong(fault != no_fault || pairs > book.capacity) {}
};

/// Writes the pairs' inputs and output keys.
__global__ void __launch_bounds__(threads)
    keys_kernel(const __grid_constant__ Inputs in, Book book, const std::int64_t* totals, std::int64_t* keys) {
  wait_for_previous();
  let_next_start();
  __shared__ Begins begins;
  begins.read(totals, book.taps);
  const PairTotals all(totals, begins, book);
  const std::int64_t row = in.row(blockIdx.x), warp = row / warp_threads;
  if (all.wrong || warp * warp_threads >= all.sites) return;
  Places places(begins, in.counts, book.taps, in.warps, warp);
  for_each_tap(in.geometry, in.out, in.site(row), row < all.sites, [&](int tap, std::int64_t key) {
    const std::int64_t place = places(tap);
    const unsigned which = __ballot_sync(whole_warp, key >= 0);
    if (key < 0) return;
    const std::int64_t to = place + rank_in_warp(which);
    book.in()[to] = static_cast<std::int32_t>(row);
    keys[to] = key;
  });
}

/// The pairs as entries to sort; none after a fault.
struct PairEntries {
  const std::int64_t *keys, *totals;
  int taps;
  std::int64_t capacity;

  __device__ Entry operator()(std::int64_t pair, std::uint64_t&) const {
    std::int64_t pairs = 0;
    for (int t = 0; t < taps; ++t) pairs += totals[t];
    const bool is_pair = pair < pairs && pairs <= capacity && static_cast<std::uint64_t>(totals[taps + 2]) == no_fault;
    return {is_pair ? keys[pair] : no_key, pair};
  }
};

struct WriteCall {
  Inputs in;
  Book book;
  NeighbourTable table;
  const Entry* sorted = nullptr;
  const std::uint32_t* heads = nullptr;
  const std::int64_t *totals = nullptr, *output_totals = nullptr;
  std::int64_t most_outputs = 0;
  std::int32_t* out_indices = nullptr;
  int* fault = nullptr;
};

__global__ void __launch_bounds__(threads) write_kernel(const __grid_constant__ WriteCall c) {
  wait_for_previous();
  let_next_start();
  __shared__ Begins begins;
  begins.read(c.totals, c.book.taps);
  const PairTotals all(c.totals, begins, c.book);
  const std::int64_t outputs = c.output_totals[0];
  const bool wrong = all.wrong || outputs > c.most_outputs;
  if (blockIdx.x == 0) {
    write_header(c.book, begins, wrong, all.sites, outputs);
    if (threadIdx.x == 0 && wrong) {
      if (all.fault != no_fault)
        tell_row(c.fault, all.fault, c.in.grid, c.in.indices);
      else if (all.wrong)
        tell_count(c.fault, SiteFault::pairs, all.pairs);
      else
        tell_count(c.fault, SiteFault::output_sites, outputs);
    }
  }
  const int width = 1 + c.in.out.dims;
  const std::int64_t pairs = wrong ? 0 : all.pairs;
  fill_with_none(c.book.in(), pairs, c.book.capacity);
  fill_with_none(c.book.out(), pairs, c.book.capacity);
  if (c.out_indices != nullptr) fill_with_none(c.out_indices, wrong ? 0 : outputs * width, c.most_outputs * width);
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x, warp = i / warp_threads;
  if (warp * warp_threads >= pairs) return;
  const Entry entry = i < pairs ? c.sorted[i] : Entry{no_key, 0};
  const bool is_head = i < pairs && (i == 0 || c.sorted[i - 1].key != entry.key);
  const unsigned which = __ballot_sync(whole_warp, is_head);
  if (i >= pairs) return;
  // An entry that is no head has the output of the last head before it.
  const std::int64_t output = std::int64_t{c.heads[warp]} + rank_in_warp(which) + (is_head ? 1 : 0) - 1;
  c.book.out()[entry.row] = static_cast<std::int32_t>(output);
  if (c.table.table != nullptr) {
    const int behind = first_not_below(1, c.book.taps, entry.row + 1, [&](int t) { return begins.at[t]; });
    c.table.put(behind - 1, output, c.book.in()[entry.row]);
  }
  if (is_head && c.out_indices != nullptr) put_site(c.out_indices, c.in.out.dims, output, c.in.out.site(entry.key));
}

struct Memory {
  Parts parts;
  std::uint32_t *counts, *heads;
  std::uint64_t* faults;
  std::int64_t *totals, *output_totals, *keys;
  SortMemory sort;

  Memory(const RulebookPlan& plan, std::byte* memory)
      : parts(memory),
        counts(parts.take<std::uint32_t>((plan.geometry.volume() + 1) * warps_of(plan.max_inputs))),
        heads(parts.take<std::uint32_t>(warps_of(plan.max_pairs))),
        faults(parts.take<std::uint64_t>(warps_of(plan.max_inputs))),
        totals(parts.take<std::int64_t>(plan.geometry.volume() + 1 + Totals::extra)),
        output_totals(parts.take<std::int64_t>(1 + Totals::extra)),
        keys(parts.take<std::int64_t>(plan.max_pairs)),
        sort(plan.max_pairs, parts) {}
};

}  // namespace

std::size_t sorted_workspace_bytes(const RulebookPlan& plan) { return Memory(plan, nullptr).parts.bytes(); }

void make_sorted(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                 const RulebookMemory& to) {
  const Memory memory(plan, to.workspace);
  const NeighbourTable table(plan, to.table);
  const int taps = static_cast<int>(plan.geometry.volume());
  const std::int64_t capacity = plan.max_pairs;
  const Inputs in = inputs_of(plan, indices, memory.counts, memory.faults);
  const Book book{.rulebook = to.rulebook, .taps = taps, .capacity = capacity};
  const unsigned site_blocks = blocks_for(plan.max_inputs, threads);
  launch(context, count_kernel, site_blocks, threads, 0, in, table);
  make_totals(context, {.counts = memory.counts,
                        .length = in.warps,
                        .rows = taps + 1,
                        .faults = memory.faults,
                        .fault_count = in.warps,
                        .totals = memory.totals});
  launch(context, keys_kernel, site_blocks, threads, 0, in, book, memory.totals, memory.keys);
  const Entry* const sorted =
      sort_entries(context, PairEntries{memory.keys, memory.totals, taps, capacity}, capacity, memory.sort, nullptr);
  count_heads(context, sorted, capacity, memory.heads, nullptr, nullptr);
  make_totals(context,
              {.counts = memory.heads, .length = warps_of(capacity), .rows = 1, .totals = memory.output_totals});
  const unsigned pair_blocks = blocks_for(capacity, threads);
  launch(context, write_kernel, pair_blocks > 0 ? pair_blocks : 1, threads, 0,
         WriteCall{.in = in,
                   .book = book,
                   .table = table,
                   .sorted = sorted,
                   .heads = memory.heads,
                   .totals = memory.totals,
                   .output_totals = memory.output_totals,
                   .most_outputs = plan.max_outputs,
                   .out_indices = to.out_indices,
                   .fault = context.fault});
}

}  // namespace lenslet::cuda

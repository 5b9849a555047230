// Builds regular rulebooks by marking outputs in a bitmap of their grid.
#include "ops/sparse/cuda/cells.h"
#include "ops/sparse/cuda/make_rulebook.h"
#include "ops/sparse/cuda/meetings.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = site_threads;

/// Blocks of the first launch: one per block of sites, or enough to clear the bits with a few words per thread.
constexpr std::int64_t words_of_clearing_block = threads * 8;

__global__ void __launch_bounds__(threads)
    count_kernel(const __grid_constant__ Inputs in, std::uint64_t* bits, std::int64_t words, NeighbourTable table) {
  wait_for_previous();
  let_next_start();
  fill_with_zeros(bits, 0, words);
  fill_with_none(table.table, 0, table.length);
  const std::int64_t row = in.row(blockIdx.x);
  if (row - threadIdx.x < in.rows) count_pairs(in, row);
}

__global__ void __launch_bounds__(threads) mark_kernel(const __grid_constant__ Inputs in, std::uint64_t* bits) {
  wait_for_previous();
  let_next_start();
  const Site site = in.site(in.row(blockIdx.x));
  if (!in.grid.has(site)) return;
  // Outputs of adjacent taps mostly share a word.
  std::int64_t word = -1;
  std::uint64_t marks = 0;
  const auto mark = [&] {
    if (marks != 0)
      atomicOr(reinterpret_cast<unsigned long long*>(bits + word), static_cast<unsigned long long>(marks));
  };
  for_each_tap(in.geometry, in.out, site, true, [&](int, std::int64_t key) {
    if (key < 0) return;
    if (key / Cells::cells_of_word != word) {
      mark();
      word = key / Cells::cells_of_word;
      marks = 0;
    }
    marks |= std::uint64_t{1} << key % Cells::cells_of_word;
  });
  mark();
}

struct WriteCall {
  Inputs in;
  Book book;
  Cells cells;
  NeighbourTable table;
  std::int64_t most_outputs = 0;
  std::int64_t site_blocks = 0;  ///< the first ones; the others are for words of cells
  const std::int64_t* totals = nullptr;
  std::int32_t* out_indices = nullptr;
  int* fault = nullptr;
};

__device__ void write_pairs(const WriteCall& c, const Begins& begins, std::int64_t sites) {
  const std::int64_t row = c.in.row(blockIdx.x), warp = row / warp_threads;
  if (warp * warp_threads >= sites) return;  // whole warps
  const Site site = c.in.site(row);
  std::int32_t *const in = c.book.in(), *const out = c.book.out();
  Places places(begins, c.in.counts, c.book.taps, c.in.warps, warp);
  for_each_tap(c.in.geometry, c.in.out, site, row < sites, [&](int tap, std::int64_t key) {
    const std::int64_t place = places(tap);
    const unsigned which = __ballot_sync(whole_warp, key >= 0);
    if (key < 0) return;
    const std::int64_t to = place + rank_in_warp(which);
    in[to] = static_cast<std::int32_t>(row);
    const std::int64_t output = c.cells.number(key);
    out[to] = static_cast<std::int32_t>(output);
    c.table.put(tap, output, static_cast<std::int32_t>(row));
  });
}

__device__ void write_outputs(const WriteCall& c) {
  const std::int64_t word = (blockIdx.x - c.site_blocks) * threads + threadIdx.x;
  if (word >= c.cells.words) return;
  std::uint64_t left = c.cells.bits[word];
  if (left == 0) return;
  std::int64_t to = c.cells.chunks[word / Cells::words_of_chunk] + c.cells.before[word];
  for (; left != 0; left &= left - 1)
    put_site(c.out_indices, c.in.out.dims, to++,
             c.in.out.site(word * Cells::cells_of_word + __ffsll(static_cast<long long>(left)) - 1));
}

__global__ void __launch_bounds__(threads) write_kernel(const __grid_constant__ WriteCall c) {
  wait_for_previous();
  let_next_start();
  __shared__ Begins begins;
  const int taps = c.book.taps;
  begins.read(c.totals, taps);
  const std::int64_t sites = c.totals[taps], outputs = c.totals[taps + 1], pairs = begins.at[taps];
  const auto found = static_cast<std::uint64_t>(c.totals[taps + 2]);
  const bool wrong = found != no_fault || pairs > c.book.capacity || outputs > c.most_outputs;
  if (blockIdx.x == 0) {
    write_header(c.book, begins, wrong, sites, outputs);
    if (threadIdx.x == 0 && wrong) {
      if (found != no_fault)
        tell_row(c.fault, found, c.in.grid, c.in.indices);
      else if (pairs > c.book.capacity)
        tell_count(c.fault, SiteFault::pairs, pairs);
      else
        tell_count(c.fault, SiteFault::output_sites, outputs);
    }
  }
  const int width = 1 + c.in.out.dims;
  fill_with_none(c.book.in(), wrong ? 0 : pairs, c.book.capacity);
  fill_with_none(c.book.out(), wrong ? 0 : pairs, c.book.capacity);
  if (c.out_indices != nullptr) fill_with_none(c.out_indices, wrong ? 0 : outputs * width, c.most_outputs * width);
  if (wrong) return;
  if (blockIdx.x < c.site_blocks)
    write_pairs(c, begins, sites);
  else if (c.out_indices != nullptr)
    write_outputs(c);
}

struct Memory {
  Parts parts;
  std::uint32_t* counts;
  std::uint64_t* faults;
  std::int64_t* totals;
  Cells cells;

  Memory(const RulebookPlan& plan, std::byte* memory)
      : parts(memory),
        counts(parts.take<std::uint32_t>((plan.geometry.volume() + 1) * warps_of(plan))),
        faults(parts.take<std::uint64_t>(warps_of(plan))),
        totals(parts.take<std::int64_t>(plan.geometry.volume() + 1 + Totals::extra)),
        cells(plan.geometry.output(plan.grid).cells(), parts) {}
  static std::int64_t warps_of(const RulebookPlan& plan) { return (plan.max_inputs + warp_threads - 1) / warp_threads; }
};

}  // namespace

std::size_t marked_workspace_bytes(const RulebookPlan& plan) { return Memory(plan, nullptr).parts.bytes(); }

void make_marked(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                 const RulebookMemory& to) {
  const Memory memory(plan, to.workspace);
  const NeighbourTable table(plan, to.table);
  const int taps = static_cast<int>(plan.geometry.volume());
  const Inputs in = inputs_of(plan, indices, memory.counts, memory.faults);
  const unsigned site_blocks = blocks_for(plan.max_inputs, threads);
  const unsigned clearing_blocks = blocks_for(memory.cells.words + table.length / 2, words_of_clearing_block);
  launch(context, count_kernel, site_blocks > clearing_blocks ? site_blocks : clearing_blocks, threads, 0, in,
         memory.cells.bits, memory.cells.words, table);
  launch(context, mark_kernel, site_blocks, threads, 0, in, memory.cells.bits);
  number_cells(context, memory.cells);
  make_totals(context, {.counts = memory.counts,
                        .length = in.warps,
                        .rows = taps + 1,
                        .chunks = memory.cells.chunks,
                        .chunk_count = memory.cells.chunk_count,
                        .faults = memory.faults,
                        .fault_count = in.warps,
                        .totals = memory.totals});
  launch(context, write_kernel, site_blocks + blocks_for(memory.cells.words, threads), threads, 0,
         WriteCall{.in = in,
                   .book = {.rulebook = to.rulebook, .taps = taps, .capacity = plan.max_pairs},
                   .cells = memory.cells,
                   .table = table,
                   .most_outputs = plan.max_outputs,
                   .site_blocks = site_blocks,
                   .totals = memory.totals,
                   .out_indices = to.out_indices,
                   .fault = context.fault});
}

}  // namespace lenslet::cuda

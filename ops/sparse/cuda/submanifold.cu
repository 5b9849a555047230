#include "ops/sparse/cuda/book.cuh"
#include "ops/sparse/cuda/make_rulebook.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = site_threads, warps_of_block = threads / warp_threads;
/// Keys of a line that a block holds: usually the shifted keys of its 256 sites fit.
constexpr int held = 1024;
constexpr int most_lines = 13;  // of 5x5x5
/// Taps whose pairs are read before any is written: the compiler must assume that writes alias later reads.
constexpr int taps_at_once = 8;

/// Taps that differ only in x.
struct Line {
  int first = 0, taps = 0;
  std::int32_t dz = 0, dy = 0;  ///< cells from the output to where the taps look
};

struct FindCall {
  DeviceGrid grid;
  Line lines[most_lines] = {};
  int line_count = 0, taps_of_line = 1, taps = 0;
  std::int32_t dilation = 1;  ///< along x
  std::int64_t rows = 0, warps = 0;
  const std::int32_t* indices = nullptr;
  /// [taps, pitch]: the input of each tap and output, or -1. With `with_table` it is the first half of a neighbour
  /// table; the centre and the other taps follow, whose inputs write_kernel knows.
  std::int32_t* found = nullptr;
  std::int64_t pitch = 0;
  bool with_table = false;
  std::uint32_t* counts = nullptr;  ///< [taps + 1, warps]
  std::uint64_t* faults = nullptr;  ///< [warps]

  __device__ std::int64_t step(const Line& line) const {
    return line.dz * grid.plane + std::int64_t{line.dy} * grid.width - taps_of_line / 2 * std::int64_t{dilation};
  }
};

__global__ void __launch_bounds__(threads) find_kernel(const __grid_constant__ FindCall c) {
  wait_for_previous();
  let_next_start();
  __shared__ std::int64_t keys[held];
  __shared__ std::int64_t first_key, last_key;
  __shared__ std::int64_t ends[2 * most_lines];
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
  const std::int64_t row = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  const std::int64_t of_all = std::int64_t{blockIdx.x} * warps_of_block + warp;
  const bool counts_here = lane == 0 && of_all < c.warps;

  const Site site = row < c.rows ? site_at(c.indices, c.grid.dims, row) : Site{-1, 0, 0, 0};
  const std::uint64_t fault = least_of_warp(fault_of_row(c.grid, c.indices, row, site));
  const unsigned sites = __ballot_sync(whole_warp, site.image >= 0);
  if (counts_here) {
    c.faults[of_all] = fault;
    c.counts[c.taps * c.warps + of_all] = static_cast<std::uint32_t>(__popc(sites));
  }
  const std::int64_t key = c.grid.key(site);
  const bool is_site = key != no_key;
  const Site own = is_site ? site : Site{0, 0, 0, 0};  // arbitrary if not a site

  // A block's sites are its first threads' in valid input; otherwise these keys are arbitrary.
  const int count = __syncthreads_count(is_site ? 1 : 0);
  if (static_cast<int>(threadIdx.x) == 0) first_key = key;
  if (static_cast<int>(threadIdx.x) == count - 1) last_key = key;
  __syncthreads();
  if (count == 0 || first_key == no_key || last_key == no_key) {
    for (int t = 0; t < c.taps; ++t)
      if (counts_here) c.counts[t * c.warps + of_all] = 0;
    if (c.with_table && row < c.pitch)
      for (int t = 0; t <= 2 * c.taps; ++t) c.found[t * c.pitch + row] = -1;
    return;  // all threads: `found` is read where there are sites
  }
  for (int search = warp; search < 2 * c.line_count; search += warps_of_block) {
    const Line& line = c.lines[search / 2];
    const std::int64_t wanted = search % 2 == 0
                                    ? first_key + c.step(line)
                                    : last_key + c.step(line) + (line.taps - 1) * std::int64_t{c.dilation} + 1;
    const std::int64_t at = rows_below(c.grid, c.indices, c.rows, wanted);
    if (lane == 0) ends[search] = at;
  }
  __syncthreads();

  if (c.with_table && row < c.pitch) c.found[c.taps * c.pitch + row] = is_site ? static_cast<std::int32_t>(row) : -1;
  for (int l = 0; l < c.line_count; ++l) {
    const Line& line = c.lines[l];
    const std::int64_t begin = ends[2 * l], end = ends[2 * l + 1] > begin ? ends[2 * l + 1] : begin;
    const bool is_held = end - begin <= held;
    if (is_held)
      for (std::int64_t i = begin + threadIdx.x; i < end; i += threads)
        keys[i - begin] = c.grid.key(site_at(c.indices, c.grid.dims, i));
    __syncthreads();
    const auto key_at = [&](std::int64_t i) {
      return is_held ? keys[i - begin] : c.grid.key(site_at(c.indices, c.grid.dims, i));
    };
    const std::int32_t z = own.z + line.dz, y = own.y + line.dy;
    const bool on_grid = is_site && z >= 0 && z < c.grid.depth && y >= 0 && y < c.grid.height;
    std::int64_t wanted = on_grid ? key + c.step(line) : 0;
    std::int32_t x = own.x - c.taps_of_line / 2 * c.dilation;
    std::int64_t at = begin;
    for (int j = 0; j < line.taps; ++j, wanted += c.dilation, x += c.dilation) {
      std::int64_t input = -1;
      if (on_grid) {
        // Between two taps there are at most as many keys as cells.
        const std::int64_t next = at + c.dilation, until = j == 0 || next > end ? end : next;
        at = first_not_below(at, until, wanted, key_at);
        if (x >= 0 && x < c.grid.width && at < end && key_at(at) == wanted) input = at;
      }
      const int tap = line.first + j;
      if (row < c.pitch) {
        c.found[tap * c.pitch + row] = static_cast<std::int32_t>(input);
        if (c.with_table) c.found[(2 * c.taps - tap) * c.pitch + row] = -1;
      }
      const unsigned pairs = __ballot_sync(whole_warp, input >= 0);
      if (counts_here) c.counts[tap * c.warps + of_all] = static_cast<std::uint32_t>(__popc(pairs));
    }
    __syncthreads();  // before the keys are overwritten
  }
}

struct WriteCall {
  DeviceGrid grid;
  Book book;
  NeighbourTable table;
  std::int64_t pitch = 0, warps = 0;  ///< pitch: of `found`
  const std::int32_t *indices = nullptr, *found = nullptr;
  const std::uint32_t* counts = nullptr;
  const std::int64_t* totals = nullptr;
  int* fault = nullptr;
};

__global__ void __launch_bounds__(threads) write_kernel(const __grid_constant__ WriteCall c) {
  wait_for_previous();
  let_next_start();
  __shared__ Begins begins;
  const int taps = c.book.taps;
  begins.read(c.totals, taps);
  const std::int64_t sites = c.totals[taps], pairs = begins.at[taps];
  const auto found = static_cast<std::uint64_t>(c.totals[taps + 2]);
  const bool wrong = found != no_fault || pairs > c.book.capacity;
  if (blockIdx.x == 0) {
    write_header(c.book, begins, wrong, sites, sites);
    if (threadIdx.x == 0 && found != no_fault) tell_row(c.fault, found, c.grid, c.indices);
    if (threadIdx.x == 0 && found == no_fault && wrong) tell_count(c.fault, SiteFault::pairs, pairs);
  }
  std::int32_t *const in = c.book.in(), *const out = c.book.out();
  fill_with_none(in, wrong ? 0 : pairs, c.book.capacity);
  fill_with_none(out, wrong ? 0 : pairs, c.book.capacity);
  const std::int64_t row = std::int64_t{blockIdx.x} * threads + threadIdx.x, warp = row / warp_threads;
  if (wrong || warp * warp_threads >= sites) return;
  Places places(begins, c.counts, taps, c.warps, warp);
  for (int first = 0; first < taps; first += taps_at_once) {
    std::int32_t inputs[taps_at_once];
#pragma unroll
    for (int j = 0; j < taps_at_once; ++j)
      inputs[j] = row < sites && first + j < taps ? c.found[(first + j) * c.pitch + row] : -1;
#pragma unroll
    for (int j = 0; j < taps_at_once; ++j) {
      if (first + j >= taps) break;
      const std::int64_t place = places(first + j);
      const unsigned which = __ballot_sync(whole_warp, inputs[j] >= 0);
      if (inputs[j] < 0) continue;
      const std::int64_t to = place + rank_in_warp(which);
      in[to] = inputs[j];
      out[to] = static_cast<std::int32_t>(row);
      c.table.put(2 * taps - (first + j), inputs[j], static_cast<std::int32_t>(row));
    }
  }
}

/// The workspace.
struct Memory {
  Parts parts;
  std::int32_t* found;
  std::uint32_t* counts;
  std::uint64_t* faults;
  std::int64_t* totals;

  Memory(const RulebookPlan& plan, std::byte* memory) : parts(memory) {
    const std::int64_t taps = plan.geometry.stored_taps(), warps = warps_of(plan);
    found = parts.take<std::int32_t>(plan.neighbours ? 0 : taps * plan.max_inputs);
    counts = parts.take<std::uint32_t>((taps + 1) * warps);
    faults = parts.take<std::uint64_t>(warps);
    totals = parts.take<std::int64_t>(taps + 1 + Totals::extra);
  }
  static std::int64_t warps_of(const RulebookPlan& plan) { return (plan.max_inputs + warp_threads - 1) / warp_threads; }
};

}  // namespace

std::size_t submanifold_workspace_bytes(const RulebookPlan& plan) { return Memory(plan, nullptr).parts.bytes(); }

void make_submanifold(const Context& context, const RulebookPlan& plan, const std::int32_t* indices,
                      const RulebookMemory& to) {
  const Memory memory(plan, to.workspace);
  const NeighbourTable table(plan, to.table);
  const bool with_table = table.table != nullptr;
  std::int32_t* const found = with_table ? table.table : memory.found;
  const std::int64_t pitch = with_table ? table.rows : plan.max_inputs;
  const SparseGeometry& g = plan.geometry;
  const DeviceGrid grid(plan.grid);
  const int taps = static_cast<int>(g.stored_taps()), taps_of_line = static_cast<int>(g.kernel[2]);
  const std::int64_t rows = plan.max_inputs, warps = Memory::warps_of(plan);
  const unsigned blocks = blocks_for(rows, threads);

  FindCall find{.grid = grid,
                .taps_of_line = taps_of_line,
                .taps = taps,
                .dilation = static_cast<std::int32_t>(g.dilation[2]),
                .rows = rows,
                .warps = warps,
                .indices = indices,
                .found = found,
                .pitch = pitch,
                .with_table = with_table,
                .counts = memory.counts,
                .faults = memory.faults};
  for (int first = 0; first < taps; first += taps_of_line) {
    const PerAxis tap = g.tap(first);
    find.lines[find.line_count++] = {first, taps - first < taps_of_line ? taps - first : taps_of_line,
                                     static_cast<std::int32_t>((tap[0] - g.kernel[0] / 2) * g.dilation[0]),
                                     static_cast<std::int32_t>((tap[1] - g.kernel[1] / 2) * g.dilation[1])};
  }
  launch(context, find_kernel, blocks, threads, 0, find);
  make_totals(context, {.counts = memory.counts,
                        .length = warps,
                        .rows = taps + 1,
                        .faults = memory.faults,
                        .fault_count = warps,
                        .totals = memory.totals});
  launch(context, write_kernel, blocks > 0 ? blocks : 1, threads, 0,
         WriteCall{.grid = grid,
                   .book = {.rulebook = to.rulebook, .taps = taps, .capacity = plan.max_pairs},
                   .table = table,
                   .pitch = pitch,
                   .warps = warps,
                   .indices = indices,
                   .found = found,
                   .counts = memory.counts,
                   .totals = memory.totals,
                   .fault = context.fault});
}

}  // namespace lenslet::cuda

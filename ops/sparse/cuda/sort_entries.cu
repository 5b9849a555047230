#include "ops/sparse/cuda/sort_entries.cuh"

namespace lenslet::cuda {
namespace {

__global__ void __launch_bounds__(merge_threads)
    merge_kernel(const Entry* from, Entry* to, std::int64_t count, std::int64_t run) {
  wait_for_previous();
  let_next_start();
  const std::int64_t i = std::int64_t{blockIdx.x} * merge_threads + threadIdx.x;
  if (i >= count) return;
  const Entry entry = from[i];
  const std::int64_t group = i / (4 * run) * (4 * run), own = (i - group) / run;
  std::int64_t to_place = i - own * run;
  for (std::int64_t other = 0; other < 4; ++other) {
    std::int64_t begin = group + other * run, end = begin + run < count ? begin + run : count;
    if (other == own || begin >= end) continue;
    const std::int64_t first = begin;
    while (begin < end) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (is_before(from[middle], entry))
        begin = middle + 1;
      else
        end = middle;
    }
    to_place += begin - first;
  }
  to[to_place] = entry;
}

__global__ void __launch_bounds__(merge_threads)
    heads_kernel(const Entry* sorted, std::int64_t count, std::uint32_t* heads, std::uint32_t* live,
                 std::uint64_t* repeated) {
  wait_for_previous();
  let_next_start();
  const std::int64_t i = std::int64_t{blockIdx.x} * merge_threads + threadIdx.x, warp = i / warp_threads;
  const std::int64_t key = i < count ? sorted[i].key : no_key;
  const bool is_live = key != no_key, is_head = is_live && (i == 0 || sorted[i - 1].key != key);
  const unsigned which_live = __ballot_sync(whole_warp, is_live), which = __ballot_sync(whole_warp, is_head);
  if (threadIdx.x % warp_threads != 0 || i >= count) return;
  if (heads != nullptr) heads[warp] = static_cast<std::uint32_t>(__popc(which));
  if (live != nullptr) live[warp] = static_cast<std::uint32_t>(__popc(which_live));
  const unsigned others = which_live & ~which;
  if (repeated != nullptr)
    repeated[warp] =
        others == 0 ? no_fault : of_sorted | fault_at(i + __ffs(static_cast<int>(others)) - 1, SiteFault::twice);
}

}  // namespace

const Entry* merge_tiles(const Context& context, std::int64_t count, const SortMemory& memory) {
  const Entry* from = memory.entries;
  Entry* to = memory.other;
  for (std::int64_t run = sort_tile; run < count; run *= 4) {
    launch(context, merge_kernel, blocks_for(count, merge_threads), merge_threads, 0, from, to, count, run);
    Entry* const next = to == memory.other ? memory.entries : memory.other;
    from = to;
    to = next;
  }
  return from;
}

void count_heads(const Context& context, const Entry* sorted, std::int64_t count, std::uint32_t* heads,
                 std::uint32_t* live, std::uint64_t* repeated) {
  launch(context, heads_kernel, blocks_for(count, merge_threads), merge_threads, 0, sorted, count, heads, live,
         repeated);
}

}  // namespace lenslet::cuda

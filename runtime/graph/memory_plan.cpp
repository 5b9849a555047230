#include "runtime/graph/memory_plan.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>

namespace lenslet {
namespace {

struct Placed {
  std::size_t offset, end;  ///< bytes [offset, end)
  int first, last;
};

std::size_t round_up(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Most (rounded) bytes alive at one step. Memory is live from `first` to `last`, both included.
std::size_t most_alive(std::span<const MemoryRequest> requests, std::size_t alignment) {
  struct Change {
    std::size_t grows = 0, shrinks = 0;
  };
  std::map<int, Change> changes;
  for (const MemoryRequest& request : requests) {
    changes[request.first].grows += round_up(request.bytes, alignment);
    changes[request.last + 1].shrinks += round_up(request.bytes, alignment);
  }
  std::size_t alive = 0, most = 0;
  for (const auto& [step, change] : changes) {
    alive = alive - change.shrinks + change.grows;
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace

MemoryPlan plan_memory(std::span<const MemoryRequest> requests, std::size_t alignment) {
  assert(alignment > 0);
  MemoryPlan plan;
  plan.offsets.assign(requests.size(), 0);
  plan.lower_bound_bytes = most_alive(requests, alignment);

  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Equal sizes by start: neighbours in time then tend to lie side by side, and the plan does not depend on the sort.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (requests[a].bytes != requests[b].bytes) return requests[a].bytes > requests[b].bytes;
    return requests[a].first < requests[b].first;
  });

  std::vector<Placed> placed;  // by offset
  placed.reserve(requests.size());
  for (const std::size_t index : order) {
    const MemoryRequest& request = requests[index];
    assert(request.first <= request.last);
    if (request.bytes == 0) continue;
    const std::size_t size = round_up(request.bytes, alignment);
    plan.sum_bytes += size;
    std::size_t offset = 0;
    for (const Placed& other : placed) {
      if (other.last < request.first || request.last < other.first) continue;
      if (other.offset >= offset + size) break;  // the gap before `other` is wide enough
      offset = std::max(offset, other.end);
    }
    plan.offsets[index] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + size);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &Placed::offset),
                  {offset, offset + size, request.first, request.last});
  }
  return plan;
}

}  // namespace lenslet

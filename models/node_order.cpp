#include "models/node_order.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace lenslet {

namespace {

// Every node left over waits for another one left over, so walking back along dependencies must come round.
std::vector<std::size_t> find_cycle(const std::vector<std::vector<std::size_t>>& depends_on,
                                    const std::vector<std::size_t>& waiting) {
  std::size_t at = 0;
  while (waiting[at] == 0) ++at;
  std::vector<std::size_t> path, seen_at(depends_on.size(), depends_on.size());
  while (seen_at[at] == depends_on.size()) {
    seen_at[at] = path.size();
    path.push_back(at);
    at = *std::find_if(depends_on[at].begin(), depends_on[at].end(), [&](std::size_t n) { return waiting[n] != 0; });
  }
  path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(seen_at[at]));
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

NodeOrder order_nodes(const std::vector<std::vector<std::size_t>>& depends_on) {
  const std::size_t count = depends_on.size();
  std::vector<std::size_t> waiting(count, 0);  // dependencies not yet ordered
  std::vector<std::vector<std::size_t>> needed_by(count);
  for (std::size_t n = 0; n < count; ++n) {
    waiting[n] = depends_on[n].size();
    for (const std::size_t other : depends_on[n]) needed_by[other].push_back(n);
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t n = 0; n < count; ++n)
    if (waiting[n] == 0) ready.push(n);
  NodeOrder result;
  while (!ready.empty()) {
    const std::size_t n = ready.top();
    ready.pop();
    result.order.push_back(n);
    for (const std::size_t reader : needed_by[n])
      if (--waiting[reader] == 0) ready.push(reader);
  }
  if (result.order.size() < count) {
    result.order.clear();
    result.cycle = find_cycle(depends_on, waiting);
  }
  return result;
}

}  // namespace lenslet

#pragma once
// Topological order of nodes.

#include <cstddef>
#include <vector>

namespace lenslet {

struct NodeOrder {
  std::vector<std::size_t> order;  ///< every node once, each after those it depends on; empty when there is a cycle
  std::vector<std::size_t> cycle;  ///< nodes of one cycle, each depending on the one before it; empty without a cycle
};

/// `depends_on[n]` lists the nodes that node n reads from (duplicates allowed). The file's order is kept wherever it is
/// possible: of the nodes that could come next, the one with the lowest index does.
NodeOrder order_nodes(const std::vector<std::vector<std::size_t>>& depends_on);

}  // namespace lenslet

// drop_dead: removes nodes that no graph output depends on, and frees unread constants.
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {

void drop_dead(Graph& graph, const PassContext&) {
  std::vector<bool> wanted(graph.values.size(), false);
  const auto at = [](ValueId id) { return static_cast<std::size_t>(id); };
  for (const ValueId id : graph.outputs) wanted[at(id)] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    bool alive = false;
    for (ValueId& id : node->outputs) {
      if (id == no_id) continue;
      if (wanted[at(id)])
        alive = true;
      else if (node->outputs.size() > 1)
        id = no_id;  // the kernel still writes this unread output
    }
    if (!alive) {
      node->op = nullptr;
      continue;
    }
    for (const ValueId id : node->inputs)
      if (id != no_id) wanted[at(id)] = true;
  }
  remove_erased(graph);
  for (std::size_t id = 0; id < graph.values.size(); ++id)
    if (!wanted[id] && graph.values[id].is_constant()) graph.values[id].constant = Tensor();
}

}  // namespace lenslet

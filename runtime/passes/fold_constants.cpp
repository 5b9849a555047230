// fold_constants: nodes whose inputs are all known are computed now. Shape arithmetic was done by infer_shapes already;
// what is left here are constants that became so through other rewrites, and large ones (ConstantOfShape weights).
#include <utility>
#include <vector>

#include "runtime/graph/infer_node.h"
#include "runtime/passes/passes.h"

namespace lenslet {

void fold_constants(Graph& graph, const PassContext&) {
  NodeInference inference(graph, folding_node_bytes);
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (Node& node : graph.nodes)
    if (!inference.evaluate(node)) kept.push_back(std::move(node));
  graph.nodes = std::move(kept);
}

}  // namespace lenslet

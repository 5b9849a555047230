// fold_constants: evaluates nodes whose inputs are all constant. infer_shapes has already done shape arithmetic; left
// are constants created by other rewrites, and large ones (ConstantOfShape weights).
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

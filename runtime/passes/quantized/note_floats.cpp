// Step of lower_quantized: why values are still dequantised and quantised.

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/passes/quantized/linear.h"

namespace lenslet {
namespace {

std::string joined(const std::set<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "float: " : "; ") + reason;
  return text;
}

}  // namespace

void note_floats(GraphEdit& edit, const Refusals& refusals) {
  Graph& graph = edit.graph();
  const std::vector<std::vector<NodeId>> readers = graph.readers();
  const auto reason = [&](NodeId id) {
    const Node& node = graph.node(id);
    const auto refused = refusals.find(id);
    return refused != refusals.end() ? fmt::format("{} ({}): {}", node.name, node.type(), refused->second)
                                     : fmt::format("{} has no kernel on codes", node.type());
  };
  for (const NodeId n : edit.nodes()) {
    if (edit.erased(n)) continue;
    Node& node = graph.node(n);
    const bool quantizes = node.type() == "QuantizeLinear";
    if (!quantizes && node.type() != "DequantizeLinear") continue;
    std::set<std::string> reasons;
    if (!linear_of(graph, node)) {
      reasons.insert("its codes are not of 8 bits with one known scale");
    } else if (quantizes) {
      const NodeId above = edit.producer(node.inputs[0]);
      reasons.insert(above == no_id ? "a network's input" : reason(above));
    } else {
      for (const NodeId below : readers[static_cast<std::size_t>(node.outputs[0])]) reasons.insert(reason(below));
      if (edit.is_output(node.outputs[0])) reasons.insert("a network's output");
    }
    node.note = joined(reasons);
  }
}

}  // namespace lenslet

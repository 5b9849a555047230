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

/// Why a QuantizeLinear or DequantizeLinear has no Linear.
std::string why_unknown(const Graph& graph, const Node& node) {
  const bool quantizes = node.type() == "QuantizeLinear";
  const Value &codes = graph.value(quantizes ? node.outputs[0] : node.inputs[0]), &scale = graph.value(node.inputs[1]);
  if (codes.dtype != DType::u8 && codes.dtype != DType::i8)
    return fmt::format("its codes are {}, not 8 bits", to_string(codes.dtype));
  if (!scale.is_constant()) return "its scale is computed by the run: quantise with known scales";
  if (scale.constant.elems() != 1) return "its codes have a scale for each channel or block: give all one";
  return "its codes have no one known scale that is a normal float32";
}

}  // namespace

void note_floats(GraphEdit& edit, const Refusals& refusals) {
  Graph& graph = edit.graph();
  const std::vector<std::vector<NodeId>> readers = graph.readers();
  const auto reason = [&](NodeId id) {
    const Node& node = graph.node(id);
    const auto refused = refusals.find(id);
    return refused != refusals.end() ? fmt::format("{} ({}): {}", node.name, node.type(), refused->second)
                                     : fmt::format("no int8 kernel of {}", node.type());
  };
  for (const NodeId n : edit.nodes()) {
    if (edit.erased(n)) continue;
    Node& node = graph.node(n);
    const bool quantizes = node.type() == "QuantizeLinear";
    if (node.type() == "DynamicQuantizeLinear")
      node.note = "float: its scale is computed by the run: quantise with known scales";
    if (!quantizes && node.type() != "DequantizeLinear") continue;
    std::set<std::string> reasons;
    if (!linear_of(graph, node)) {
      reasons.insert(why_unknown(graph, node));
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

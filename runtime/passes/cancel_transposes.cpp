// cancel_transposes: exports from NHWC frameworks put a Transpose before and after each convolution. Transposes from
// [N,C,H,W] to [N,H,W,C] move down through ops that work on either, until they cancel with an inverse one or reach an
// op that needs [N,H,W,C] or the end. Inverse ones move up through Pad, which is then next to its convolution. The rest
// cost nothing where assign_formats treats them as a change of format.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

std::optional<Integers> permutation(const Graph& graph, const Node& node) {
  if (node.type() != "Transpose") return std::nullopt;
  if (auto perm = integers_attribute(*node.op, "perm"); perm && !perm->empty()) return perm;
  Integers reversed;
  for (std::int64_t axis = graph.value(node.inputs[0]).shape.rank(); axis-- > 0;) reversed.push_back(axis);
  return reversed;
}

/// Moves Transposes down and joins neighbours, building the list of nodes anew.
class Sinker {
 public:
  explicit Sinker(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      for (ValueId& id : node.inputs)
        if (const auto same = same_as_.find(id); same != same_as_.end()) id = same->second;
      if (const auto perm = permutation(graph_, node))
        join(std::move(node), *perm);
      else if (!sink(node))
        graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  struct Transposed {
    ValueId source = no_id;
    Integers perm;
  };

  /// A Transpose of a Transpose reads the first one's input.
  void join(Node node, Integers perm) {
    if (const auto found = made_by_.find(node.inputs[0]); found != made_by_.end()) {
      for (std::int64_t& axis : perm) axis = found->second.perm[static_cast<std::size_t>(axis)];
      node.inputs[0] = found->second.source;
      node.op = make_transpose_op(perm);
      // A graph output keeps its node; drop_identity may remove it.
      if (std::is_sorted(perm.begin(), perm.end()) && !graph_.is_output(node.outputs[0])) {
        same_as_[node.outputs[0]] = node.inputs[0];
        return;
      }
    }
    made_by_[node.outputs[0]] = {node.inputs[0], std::move(perm)};
    graph_.nodes.push_back(std::move(node));
  }

  bool sink(const Node& node) {
    std::vector<ValueId> twins;
    bool any = false;
    for (const ValueId id : node.inputs) {
      const auto found = id == no_id ? made_by_.end() : made_by_.find(id);
      const bool transposed = found != made_by_.end() && found->second.perm == to_channels_last;
      twins.push_back(transposed ? found->second.source : no_id);
      any = any || transposed;
    }
    if (!any) return false;
    auto moved = to_channels_first_node(graph_, node, twins);
    if (!moved) return false;
    std::move(moved->before.begin(), moved->before.end(), std::back_inserter(graph_.nodes));
    Node above;
    above.name = node.name;
    above.op = std::move(moved->op);
    above.inputs = std::move(moved->inputs);
    if (moved->same_result) {
      above.outputs = node.outputs;
      graph_.nodes.push_back(std::move(above));
      return true;
    }
    const ValueId result = graph_.add_value(graph_.value(node.outputs[0]).name + ":channels_first");
    graph_.value(result).dtype = graph_.value(node.outputs[0]).dtype;
    graph_.value(result).shape = moved->output;
    graph_.value(result).typed = true;
    graph_.value(result).file_type = graph_.value(node.outputs[0]).file_type;
    above.outputs = {result};
    graph_.nodes.push_back(std::move(above));
    Node below;
    below.name = node.name + ":transpose";
    below.op = make_transpose_op(to_channels_last);
    below.inputs = {result};
    below.outputs = node.outputs;
    made_by_[node.outputs[0]] = {result, to_channels_last};
    graph_.nodes.push_back(std::move(below));
    return true;
  }

  Graph& graph_;
  std::map<ValueId, Transposed> made_by_;  // by the output of a Transpose
  std::map<ValueId, ValueId> same_as_;     // values of cancelled pairs
};

/// Transpose(Pad(x)) becomes Pad(Transpose(x)) where nobody else reads the padded value.
void raise_through_pads(Graph& graph) {
  GraphEdit edit(graph);
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    if (permutation(graph, graph.nodes[n]) != to_channels_first) continue;
    const ValueId padded = graph.nodes[n].inputs[0];
    const NodeId pad = edit.merges(padded) ? edit.producer(padded) : no_id;
    if (pad == no_id || graph.node(pad).type() != "Pad") continue;
    const ValueId x = graph.node(pad).inputs[0];
    if (graph.value(x).is_constant()) continue;

    const Shape& s = graph.value(x).shape;
    const Shape first{s[0], s[3], s[1], s[2]};
    const ValueId twin = edit.add_value_like(graph.value(x).name + ":channels_first", graph.value(x));
    graph.value(twin).shape = first;
    std::vector<ValueId> twins(graph.node(pad).inputs.size(), no_id);
    twins[0] = twin;
    auto moved = to_channels_first_node(graph, graph.node(pad), twins);
    if (!moved || !moved->before.empty()) continue;
    // Swaps Pad and Transpose; the inputs of both precede them.
    Node& above = graph.node(pad);
    Node& below = graph.nodes[n];
    std::swap(above.name, below.name);
    above.op = below.op;
    above.inputs = {x};
    above.outputs = {twin};
    below.op = std::move(moved->op);
    below.inputs = std::move(moved->inputs);
  }
}

/// Removes unread Transposes; those that only move dimensions of size 1 become Reshapes, which cost nothing.
void tidy(Graph& graph) {
  GraphEdit edit(graph);
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const auto id = static_cast<NodeId>(n);
    const auto perm = permutation(graph, graph.nodes[n]);
    if (!perm) continue;
    const ValueId from = graph.nodes[n].inputs[0], to = graph.nodes[n].outputs[0];
    if (edit.uses(to) == 0) {
      edit.erase(id);
    } else if (keeps_order(*perm, graph.value(from).shape)) {
      const ValueId shape = edit.add_sizes(graph.nodes[n].name + ":shape", graph.value(to).shape.dims());
      edit.replace(id, make_reshape_op(), {from, shape});
    }
  }
  edit.finish();
}

}  // namespace

void cancel_transposes(Graph& graph, const PassContext&) {
  Sinker(graph).run();
  raise_through_pads(graph);
  tidy(graph);
}

}  // namespace lenslet

// assign_layout: each 4-D value gets a layout, and conversions stand where two do not meet. Layouts follow the data:
// a convolution runs where its algorithm wants, an op that runs in both keeps the layout in which most bytes arrive.
// Conversions are made once a value, graph outputs are always nchw.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "ops/movement/layout_convert.h"
#include "ops/shape/relabel.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

class LayoutAssigner {
 public:
  explicit LayoutAssigner(Graph& graph) : graph_(graph), twins_(graph.values.size(), no_id) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (!relabel_transpose(node)) assign(node);
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& output : graph_.outputs) output = as_output(output);
  }

 private:
  bool moves(ValueId id) const {
    return id != no_id && !graph_.value(id).is_constant() && graph_.value(id).shape.rank() == 4;
  }

  /// A Transpose between [N,H,W,C] and [N,C,H,W] costs nothing when one side is nhwc.
  bool relabel_transpose(Node& node) {
    if (node.type() != "Transpose" || !moves(node.inputs[0])) return false;
    const auto perm = integers_attribute(*node.op, "perm");
    if (perm == to_channels_first) {
      node.inputs[0] = in_layout(node.inputs[0], formats::nchw);
      node.op = std::make_shared<RelabelOp>(RelabelOp::Kind::channels_first);
      graph_.value(node.outputs[0]).layout = formats::nhwc;
      return true;
    }
    if (perm == to_channels_last && available(node.inputs[0], formats::nhwc)) {
      node.inputs[0] = in_layout(node.inputs[0], formats::nhwc);
      node.op = std::make_shared<RelabelOp>(RelabelOp::Kind::channels_last);
      return true;
    }
    return false;
  }

  /// Is the value in that layout already, or converted to it for an earlier reader?
  bool available(ValueId id, Format layout) const {
    return graph_.value(id).layout == layout || twins_[static_cast<std::size_t>(id)] != no_id;
  }

  Format choose(const Node& node) const {
    const std::vector<InputInfo> infos = graph_.input_infos(node);
    if (!node.op->runs_in(formats::nhwc, infos)) return formats::nchw;
    if (!node.op->runs_in(formats::nchw, infos)) return formats::nhwc;
    std::int64_t nchw = 0, nhwc = 0;  // elements that are there already
    for (const ValueId id : node.inputs) {
      if (!moves(id)) continue;
      if (available(id, formats::nchw)) nchw += graph_.value(id).shape.elems();
      if (available(id, formats::nhwc)) nhwc += graph_.value(id).shape.elems();
    }
    return nhwc > 0 && nhwc >= nchw ? formats::nhwc : formats::nchw;
  }

  void assign(Node& node) {
    const Format layout = choose(node);
    for (ValueId& id : node.inputs)
      if (moves(id)) id = in_layout(id, layout);
    for (const ValueId id : node.outputs)
      if (id != no_id && graph_.value(id).shape.rank() == 4) graph_.value(id).layout = layout;
  }

  /// `id`, or its twin in `layout`, converted before the node that comes next.
  ValueId in_layout(ValueId id, Format layout) {
    if (graph_.value(id).layout == layout) return id;
    if (const ValueId twin = twins_[static_cast<std::size_t>(id)]; twin != no_id) return twin;
    const Value original = graph_.value(id);
    const std::string name = fmt::format("{}:{}", original.name, to_string(layout));
    const ValueId twin = graph_.add_value(name);
    Value& converted = graph_.value(twin);
    converted = original;
    converted.name = name;
    converted.layout = layout;
    Node node;
    node.name = name;
    if (same_bytes(formats::nchw, formats::nhwc, original.shape))
      node.op = std::make_shared<RelabelOp>(RelabelOp::Kind::layout);
    else
      node.op = make_layout_convert();
    node.inputs = {id};
    node.outputs = {twin};
    graph_.nodes.push_back(std::move(node));
    twins_.resize(graph_.values.size(), no_id);
    twins_[static_cast<std::size_t>(id)] = twin;
    twins_[static_cast<std::size_t>(twin)] = id;
    return twin;
  }

  /// The value in nchw, under the name the graph gave its output.
  ValueId as_output(ValueId id) {
    const std::size_t before = graph_.nodes.size();
    const ValueId out = in_layout(id, formats::nchw);
    if (graph_.nodes.size() != before) std::swap(graph_.value(id).name, graph_.value(out).name);
    return out;
  }

  Graph& graph_;
  std::vector<ValueId> twins_;  // by value: itself in the other layout
};

}  // namespace

void assign_layout(Graph& graph, const PassContext&) { LayoutAssigner(graph).run(); }

}  // namespace lenslet

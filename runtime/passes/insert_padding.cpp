// insert_padding: a convolution whose algorithm wants padded input gets a Pad step before it, in the algorithm's
// layout.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/movement/pad.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {

void insert_padding(Graph& graph, const PassContext&) {
  using Pads = std::array<std::int64_t, 4>;            // top, left, bottom, right
  std::map<std::pair<ValueId, Pads>, ValueId> padded;  // the branches of an Inception module may share one
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  for (Node& node : nodes) {
    const auto* conv = dynamic_cast<const ConvOp*>(node.op.get());
    const bool wanted = conv != nullptr && conv->algorithm != nullptr && conv->algorithm->wants_padded();
    if (wanted) {
      const ConvProblem problem = conv->problem(graph.input_infos(node));
      if (problem.padded()) {
        const Pads pads{problem.pad_top, problem.pad_left, problem.pad_bottom, problem.pad_right};
        auto [it, added] = padded.try_emplace({node.inputs[0], pads}, no_id);
        if (added) {
          const Value& x = graph.value(node.inputs[0]);
          const Shape shape = x.shape.with(2, x.shape[2] + pads[0] + pads[2]).with(3, x.shape[3] + pads[1] + pads[3]);
          Value made;
          made.name = node.name + ":padded";
          made.dtype = x.dtype;
          made.shape = shape;
          made.typed = true;
          made.layout = x.layout;
          it->second = graph.add_value(made.name);
          graph.value(it->second) = std::move(made);
          Node pad;
          pad.name = node.name + ":pad";
          pad.op = make_explicit_pad(pads[0], pads[1], pads[2], pads[3]);
          pad.inputs = {node.inputs[0]};
          pad.outputs = {it->second};
          graph.nodes.push_back(std::move(pad));
        }
        auto valid = std::make_shared<ConvOp>(*conv);
        valid->geometry.pads = {0, 0, 0, 0};
        valid->geometry.auto_pad = AutoPad::notset;
        node.op = std::move(valid);
        node.inputs[0] = it->second;
      }
    }
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace lenslet

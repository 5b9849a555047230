// widen: floats of 16 and 64 bits become float32, as constants, as attributes and between nodes; ports keep the type
// that the model declares, with a Cast behind or before them. It runs once a model, before anything is known of a plan;
// values keep their numbers, so that ModelImpl::source still tells a pass of the plan what the file's types were.
#include <fmt/format.h>

#include <utility>

#include "base/dtypes.h"
#include "ops/core/onnx_types.h"
#include "runtime/graph/if_op.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using NarrowOrWide = Types<Float16, BFloat16, double>;

DType widened(DType dtype) { return dtypes<NarrowOrWide>.contains(dtype) ? DType::f32 : dtype; }

Tensor widened(const Tensor& tensor) {
  return widened(tensor.dtype()) == tensor.dtype() ? tensor : tensor.to_dtype(DType::f32);
}

/// The attributes that hold such tensors or ask for such types, changed.
AttributeList changed_attributes(const Op& op) {
  AttributeList changed;
  for (const auto& [name, value] : op.attributes()) {
    if (const auto* tensor = std::get_if<Tensor>(&value)) {
      if (widened(tensor->dtype()) != tensor->dtype()) changed.emplace_back(name, widened(*tensor));
    } else if (const auto* number = std::get_if<std::int64_t>(&value);
               number != nullptr && (name == "dtype" || (op.type() == "Cast" && name == "to"))) {
      const DType dtype = dtype_from_onnx(*number);
      if (widened(dtype) != dtype) changed.emplace_back(name, dtype_to_onnx(widened(dtype)));
    }
  }
  return changed;
}

void widen_inside(Graph& graph);

std::shared_ptr<const Op> widened(const IfOp& op) {
  const auto branch = [](IfOp::Branch changed) {
    if (changed.graph == nullptr) return changed;
    Graph graph = *changed.graph;
    widen_inside(graph);
    changed.graph = std::make_shared<const Graph>(std::move(graph));
    return changed;
  };
  return std::make_shared<IfOp>(branch(op.branch(true)), branch(op.branch(false)));
}

/// Constants and attributes, branches included.
void widen_inside(Graph& graph) {
  for (Value& value : graph.values) {
    if (!value.is_constant()) continue;
    value.constant = widened(value.constant);
    value.dtype = value.constant.dtype();
  }
  for (Node& node : graph.nodes) {
    if (const auto* choice = dynamic_cast<const IfOp*>(node.op.get()))
      node.op = widened(*choice);
    else if (const AttributeList changed = changed_attributes(*node.op); !changed.empty())
      node.op = with_attributes(*node.op, changed, node.inputs.size(), node.outputs.size());
  }
}

class Widener {
 public:
  explicit Widener(Graph& graph) : graph_(graph) {}

  void run() {
    widen_inside(graph_);
    widen_inputs();
    widen_outputs();
  }

 private:
  void widen_inputs() {
    std::vector<Node> casts;
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const std::string& name = graph_.input_ports[i].name;
      const DType declared = graph_.input_ports[i].dtype;
      if (widened(declared) == declared) continue;
      const ValueId inside = graph_.add_value(name + ":float32");
      graph_.replace_uses(graph_.inputs[i], inside);
      casts.push_back(cast(name + ":to_float32", graph_.inputs[i], inside, DType::f32));
    }
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(casts.begin()),
                        std::make_move_iterator(casts.end()));
  }

  void widen_outputs() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const std::string& name = graph_.output_ports[i].name;
      const DType declared = graph_.output_ports[i].dtype;
      if (widened(declared) == declared) continue;
      const ValueId inside = graph_.outputs[i];
      if (!graph_.is_input(inside)) graph_.value(inside).name = name + ":float32";
      const ValueId outside = graph_.add_value(name);
      graph_.nodes.push_back(cast(name + ":from_float32", inside, outside, declared));
      graph_.outputs[i] = outside;
    }
  }

  static Node cast(std::string name, ValueId from, ValueId to, DType dtype) {
    Node node;
    node.name = std::move(name);
    node.op = make_normalised_op("Cast", {{"to", dtype_to_onnx(dtype)}}, 1);
    node.inputs = {from};
    node.outputs = {to};
    return node;
  }

  Graph& graph_;
};

}  // namespace

void widen(Graph& graph, const PassContext&) { Widener(graph).run(); }

}  // namespace lenslet

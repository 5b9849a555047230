// widen: floats of 16 and 64 bits become float32, as constants, as attributes and between nodes; ports keep the type
// that the model declares, with a Cast behind or before them. Results of 16-bit nodes are not rounded to 16 bits; an
// explicit Cast to them is kept, followed by a Cast back. Value::file_type keeps the file's type where it is known
// here; shape inference propagates it (runtime/graph/file_types.h). Runs once per model, before planning; ValueIds do
// not change.
#include <fmt/format.h>

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtypes.h"
#include "ops/core/onnx_types.h"
#include "runtime/graph/file_types.h"
#include "runtime/graph/if_op.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using NarrowOrWide = Types<Float16, BFloat16, double>;

DType widened(DType dtype) { return dtypes<NarrowOrWide>.contains(dtype) ? DType::f32 : dtype; }

Tensor widened(const Tensor& tensor) {
  return widened(tensor.dtype()) == tensor.dtype() ? tensor : tensor.to_dtype(DType::f32);
}

/// Converts attributes that hold such tensors or name such types.
struct Changed {
  AttributeList attributes;
  DType dtype = DType::f32;  ///< their original type
};

Changed changed_attributes(const Op& op) {
  Changed changed;
  for (const auto& [name, value] : op.attributes()) {
    if (const auto* tensor = std::get_if<Tensor>(&value)) {
      if (widened(tensor->dtype()) == tensor->dtype()) continue;
      changed.attributes.emplace_back(name, widened(*tensor));
      changed.dtype = tensor->dtype();
    } else if (const auto* number = std::get_if<std::int64_t>(&value);
               number != nullptr &&
               (name == "dtype" || name == "output_dtype" || (op.type() == "Cast" && name == "to"))) {
      const DType dtype = dtype_from_onnx(*number);
      if (widened(dtype) == dtype) continue;
      changed.attributes.emplace_back(name, dtype_to_onnx(widened(dtype)));
      changed.dtype = dtype;
    }
  }
  return changed;
}

std::unordered_map<ValueId, ValueId> widen_inside(Graph& graph);

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

/// By value: constants read only by Casts, which need not become float32 first.
std::vector<bool> only_cast(const Graph& graph) {
  std::vector<bool> cast(graph.values.size()), otherwise(graph.values.size());
  for (const Node& node : graph.nodes)
    for (const ValueId id : node.inputs)
      if (id != no_id) (node.type() == "Cast" ? cast : otherwise)[static_cast<std::size_t>(id)] = true;
  for (const ValueId id : graph.outputs) otherwise[static_cast<std::size_t>(id)] = true;
  for (std::size_t id = 0; id < cast.size(); ++id) cast[id] = cast[id] && !otherwise[id];
  return cast;
}

/// The file's 16-bit type of a value that is float32 from now on.
void note(Value& value, DType dtype) {
  if (is_16_bit(dtype)) value.file_type = dtype;
}

/// Constants, attributes and Casts, branches included. Results of Casts to 16 bits, by the float32 value that replaces
/// them.
std::unordered_map<ValueId, ValueId> widen_inside(Graph& graph) {
  std::unordered_map<ValueId, ValueId> narrow;
  const std::vector<bool> stay = only_cast(graph);
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    Value& value = graph.values[id];
    if (!value.is_constant() || stay[id]) continue;
    note(value, value.dtype);
    value.constant = widened(value.constant);
    value.dtype = value.constant.dtype();
  }
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (Node& node : nodes) {
    std::optional<Node> back;
    if (const auto* choice = dynamic_cast<const IfOp*>(node.op.get())) {
      node.op = widened(*choice);
    } else if (const Changed changed = changed_attributes(*node.op); !changed.attributes.empty()) {
      for (const ValueId id : node.outputs)
        if (id != no_id) note(graph.value(id), changed.dtype);
      if (node.type() == "Cast" && is_16_bit(changed.dtype) && node.outputs[0] != no_id) {
        const std::string name = fmt::format("{}:{}", graph.value(node.outputs[0]).name, to_string(changed.dtype));
        const ValueId made = graph.add_value(name);
        back = cast_node(node.name + ":to_float32", made, node.outputs[0], DType::f32);
        narrow.emplace(node.outputs[0], made);
        node.outputs[0] = made;
      } else {
        node.op = with_attributes(*node.op, changed.attributes, node.inputs.size(), node.outputs.size());
      }
    }
    graph.nodes.push_back(std::move(node));
    if (back) graph.nodes.push_back(std::move(*back));
  }
  return narrow;
}

class Widener {
 public:
  explicit Widener(Graph& graph) : graph_(graph) {}

  void run() {
    narrow_ = widen_inside(graph_);
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
      note(graph_.value(inside), declared);
      graph_.replace_uses(graph_.inputs[i], inside);
      casts.push_back(cast_node(name + ":to_float32", graph_.inputs[i], inside, DType::f32));
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
      // A Cast's 16-bit result becomes the output directly, once.
      if (const auto made = narrow_.extract(inside); !made.empty() && graph_.value(inside).file_type == declared) {
        graph_.value(made.mapped()).name = name;
        graph_.outputs[i] = made.mapped();
        continue;
      }
      const ValueId outside = graph_.add_value(name);
      graph_.nodes.push_back(cast_node(name + ":from_float32", inside, outside, declared));
      graph_.outputs[i] = outside;
    }
  }

  Graph& graph_;
  std::unordered_map<ValueId, ValueId> narrow_;
};

}  // namespace

void widen(Graph& graph, const PassContext&) { Widener(graph).run(); }

}  // namespace lenslet

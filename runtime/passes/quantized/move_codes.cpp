// Step of lower_quantized: nodes that only move elements move codes.

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/evaluate.h"
#include "runtime/passes/quantized/linear.h"
#include "runtime/passes/quantized/moved_inputs.h"

namespace lenslet {
namespace {

bool is_one_of(std::string_view type, std::initializer_list<std::string_view> types) {
  return std::ranges::find(types, type) != types.end();
}

ValueId zero_code(GraphEdit& edit, const std::string& name, const Linear& of) {
  Tensor code(of.type, Shape{});
  *static_cast<std::uint8_t*>(code.data()) = static_cast<std::uint8_t>(of.zero_point);
  return edit.add_constant(name + ":zero", std::move(code));
}

/// Quantises an input of a node that moves it: by the codes that it comes from, once if it is known.
ValueId quantised(GraphEdit& edit, ValueId x, const Node& by, const Linear& to) {
  if (x == no_id) return zero_code(edit, by.name, to);  // Pad's value
  if (const auto codes = codes_of(edit, x); codes && codes->linear == to) return codes->id;
  const std::string name = edit.graph().value(x).name + ":codes";
  if (!edit.graph().value(x).is_constant()) {
    std::vector<ValueId> inputs = by.inputs;
    inputs[0] = x;
    return edit.add_node(name, by.op, std::move(inputs));
  }
  std::vector<Tensor> inputs;
  for (const ValueId id : by.inputs) inputs.push_back(edit.graph().value(id).constant);
  inputs[0] = edit.graph().value(x).constant;
  ThreadPool pool(1);
  return edit.add_constant(name, infer_and_evaluate(by.op, inputs, pool)[0]);
}

/// Above `id`, whose read outputs `readers` quantise alike.
bool quantise_above(GraphEdit& edit, NodeId id, const std::vector<NodeId>& readers,
                    std::map<NodeId, std::vector<NodeId>>& quantizers) {
  const std::vector<std::size_t> moved = moved_inputs(edit, edit.graph().node(id));
  if (moved.empty()) return false;
  const Linear to = quantizer(edit, readers[0])->to;
  std::vector<ValueId> outputs;
  for (const ValueId output : edit.graph().node(id).outputs) {
    outputs.push_back(no_id);
    if (output == no_id || edit.uses(output) == 0) continue;
    for (const NodeId reader : readers)
      if (edit.graph().node(reader).inputs[0] == output) outputs.back() = edit.graph().node(reader).outputs[0];
    if (outputs.back() == no_id) return false;
  }
  for (const NodeId reader : readers)
    if (!(quantizer(edit, reader)->to == to)) return false;
  // Of a part it is less work, unless a product of codes makes it.
  const Node node = edit.graph().node(id);
  const Node* const above = edit.merges(node.inputs[0]) ? edit.producer_node(node.inputs[0]) : nullptr;
  const bool of_product = above != nullptr && is_one_of(above->type(), {"Conv", "ConvTranspose", "Gemm", "MatMul"});
  if (is_one_of(node.type(), {"Slice", "Split", "Gather"}) && !codes_of(edit, node.inputs[0]) && !of_product)
    return false;

  std::vector<ValueId> inputs = node.inputs;
  inputs.resize(std::max(inputs.size(), moved.back() + 1), no_id);
  const Node by = edit.graph().node(readers[0]);
  for (const std::size_t i : moved) inputs[i] = quantised(edit, inputs[i], by, to);
  const std::vector<ValueId> codes = inputs;
  edit.replace(id, node.op, std::move(inputs));
  edit.set_outputs(id, std::move(outputs));
  for (const NodeId reader : readers) edit.erase(reader);
  for (const ValueId input : node.inputs) edit.erase_unread(input);
  for (const ValueId made : codes)
    if (const NodeId n = edit.producer(made); n != no_id && quantizer(edit, n))
      if (const ValueId x = edit.graph().node(n).inputs[0]; edit.merges(x)) quantizers[edit.producer(x)].push_back(n);
  return true;
}

/// `id`, whose work a new node does on codes, dequantises its result like `by`.
void dequantise(GraphEdit& edit, NodeId id, const Node& by, std::vector<ValueId> inputs) {
  edit.graph().value(inputs[0]).name += ":codes";
  edit.graph().node(id).name += ":dequantized";
  const std::vector<ValueId> old = edit.graph().node(id).inputs;
  edit.replace(id, by.op, std::move(inputs));
  for (const ValueId input : old) edit.erase_unread(input);
}

/// Behind a Relu that alone reads a dequantised value: its result, quantised alike, is the same number.
void quantise_relu(GraphEdit& edit, NodeId id) {
  const Node node = edit.graph().node(id);
  const auto activation = node.op->as_activation(edit.graph().input_infos(node));
  if (!activation || activation->kind != Activation::Kind::relu || !edit.merges(node.inputs[0])) return;
  const auto codes = codes_of(edit, node.inputs[0]);
  if (!codes) return;
  const Node by = *edit.producer_node(node.inputs[0]);
  std::vector<ValueId> parameters = by.inputs;
  if (input_of(by, 2) == no_id) {
    parameters.resize(2);
    parameters.push_back(zero_code(edit, by.name, codes->linear));
  }
  const ValueId result = edit.add_node(node.name, node.op, node.inputs);
  parameters[0] = result;
  parameters[0] =
      edit.add_node(node.name + ":quantized",
                    make_normalised_op("QuantizeLinear", {{"axis", std::int64_t{1}}}, parameters.size()), parameters);
  dequantise(edit, id, by, std::move(parameters));
}

/// Below `id`, if it alone reads what it moves, dequantised alike.
void dequantise_below(GraphEdit& edit, NodeId id) {
  const Node node = edit.graph().node(id);
  if (node.outputs.size() != 1 || is_one_of(node.type(), {"Resize", "Upsample", "Expand", "Tile", "Pad"})) return;
  const std::vector<std::size_t> moved = moved_inputs(edit, node);
  std::vector<ValueId> inputs = node.inputs;
  std::optional<CodesOf> first;
  for (const std::size_t i : moved) {
    const auto codes = codes_of(edit, inputs[i]);
    if (!codes || !edit.merges(inputs[i]) || (first && !(first->linear == codes->linear))) return;
    first = codes;
    inputs[i] = codes->id;
  }
  if (!first) return;
  const Node by = *edit.producer_node(node.inputs[0]);
  std::vector<ValueId> parameters = by.inputs;
  parameters[0] = edit.add_node(node.name, node.op, std::move(inputs));
  dequantise(edit, id, by, std::move(parameters));
}

/// A value that is quantised alike for several readers is quantised once.
void share_quantizers(GraphEdit& edit) {
  std::map<ValueId, std::vector<Quantizer>> of_value;
  std::map<ValueId, ValueId> shared;
  for (const NodeId n : edit.nodes()) {
    std::vector<ValueId> inputs = edit.graph().node(n).inputs;
    for (ValueId& id : inputs)
      if (const auto found = shared.find(id); found != shared.end()) id = found->second;
    if (inputs != edit.graph().node(n).inputs) edit.replace(n, edit.graph().node(n).op, inputs);
    const auto own = quantizer(edit, n);
    if (!own || edit.is_output(edit.graph().node(n).outputs[0])) continue;
    std::vector<Quantizer>& others = of_value[inputs[0]];
    const auto same = std::ranges::find(others, own->to, &Quantizer::to);
    if (same == others.end())
      others.push_back(*own);
    else
      shared.emplace(edit.graph().node(n).outputs[0], edit.graph().node(same->node).outputs[0]);
  }
  for (const auto& [id, instead] : shared) edit.erase_unread(id);
}

/// Of dequantised images, as the reduction that moves codes.
void reduce_images(GraphEdit& edit, NodeId id) {
  const Node node = edit.graph().node(id);
  if (node.type() != "GlobalMaxPool" || !codes_of(edit, node.inputs[0])) return;
  std::vector<std::int64_t> axes;
  for (int axis = 2; axis < edit.graph().value(node.inputs[0]).shape.rank(); ++axis) axes.push_back(axis);
  edit.replace(id, make_normalised_op("ReduceMax", {{"axes", std::move(axes)}, {"keepdims", std::int64_t{1}}}, 1),
               node.inputs);
}

}  // namespace

void move_codes(GraphEdit& edit) {
  for (const NodeId n : edit.nodes())
    if (!edit.erased(n)) reduce_images(edit, n);
  share_quantizers(edit);
  std::map<NodeId, std::vector<NodeId>> quantizers;  // that alone read an output of the node
  std::vector<NodeId> nodes = edit.nodes();
  for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) {
    if (edit.erased(*n)) continue;
    if (const auto found = quantizers.find(*n); found != quantizers.end()) {
      const std::vector<NodeId> readers = found->second;
      if (quantise_above(edit, *n, readers, quantizers)) continue;
    }
    if (const ValueId x = input_of(edit.graph().node(*n), 0); quantizer(edit, *n) && edit.merges(x))
      quantizers[edit.producer(x)].push_back(*n);
  }
  for (const NodeId n : nodes)
    if (!edit.erased(n)) {
      quantise_relu(edit, n);
      dequantise_below(edit, n);
    }
}

}  // namespace lenslet

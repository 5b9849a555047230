#include "runtime/graph/file_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "lenslet/error.h"
#include "ops/core/onnx_types.h"

namespace lenslet {
namespace {

bool stands_for_16_bits(const Graph& graph, ValueId id) {
  return id != no_id && graph.value(id).dtype == DType::f32 && is_16_bit(graph.value(id).file_type);
}

/// The 16-bit type shared by all non-constant inputs of the node, if any.
std::optional<DType> type_of_data(const Graph& graph, const Node& node) {
  std::optional<DType> common;
  for (const ValueId id : node.inputs) {
    if (id == no_id || graph.value(id).dtype != DType::f32 || graph.value(id).is_constant()) continue;
    const DType dtype = graph.value(id).file_type;
    if (!is_16_bit(dtype) || (common && *common != dtype)) return std::nullopt;
    common = dtype;
  }
  return common;
}

/// Output types for the input types `type_of(value, number)`; nullopt if the operator does not accept them.
template <typename TypeOf>
std::optional<std::vector<TensorType>> types_of(const Graph& graph, const Node& node, const TypeOf& type_of) {
  std::vector<InputInfo> inputs = graph.input_infos(node);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].present) inputs[i].type.dtype = type_of(graph.value(node.inputs[i]), i);
  try {
    return node.op->infer(inputs);
  } catch (const Error&) {
    return std::nullopt;
  }
}

DType cast_to(const Node& node) { return dtype_from_onnx(*integer_attribute(*node.op, "to")); }
bool widens(const Node& node) { return cast_to(node) == DType::f32; }

}  // namespace

void infer_file_types(Graph& graph, const Node& node) {
  const auto reads_16_bits = [&](ValueId id) { return stands_for_16_bits(graph, id); };
  if (std::none_of(node.inputs.begin(), node.inputs.end(), reads_16_bits)) return;
  auto types = types_of(graph, node, [](const Value& value, std::size_t) { return type_in_file(value); });
  if (!types) {
    const std::optional<DType> data = type_of_data(graph, node);
    if (!data) return;
    // Constants of operators expanded by the loader (ops/expand.cpp) are always float32, and some of our operators
    // accept only float32 after input 0.
    types = types_of(graph, node, [&](const Value& value, std::size_t) {
      return value.dtype == DType::f32 && value.is_constant() ? *data : type_in_file(value);
    });
    if (!types)
      types = types_of(graph, node,
                       [](const Value& value, std::size_t i) { return i == 0 ? type_in_file(value) : value.dtype; });
  }
  if (!types) return;
  for (std::size_t i = 0; i < std::min(node.outputs.size(), types->size()); ++i) {
    if (node.outputs[i] == no_id) continue;
    Value& output = graph.value(node.outputs[i]);
    if (output.dtype == DType::f32 && is_16_bit((*types)[i].dtype)) output.file_type = (*types)[i].dtype;
  }
}

std::vector<Node> with_rounding(Graph& graph, const Node& node, RoundedValues& values) {
  if (node.outputs.empty() || node.outputs[0] == no_id) return {};
  const ValueId x = node.inputs[0], y = node.outputs[0];
  std::vector<Node> nodes;
  const auto rounding = [&](ValueId from, DType to, const std::string& last) {
    const std::string name = fmt::format("{}:{}", graph.value(y).name, to_string(to));
    const ValueId made = graph.add_value(name);
    nodes.push_back(cast_node(name, from, made, to));
    nodes.push_back(cast_node(last, made, y, DType::f32));
    graph.value(y).file_type = to;
  };
  if (node.type() == "Cast") {
    if (const auto same = values.unrounded.find(x); same != values.unrounded.end() && widens(node)) {
      nodes.push_back(node);
      nodes.back().op = make_normalised_op("Identity", {}, 1);
      nodes.back().inputs = {same->second};
    } else if (stands_for_16_bits(graph, x) && cast_to(node) == graph.value(x).file_type &&
               !values.to_round.contains(x)) {
      values.unrounded.emplace(y, x);
    }
  } else if (node.type() == "CastLike") {
    const DType to = type_in_file(graph.value(node.inputs[1]));
    if (is_16_bit(to) && to != type_in_file(graph.value(x))) rounding(x, to, node.name);
  } else if (node.type() == "DequantizeLinear" && !values.to_round.contains(y)) {
    const DType stated = graph.value(y).file_type;  // as output_dtype was before `widen`
    const bool by_scale = !is_16_bit(stated) && !integer_attribute(*node.op, "output_dtype");
    if (const DType to = by_scale ? type_in_file(graph.value(node.inputs[1])) : stated; is_16_bit(to)) {
      const ValueId exact = graph.add_value(graph.value(y).name + ":exact");
      values.to_round.insert(exact);
      nodes.push_back(node);
      nodes.back().outputs[0] = exact;
      rounding(exact, to, node.name + ":to_float32");
    }
  }
  return nodes;
}

Numerics numerics_in_file(const Graph& graph) {
  double halves = 0, brains = 0;
  for (const Node& node : graph.nodes) {
    if (node.outputs.empty() || !stands_for_16_bits(graph, node.outputs[0])) continue;
    const bool typed = std::ranges::all_of(
        node.inputs, [&](ValueId id) { return id == no_id || graph.value(id).typed || graph.value(id).is_constant(); });
    if (!typed || !graph.value(node.outputs[0]).typed) continue;
    const double flops = node.op->flops(graph.input_infos(node), graph.output_types(node));
    (graph.value(node.outputs[0]).file_type == DType::f16 ? halves : brains) += flops;
  }
  if (halves > 0 && halves >= brains) return parse_numerics("fp16");
  return brains > 0 ? parse_numerics("bf16") : Numerics();
}

Node cast_node(std::string name, ValueId from, ValueId to, DType dtype) {
  Node node;
  node.name = std::move(name);
  node.op = make_normalised_op("Cast", {{"to", dtype_to_onnx(dtype)}}, 1);
  node.inputs = {from};
  node.outputs = {to};
  return node;
}

}  // namespace lenslet

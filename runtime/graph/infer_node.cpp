#include "runtime/graph/infer_node.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/graph/evaluate.h"
#include "runtime/graph/file_types.h"

namespace lenslet {
namespace {

/// Placeholder data for an op with reads_only_types(), which does not read it.
alignas(64) constinit std::byte nothing[64]{};

}  // namespace

void NodeInference::infer(const Node& node) {
  const std::vector<InputInfo> infos = graph_.input_infos(node);
  const std::vector<TensorType> types = infer_types(*node.op, infos);
  if (types.size() < node.outputs.size())
    throw Error(ErrorKind::unsupported,
                fmt::format("has {} outputs, but only {} are supported", node.outputs.size(), types.size()));
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == no_id) continue;
    static_cast<void>(types[i].shape.elems());  // throws when out of bounds
    Value& output = graph_.value(node.outputs[i]);
    output.dtype = types[i].dtype;
    output.shape = types[i].shape;
    output.format = formats::nchw;
    output.typed = true;
  }
  infer_file_types(graph_, node);
}

bool NodeInference::fits(const Node& node, std::size_t result_bytes) const {
  if (result_bytes > bytes_left_) return false;
  if (result_bytes <= node_limit_bytes_) return true;
  std::size_t input_bytes = 0;
  for (const ValueId id : node.inputs)
    if (id != no_id) input_bytes += graph_.value(id).constant.bytes();
  return result_bytes / growth <= input_bytes;
}

bool NodeInference::evaluate(const Node& node) {
  const bool types_only = node.op->reads_only_types();
  std::vector<Tensor> inputs;
  for (const ValueId id : node.inputs) {
    if (id == no_id) {
      inputs.emplace_back();
    } else if (const Value& input = graph_.value(id); input.is_constant()) {
      inputs.push_back(input.constant);
    } else if (types_only) {
      inputs.push_back(Tensor::view(input.dtype, input.shape, nothing));
    } else {
      return false;
    }
  }

  const std::vector<TensorType> types = node.op->infer(graph_.input_infos(node));
  std::size_t result_bytes = 0;
  for (const TensorType& type : types)
    result_bytes += static_cast<std::size_t>(type.shape.elems()) * dtype_bytes(type.dtype);

  std::vector<Tensor> results;
  const int alias = node.op->alias_input();
  if (alias >= 0 && types.size() == 1 && inputs[static_cast<std::size_t>(alias)].format() == formats::nchw &&
      inputs[static_cast<std::size_t>(alias)].dtype() == types[0].dtype) {
    results.push_back(inputs[static_cast<std::size_t>(alias)].reshaped(types[0].shape));  // shares the memory
  } else {
    if (!fits(node, result_bytes)) return false;
    bytes_left_ -= result_bytes;
    results = lenslet::evaluate(node.op, inputs, types, pool_);
    if (node.type() == "DequantizeLinear" && node.outputs[0] != no_id)
      graph_.value(node.outputs[0]).dequantized =
          std::make_shared<const Dequantized>(Dequantized{node.op, std::move(inputs)});
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != no_id) graph_.value(node.outputs[i]).constant = std::move(results[i]);
  return true;
}

}  // namespace lenslet

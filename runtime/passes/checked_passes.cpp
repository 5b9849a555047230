#include "runtime/passes/checked_passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/passes/epilogue.h"

namespace lenslet {
namespace {

TensorType type_of(const Value& value) { return {value.dtype, value.shape}; }

std::string text(const TensorType& type) { return fmt::format("{} {}", to_string(type.dtype), type.shape.str()); }

std::vector<TensorType> types_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<TensorType> types;
  for (const ValueId id : ids) types.push_back(type_of(graph.value(id)));
  return types;
}

}  // namespace

CheckedPasses::CheckedPasses(Graph& graph, const PassContext& context)
    : graph_(graph),
      context_(context),
      inputs_(types_of(graph, graph.inputs)),
      outputs_(types_of(graph, graph.outputs)) {
  look_again(false);
}

void CheckedPasses::run(const Pass& pass) {
  pass.run(graph_, context_);
  try {
    look_again(true);
    check_ports();
  } catch (const Error& error) {
    throw Error(ErrorKind::internal, error.what(), fmt::format("pass {}", pass.name));
  }
}

void CheckedPasses::look_again(bool infer) {
  values_.resize(graph_.values.size());
  nodes_.resize(graph_.values.size());
  changed_.assign(graph_.values.size(), false);
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    SeenValue now{type_of(value), value.typed, value.is_constant() ? value.constant.data() : nullptr};
    if (now == values_[v]) continue;
    values_[v] = now;
    changed_[v] = true;
  }
  const auto any_changed = [&](const std::vector<ValueId>& ids) {
    return std::ranges::any_of(ids, [&](ValueId id) { return id != no_id && changed_[static_cast<std::size_t>(id)]; });
  };
  for (const Node& node : graph_.nodes) {
    const auto first = std::find_if(node.outputs.begin(), node.outputs.end(), [](ValueId id) { return id != no_id; });
    if (first == node.outputs.end()) continue;  // no output has a declared type
    Seen& seen = nodes_[static_cast<std::size_t>(*first)];
    const bool same = seen.op == node.op && seen.inputs == node.inputs && seen.outputs == node.outputs;
    if (same && !any_changed(node.inputs) && !any_changed(node.outputs)) continue;
    if (infer) this->infer(node);
    if (!same) seen = {node.op, node.inputs, node.outputs};
  }
}

void CheckedPasses::infer(const Node& node) const {
  // At a 16-bit precision products keep float32 weights and store the type that assign_types chose, so only their shape
  // follows from the operator.
  const DType storage = context_.target.numerics.storage;
  const bool stores_either =
      storage != DType::f32 &&
      (of_product(node.op->epilogue()) || node.type() == "SeparableConv" || node.type() == "PreactivatedConv");
  const auto as_single = [&](DType dtype) { return stores_either && dtype == storage ? DType::f32 : dtype; };
  std::vector<InputInfo> inputs = graph_.input_infos(node);
  for (InputInfo& input : inputs) input.type.dtype = as_single(input.type.dtype);
  std::vector<TensorType> types;
  try {
    types = infer_types(*node.op, inputs);
  } catch (const Error& error) {
    throw error.within(node.label());
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == no_id) continue;
    const Value& output = graph_.value(node.outputs[i]);
    if (i >= types.size())
      throw Error(ErrorKind::internal, fmt::format("its operator has no output {}", i), node.label());
    const TensorType declared{as_single(output.dtype), output.shape};
    if (!output.typed || declared != types[i])
      throw Error(ErrorKind::internal,
                  fmt::format("{} is {}, but its operator makes {}", output.name,
                              output.typed ? text(type_of(output)) : "of no type", text(types[i])),
                  node.label());
  }
}

void CheckedPasses::check_ports() const {
  const auto check = [&](const char* kind, const std::vector<ValueId>& ids, const std::vector<TensorType>& before) {
    if (ids.size() != before.size())
      throw Error(ErrorKind::internal, fmt::format("the network has {} {}s, not {}", ids.size(), kind, before.size()));
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (const Value& value = graph_.value(ids[i]); type_of(value) != before[i])
        throw Error(ErrorKind::internal,
                    fmt::format("{} {} is {}, but was {}", kind, value.name, text(type_of(value)), text(before[i])));
  };
  check("input", graph_.inputs, inputs_);
  check("output", graph_.outputs, outputs_);
}

}  // namespace lenslet

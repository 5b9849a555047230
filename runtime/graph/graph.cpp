#include "runtime/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lenslet {
namespace {

constexpr std::int64_t dumped_elems = 8;

/// "{1,256}" for short integer constants, whose values decide shapes; "" for others.
std::string short_constant(const Tensor& tensor) {
  if (tensor.elems() > dumped_elems || tensor.elems() == 0) return {};
  std::string text;
  const auto append = [&](auto values) {
    for (const auto value : values) text += fmt::format("{}{}", text.empty() ? "" : ",", value);
  };
  switch (tensor.dtype()) {
    case DType::i64:
      append(tensor.values<std::int64_t>());
      break;
    case DType::i32:
      append(tensor.values<std::int32_t>());
      break;
    case DType::f32:
      append(tensor.values<float>());
      break;
    default:
      return {};
  }
  return " {" + text + "}";
}

/// "conv1_out: float32 [1,64,111,111] nhwc"
std::string declaration(const Value& value) {
  std::string text = value.name + ":";
  if (!value.typed) return text + " ?";
  text += fmt::format(" {} {}", to_string(value.dtype), value.shape.str());
  if (value.format != formats::nchw) text += fmt::format(" {}", to_string(value.format));
  return text;
}

/// " by winograd_f4 (tiles=49)", for a node with several kernels or a configuration; else empty.
std::string kernel_of(const Node& node) {
  if (node.choice == nullptr || (node.choice->rows.size() < 2 && node.choice->candidate.config.empty())) return {};
  const std::string& config = node.choice->candidate.config;
  return fmt::format(" by {}{}", node.choice->kernel->name(), config.empty() ? "" : fmt::format(" ({})", config));
}

[[noreturn]] void broken(const Graph& graph, const std::string& message) {
  throw Error(ErrorKind::internal, "broken graph: " + message, graph.name);
}

}  // namespace

std::string Node::label() const { return fmt::format("node {} ({})", name, type()); }

ValueId Graph::add_value(std::string value_name) {
  Value added;
  added.name = std::move(value_name);
  values.push_back(std::move(added));
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::add_constant(std::string value_name, Tensor tensor) {
  const ValueId id = add_value(std::move(value_name));
  Value& added = value(id);
  added.dtype = tensor.dtype();
  added.shape = tensor.shape();
  added.format = tensor.format();
  added.typed = true;
  added.constant = std::move(tensor);
  return id;
}

std::vector<NodeId> Graph::producers() const {
  std::vector<NodeId> made_by(values.size(), no_id);
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (const ValueId out : nodes[n].outputs)
      if (out != no_id) made_by[static_cast<std::size_t>(out)] = static_cast<NodeId>(n);
  return made_by;
}

std::vector<std::vector<NodeId>> Graph::readers() const {
  std::vector<std::vector<NodeId>> read_by(values.size());
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (const ValueId in : nodes[n].inputs)
      if (in != no_id) read_by[static_cast<std::size_t>(in)].push_back(static_cast<NodeId>(n));
  return read_by;
}

bool Graph::is_output(ValueId id) const { return std::find(outputs.begin(), outputs.end(), id) != outputs.end(); }
bool Graph::is_input(ValueId id) const { return std::find(inputs.begin(), inputs.end(), id) != inputs.end(); }

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node& reader : nodes) std::replace(reader.inputs.begin(), reader.inputs.end(), from, to);
  std::replace(outputs.begin(), outputs.end(), from, to);
}

std::vector<InputInfo> Graph::input_infos(const Node& reader) const {
  std::vector<InputInfo> infos;
  infos.reserve(reader.inputs.size());
  for (const ValueId id : reader.inputs) {
    InputInfo info;
    if (id != no_id) {
      const Value& input = value(id);
      info = {.present = true,
              .type = {input.dtype, input.shape},
              .constant = input.is_constant() ? &input.constant : nullptr};
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

std::vector<TensorType> Graph::output_types(const Node& producer) const {
  // An unread output has no value with a type, but the kernel still writes it.
  if (std::find(producer.outputs.begin(), producer.outputs.end(), no_id) != producer.outputs.end())
    return producer.op->infer(input_infos(producer));
  std::vector<TensorType> types;
  types.reserve(producer.outputs.size());
  for (const ValueId id : producer.outputs) types.push_back({value(id).dtype, value(id).shape});
  return types;
}

std::string Graph::dump() const {
  std::string text = fmt::format("graph {}: {} nodes\n", name, nodes.size());
  for (const ValueId id : inputs) text += fmt::format("input {}\n", declaration(value(id)));
  const auto read_by = readers();
  for (std::size_t id = 0; id < values.size(); ++id)
    if (values[id].is_constant() && !read_by[id].empty())
      text += fmt::format("constant {}{}\n", declaration(values[id]), short_constant(values[id].constant));
  for (const Node& shown : nodes) {
    std::string outs;
    for (const ValueId id : shown.outputs) {
      if (!outs.empty()) outs += ", ";
      outs += id == no_id ? "_" : declaration(value(id));
    }
    std::string ins;
    for (const ValueId& id : shown.inputs) {
      if (&id != &shown.inputs.front()) ins += ", ";
      ins += id == no_id ? "_" : value(id).name;
    }
    const std::string attributes = to_string(shown.op->attributes());
    text += fmt::format("{} = {}({}){}{}{}  # {}\n", outs, shown.type(), ins, attributes.empty() ? "" : " ", attributes,
                        kernel_of(shown), shown.name);
  }
  for (const ValueId id : outputs) text += fmt::format("output {}\n", declaration(value(id)));
  for (const Band& band : bands)
    text += fmt::format("band {} to {}: {}\n", node(band.first).name, node(band.last).name, band.reason);
  return text;
}

void Graph::check() const {
  const auto in_range = [&](ValueId id) { return id >= 0 && static_cast<std::size_t>(id) < values.size(); };
  if (inputs.size() != input_ports.size() || outputs.size() != output_ports.size())
    broken(*this, "ports do not match inputs and outputs");

  std::vector<bool> defined(values.size(), false);
  for (std::size_t id = 0; id < values.size(); ++id) {
    const Value& checked = values[id];
    if (checked.typed && checked.format != formats::nchw && checked.shape.rank() != 4)
      broken(*this, fmt::format("value {} of rank {} has a layout", checked.name, checked.shape.rank()));
    if (!checked.is_constant()) continue;
    defined[id] = true;
    if (!checked.typed || checked.dtype != checked.constant.dtype() || !(checked.shape == checked.constant.shape()) ||
        checked.format != checked.constant.format())
      broken(*this, fmt::format("constant {} disagrees with its type", checked.name));
  }
  for (const ValueId id : inputs) {
    if (!in_range(id)) broken(*this, "an input id is out of range");
    if (defined[static_cast<std::size_t>(id)])
      broken(*this, fmt::format("input {} is a constant or occurs twice", value(id).name));
    defined[static_cast<std::size_t>(id)] = true;
  }
  for (const Node& checked : nodes) {
    if (!checked.op) broken(*this, fmt::format("node {} has no operator", checked.name));
    if (checked.name.empty()) broken(*this, "a node has no name");
    for (const ValueId id : checked.inputs) {
      if (id == no_id) continue;
      if (!in_range(id)) broken(*this, checked.label() + " has an input id out of range");
      if (!defined[static_cast<std::size_t>(id)])
        broken(*this, fmt::format("{} reads {} before it is made", checked.label(), value(id).name));
    }
    for (const ValueId id : checked.outputs) {
      if (id == no_id) continue;
      if (!in_range(id)) broken(*this, checked.label() + " has an output id out of range");
      if (defined[static_cast<std::size_t>(id)])
        broken(*this, fmt::format("{} makes {}, which exists already", checked.label(), value(id).name));
      defined[static_cast<std::size_t>(id)] = true;
    }
  }
  for (const ValueId id : outputs) {
    if (!in_range(id)) broken(*this, "an output id is out of range");
    if (!defined[static_cast<std::size_t>(id)]) broken(*this, fmt::format("output {} is never made", value(id).name));
  }
}

}  // namespace lenslet

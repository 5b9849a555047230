// The first half of infer_shapes.h: concrete input shapes from the declared and the requested ones.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/format.h"
#include "runtime/graph/free_batch.h"
#include "runtime/graph/infer_shapes.h"

namespace lenslet {
namespace {

[[noreturn]] void refuse(std::string message) { throw Error(ErrorKind::invalid_argument, std::move(message)); }

/// Sizes of the symbolic dimensions seen so far. As in ONNX Runtime, the given shapes may use several sizes for one
/// name; it then determines no other input. Unnamed dimensions are independent.
class Symbols {
 public:
  std::optional<std::int64_t> find(const std::string& symbol) const {
    const auto it = sizes_.find(symbol);
    return it == sizes_.end() ? std::nullopt : it->second;
  }
  void solve(const std::string& symbol, std::int64_t size) {
    if (symbol.empty()) return;
    const auto [it, added] = sizes_.emplace(symbol, size);
    if (!added && it->second != size) it->second = std::nullopt;
  }

 private:
  std::map<std::string, std::optional<std::int64_t>> sizes_;
};

std::string symbol_of(const PortInfo& port, std::size_t axis) {
  return axis < port.dim_names.size() ? port.dim_names[axis] : std::string();
}

/// The port's declared shape; only for ports without free dimensions.
Shape declared_shape(const PortInfo& port) { return Shape(std::span<const std::int64_t>(port.dims)); }

bool is_fixed(const PortInfo& port) {
  return std::none_of(port.dims.begin(), port.dims.end(), [](std::int64_t dim) { return dim < 0; });
}

/// Checks a shape from the caller against the declaration; a declared batch of 1 may become any other.
void check_given(const PortInfo& port, const Shape& shape, Symbols& symbols) {
  const auto contradicts = [&] {
    refuse(fmt::format("input {}: shape {} does not fit the declared {}", port.name, shape.str(), port.str()));
  };
  if (static_cast<std::size_t>(shape.rank()) != port.dims.size()) contradicts();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (port.dims[at] < 0) {
      symbols.solve(symbol_of(port, at), shape[axis]);
    } else if (port.dims[at] != shape[axis]) {
      const bool batch_of_one = axis == 0 && port.dims[0] == 1 && shape.rank() >= 2;
      if (!batch_of_one) contradicts();
    }
  }
}

/// Index of the input of that name.
std::size_t find_input(const Graph& graph, const std::string& name) {
  std::string known;
  for (std::size_t i = 0; i < graph.input_ports.size(); ++i) {
    if (graph.input_ports[i].name == name) return i;
    known += (known.empty() ? "" : ", ") + graph.input_ports[i].name;
  }
  refuse(fmt::format("no input is called {} (inputs: {})", name, known));
}

/// "4x3x?x?": the known part of a shape that must be given.
std::string wanted_shape(std::span<const std::int64_t> dims) {
  std::string text;
  for (std::size_t axis = 0; axis < dims.size(); ++axis)
    text += fmt::format("{}{}", axis == 0 ? "" : "x", dims[axis] >= 0 ? fmt::to_string(dims[axis]) : "?");
  return text;
}

/// Checks a value from the caller against the declaration; shapes are checked by check_given.
void check_value(const PortInfo& port, const Tensor& value) {
  if (value.empty() || value.dtype() != port.dtype)
    refuse(fmt::format("input {}: its value is {}, the model wants {}", port.name,
                       value.empty() ? "missing" : to_string(value.dtype()), to_string(port.dtype)));
  if (value.format() != formats::nchw && !same_bytes(formats::nchw, formats::nhwc, value.shape()))
    refuse(fmt::format("input {}: its value is not in layout nchw", port.name));
}

}  // namespace

void bind_inputs(Graph& graph, std::int64_t batch, const std::vector<std::pair<std::string, Shape>>& input_shapes,
                 const std::vector<std::pair<std::string, Tensor>>& input_values) {
  if (batch < 1) refuse(fmt::format("a batch of {}: there must be at least one image", batch));
  Symbols symbols;
  std::vector<std::optional<Shape>> bound(graph.inputs.size());
  std::vector<bool> fixed(graph.inputs.size(), false);

  for (const auto& [name, shape] : input_shapes) {
    const std::size_t i = find_input(graph, name);
    if (!graph.input_ports[i].unread) check_given(graph.input_ports[i], shape, symbols);
    bound[i] = shape;
  }
  for (const auto& [name, value] : input_values) {
    const std::size_t i = find_input(graph, name);
    if (fixed[i]) refuse(fmt::format("input {}: two values are given", name));
    check_value(graph.input_ports[i], value);
    if (bound[i] && !(*bound[i] == value.shape()))
      refuse(fmt::format("input {}: shape {} is asked for, but its value has {}", name, bound[i]->str(),
                         value.shape().str()));
    if (!graph.input_ports[i].unread) check_given(graph.input_ports[i], value.shape(), symbols);
    bound[i] = value.shape();
    graph.replace_uses(graph.inputs[i], graph.add_constant(name + ":value", value.relabelled(formats::nchw)));
    fixed[i] = true;
  }

  // Images are rank 4. Only a model without such an input may have its batch in one of lower rank ([1,784]).
  const bool any_images = std::any_of(graph.input_ports.begin(), graph.input_ports.end(),
                                      [](const PortInfo& port) { return !port.unread && port.dims.size() == 4; });
  const auto has_batch = [&](const PortInfo& port) {
    return any_images ? port.dims.size() == 4 : port.dims.size() >= 2;
  };
  for (std::size_t i = 0; i < bound.size(); ++i) {  // dimension 0 first: it may name the batch for other inputs
    const PortInfo& port = graph.input_ports[i];
    if (bound[i] || port.unread || port.dims.empty()) continue;
    if (port.dims[0] < 0) {
      if (!symbols.find(symbol_of(port, 0))) symbols.solve(symbol_of(port, 0), batch);
    } else if (has_batch(port) && port.dims[0] != 1 && batch != 1 && port.dims[0] != batch) {
      refuse(
          fmt::format("input {}: batch {} was asked for, but the model has a fixed batch of {}: ask for no "
                      "other, or export it with a free first dimension",
                      port.name, batch, port.dims[0]));
    }
  }
  std::string missing;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const PortInfo& port = graph.input_ports[i];
    if (bound[i]) continue;
    std::vector<std::int64_t> dims = port.dims;
    if (!dims.empty() && dims[0] == 1 && has_batch(port)) dims[0] = batch;
    bool solved = true;
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis] >= 0) continue;
      const std::string symbol = symbol_of(port, axis);
      if (const auto size = symbols.find(symbol)) {
        dims[axis] = *size;
      } else if (axis == 0) {
        dims[axis] = batch;
      } else if (port.unread) {
        dims[axis] = 1;
      } else {
        solved = false;
      }
    }
    if (solved)
      bound[i] = Shape(std::span<const std::int64_t>(dims));
    else
      missing += fmt::format("{}{} {} (--shape {}={})", missing.empty() ? "" : ", ", port.name, port.str(), port.name,
                             wanted_shape(dims));
  }
  if (!missing.empty())
    refuse(fmt::format(
        "give a shape for each input with free dimensions: {}; PlanOptions::input_shapes, in Python shapes=", missing));

  std::vector<FreedInput> freed;
  std::int64_t freed_batch = 1;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const PortInfo& port = graph.input_ports[i];
    try {
      (void)bound[i]->elems();
    } catch (const Error& error) {
      throw error.within(fmt::format("input {}", port.name));
    }
    Value& input = graph.value(graph.inputs[i]);
    input.dtype = port.dtype;
    input.shape = *bound[i];
    input.typed = true;
    if (fixed[i] || port.unread || port.dims.empty() || port.dims[0] != 1 || input.shape[0] == 1) continue;
    if (!freed.empty() && input.shape[0] != freed_batch)
      refuse(fmt::format("input {}: batch {}, but {} in another input", port.name, input.shape[0], freed_batch));
    freed_batch = input.shape[0];
    freed.push_back({graph.inputs[i], is_fixed(port) ? declared_shape(port) : input.shape.with(0, 1)});
  }
  if (!freed.empty()) free_batch(graph, freed, freed_batch);
}

}  // namespace lenslet

#include "models/graph_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "models/node_order.h"

namespace lenslet {

GraphNames::GraphNames(const OnnxGraph& graph, Problems& problems, std::span<const std::string> overridden)
    : graph_(graph) {
  name_nodes();
  for (std::size_t i = 0; i < graph.initializers.size(); ++i)
    if (std::ranges::find(overridden, graph.initializers[i].name) == overridden.end())
      define(graph.initializers[i].name, {Origin::Kind::initializer, i}, problems);
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const Origin* known = find(graph.inputs[i].name);
    if (known == nullptr || known->kind != Origin::Kind::initializer)
      define(graph.inputs[i].name, {Origin::Kind::input, i}, problems);
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    for (const std::string_view output : graph.nodes[n].outputs)
      if (!output.empty()) define(output, {Origin::Kind::node, n}, problems);
}

void GraphNames::name_nodes() {
  std::unordered_set<std::string> taken;
  for (const OnnxNode& node : graph_.nodes) taken.emplace(node.name);
  std::unordered_set<std::string_view> given;
  node_names_.reserve(graph_.nodes.size());
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    const OnnxNode& node = graph_.nodes[n];
    if (!node.name.empty() && given.insert(node.name).second) {
      node_names_.emplace_back(node.name);
      continue;
    }
    std::string made_up = fmt::format("{}_{}", node.name.empty() ? node.op_type : node.name, n);
    while (!taken.insert(made_up).second) made_up += '_';
    node_names_.push_back(std::move(made_up));
  }
}

std::string GraphNames::describe(const Origin& origin) const {
  switch (origin.kind) {
    case Origin::Kind::initializer:
      return "an initializer";
    case Origin::Kind::input:
      return "a graph input";
    case Origin::Kind::node:
      return fmt::format("node {} ({})", node_names_[origin.index], graph_.nodes[origin.index].op_type);
  }
  return {};
}

void GraphNames::define(std::string_view value, Origin origin, Problems& problems) {
  if (value.empty()) {
    problems.add(ErrorKind::invalid_model, describe(origin), "has no name");
    return;
  }
  const auto [entry, inserted] = origins_.emplace(value, origin);
  if (!inserted)
    problems.add(ErrorKind::invalid_model, fmt::format("value '{}'", value),
                 fmt::format("is defined twice, by {} and by {}", describe(entry->second), describe(origin)));
}

const Origin* GraphNames::find(std::string_view value) const {
  const auto found = origins_.find(value);
  return found == origins_.end() ? nullptr : &found->second;
}

std::vector<std::size_t> GraphNames::order(Problems& problems) const {
  std::vector<std::vector<std::size_t>> depends_on(graph_.nodes.size());
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
    for (const std::string_view input : graph_.nodes[n].inputs) {
      if (input.empty()) continue;
      const Origin* origin = find(input);
      if (origin == nullptr)
        problems.add(ErrorKind::invalid_model, describe({Origin::Kind::node, n}),
                     fmt::format("reads '{}', which nothing defines", input));
      else if (origin->kind == Origin::Kind::node)
        depends_on[n].push_back(origin->index);
    }
  NodeOrder found = order_nodes(depends_on);
  if (found.cycle.empty()) return std::move(found.order);

  constexpr std::size_t most_named = 20;
  std::string names;
  for (std::size_t i = 0; i < found.cycle.size() && i < most_named; ++i)
    names += describe({Origin::Kind::node, found.cycle[i]}) + " -> ";
  names += found.cycle.size() > most_named ? fmt::format("... {} more", found.cycle.size() - most_named)
                                           : describe({Origin::Kind::node, found.cycle.front()});
  problems.add(ErrorKind::invalid_model, {}, "the graph has a cycle: " + names);
  found.order.resize(graph_.nodes.size());
  std::iota(found.order.begin(), found.order.end(), std::size_t{0});
  return std::move(found.order);
}

}  // namespace lenslet

#include "models/inline_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "lenslet/error.h"
#include "models/limits.h"
#include "models/opset.h"

namespace lenslet {

namespace {

/// Names within one call: formal parameters map to the caller's names, all others are prefixed with the call's name.
class Scope {
 public:
  Scope(const OnnxNode& call, const OnnxFunction& function, std::string_view prefix, std::deque<std::string>& names)
      : prefix_(prefix), names_(names) {
    const auto bind = [&](const auto& formal, const auto& actual, const char* what) {
      if (actual.size() > formal.size())
        throw Error(ErrorKind::invalid_model,
                    fmt::format("has {} {}s; function {} takes {}", actual.size(), what, function.name, formal.size()));
      for (std::size_t i = 0; i < formal.size(); ++i)
        renamed_.emplace(formal[i], i < actual.size() ? actual[i] : std::string_view());
    };
    bind(function.inputs, call.inputs, "input");
    for (std::size_t i = 0; i < function.outputs.size(); ++i)
      if (i < call.outputs.size() && !call.outputs[i].empty() && !renamed_.contains(function.outputs[i]))
        renamed_.emplace(function.outputs[i], call.outputs[i]);
    if (call.outputs.size() > function.outputs.size())
      throw Error(ErrorKind::invalid_model, fmt::format("has {} outputs; function {} gives {}", call.outputs.size(),
                                                        function.name, function.outputs.size()));
  }

  std::string_view operator()(std::string_view name) {
    if (name.empty()) return name;
    const auto [entry, added] = renamed_.try_emplace(name);
    if (added) entry->second = made(name);
    return entry->second;
  }
  std::string_view made(std::string_view name) {
    if (prefix_.size() + 1 + name.size() > limits::name_bytes)
      throw Error(ErrorKind::limit, fmt::format("names of more than {} bytes", limits::name_bytes));
    return names_.emplace_back(fmt::format("{}/{}", prefix_, name));
  }

 private:
  std::string_view prefix_;
  std::deque<std::string>& names_;
  std::unordered_map<std::string_view, std::string_view> renamed_;
};

class Inliner {
 public:
  Inliner(const OnnxModel& model, std::deque<std::string>& names) : names_(names) {
    for (const OnnxFunction& function : model.functions)
      functions_.emplace(Key(canonical_domain(function.domain), function.name, function.overload), &function);
  }
  bool nothing_to_do() const { return functions_.empty(); }

  void expand(std::vector<OnnxNode>& nodes, int depth = 0) {
    std::vector<OnnxNode> all;
    all.reserve(nodes.size());
    for (OnnxNode& node : nodes) {
      const auto found = functions_.find(Key(canonical_domain(node.domain), node.op_type, node.overload));
      if (found == functions_.end()) {
        count(nodes_, 1, limits::nodes, "nodes");
        for (OnnxAttribute& attribute : node.attributes) expand_within(attribute, depth);
        all.push_back(std::move(node));
        continue;
      }
      const std::string where = fmt::format("node {} ({})", node.name, node.op_type);
      if (depth == limits::function_depth)
        throw Error(ErrorKind::invalid_model, fmt::format("functions that call functions, {} deep", depth), where);
      try {
        std::vector<OnnxNode> body = body_of(node, *found->second);
        expand(body, depth + 1);
        std::move(body.begin(), body.end(), std::back_inserter(all));
      } catch (const Error& error) {
        if (depth > 0) throw;
        throw error.within(where);
      }
    }
    nodes = std::move(all);
  }

 private:
  using Key = std::tuple<std::string_view, std::string_view, std::string_view>;

  static void count(std::size_t& counter, std::size_t more, std::size_t most, std::string_view what) {
    counter += more;
    if (counter > most)
      throw Error(ErrorKind::limit, fmt::format("more than {} {} with functions in place", most, what));
  }

  void expand_within(OnnxAttribute& attribute, int depth) {
    if (attribute.subgraph == nullptr) return;
    OnnxGraph graph = *attribute.subgraph;
    expand(graph.nodes, depth);
    attribute.subgraph = std::make_shared<const OnnxGraph>(std::move(graph));
  }

  std::vector<OnnxNode> body_of(const OnnxNode& call, const OnnxFunction& function) {
    const std::string& prefix =
        names_.emplace_back(call.name.empty() ? fmt::format("{}_{}", call.op_type, calls_++) : std::string(call.name));
    Scope scope(call, function, prefix, names_);
    std::vector<OnnxNode> body = renamed(function.nodes, call, function, scope);
    // Values passed through a function unchanged.
    for (std::size_t i = 0; i < std::min(call.outputs.size(), function.outputs.size()); ++i) {
      if (call.outputs[i].empty() || scope(function.outputs[i]) == call.outputs[i]) continue;
      OnnxNode& same = body.emplace_back();
      same.name = scope.made(fmt::format("output{}", i));
      same.op_type = "Identity";
      same.inputs = {scope(function.outputs[i])};
      same.outputs = {call.outputs[i]};
    }
    return body;
  }

  std::vector<OnnxNode> renamed(std::span<const OnnxNode> nodes, const OnnxNode& call, const OnnxFunction& function,
                                Scope& scope) {
    std::vector<OnnxNode> copies;
    copies.reserve(nodes.size());
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const OnnxNode& node = nodes[n];
      OnnxNode& copy = copies.emplace_back();
      copy.name = scope.made(node.name.empty() ? fmt::format("{}_{}", node.op_type, n) : std::string(node.name));
      copy.op_type = node.op_type;
      copy.domain = node.domain;
      copy.overload = node.overload;
      copy.opset_imports = &function.opset_imports;
      count(elems_, 1 + node.inputs.size() + node.outputs.size(), limits::inlined_elems, "values and attributes");
      for (const std::string_view name : node.inputs) copy.inputs.push_back(scope(name));
      for (const std::string_view name : node.outputs) copy.outputs.push_back(scope(name));
      for (const OnnxAttribute& attribute : node.attributes)
        if (const OnnxAttribute* given = given_for(attribute, call, function)) {
          count(elems_, 1 + given->integers.size() + given->reals.size() + given->texts.size(), limits::inlined_elems,
                "values and attributes");
          OnnxAttribute& placed = copy.attributes.emplace_back(*given);
          placed.name = attribute.name;
          if (attribute.reference.empty() && placed.subgraph != nullptr)
            placed.subgraph = renamed(*placed.subgraph, call, function, scope);
        }
    }
    return copies;
  }

  std::shared_ptr<const OnnxGraph> renamed(const OnnxGraph& graph, const OnnxNode& call, const OnnxFunction& function,
                                           Scope& scope) {
    OnnxGraph copy = graph;
    copy.nodes = renamed(graph.nodes, call, function, scope);
    for (OnnxTensor& tensor : copy.initializers) tensor.name = scope(tensor.name);
    for (OnnxValueInfo& input : copy.inputs) input.name = scope(input.name);
    for (OnnxValueInfo& output : copy.outputs) output.name = scope(output.name);
    return std::make_shared<const OnnxGraph>(std::move(copy));
  }

  // An attribute of a node in a function: its own, the call's attribute that it refers to, or that one's default. Null:
  // omitted, since the call omits it.
  static const OnnxAttribute* given_for(const OnnxAttribute& attribute, const OnnxNode& call,
                                        const OnnxFunction& function) {
    if (attribute.reference.empty()) return &attribute;
    for (const auto* list : {&call.attributes, &function.defaults}) {
      const auto found = std::ranges::find(*list, attribute.reference, &OnnxAttribute::name);
      if (found != list->end()) return &*found;
    }
    return nullptr;
  }

  std::map<Key, const OnnxFunction*> functions_;
  std::deque<std::string>& names_;
  std::size_t calls_ = 0, nodes_ = 0, elems_ = 0;
};

}  // namespace

void inline_functions(OnnxModel& model, std::deque<std::string>& names) {
  Inliner inliner(model, names);
  if (!inliner.nothing_to_do()) inliner.expand(model.graph->nodes);
}

}  // namespace lenslet

#include "models/subgraphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "lenslet/error.h"
#include "models/limits.h"
#include "models/opset.h"

namespace lenslet {

namespace {

// What the nodes of `graph` read that it does not define.
std::vector<std::string_view> outer_names(const OnnxGraph& graph) {
  std::unordered_set<std::string_view> seen;
  for (const OnnxTensor& tensor : graph.initializers) seen.insert(tensor.name);
  for (const OnnxNode& node : graph.nodes) seen.insert(node.outputs.begin(), node.outputs.end());
  std::vector<std::string_view> names;
  const auto read = [&](std::string_view name) {
    if (!name.empty() && seen.insert(name).second) names.push_back(name);
  };
  for (const OnnxNode& node : graph.nodes)
    for (const std::string_view name : node.inputs) read(name);
  for (const OnnxValueInfo& output : graph.outputs) read(output.name);
  return names;
}

void read_within(std::vector<OnnxNode>& nodes, int depth);

void read_branches(OnnxNode& node, int depth) {
  if (depth == limits::subgraph_depth)
    throw Error(ErrorKind::limit, fmt::format("branches more than {} deep", limits::subgraph_depth));
  std::vector<std::pair<OnnxAttribute*, OnnxGraph>> branches;
  std::vector<std::string_view> captured;
  for (OnnxAttribute& attribute : node.attributes) {
    if (attribute.graph.empty()) continue;
    OnnxGraph branch = read_onnx_graph(attribute.graph);
    if (!branch.inputs.empty())
      throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' is a graph with inputs", attribute.name));
    read_within(branch.nodes, depth + 1);
    for (const std::string_view name : outer_names(branch))
      if (std::find(captured.begin(), captured.end(), name) == captured.end()) captured.push_back(name);
    branches.emplace_back(&attribute, std::move(branch));
  }
  for (auto& [attribute, branch] : branches) {
    for (const std::string_view name : captured) branch.inputs.emplace_back().name = name;
    attribute->subgraph = std::make_shared<const OnnxGraph>(std::move(branch));
  }
  node.inputs.resize(1);  // without a condition: an empty name, which the loader refuses
  node.inputs.insert(node.inputs.end(), captured.begin(), captured.end());
}

void read_within(std::vector<OnnxNode>& nodes, int depth) {
  for (OnnxNode& node : nodes) {
    if (!is_if(node)) continue;
    try {
      read_branches(node, depth);
    } catch (const Error& error) {
      throw error.within(fmt::format("node {} (If)", node.name));
    }
  }
}

}  // namespace

bool is_if(const OnnxNode& node) { return node.op_type == "If" && canonical_domain(node.domain).empty(); }

void read_subgraphs(std::vector<OnnxNode>& nodes) { read_within(nodes, 0); }

}  // namespace lenslet

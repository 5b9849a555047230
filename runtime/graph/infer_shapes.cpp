#include "runtime/graph/infer_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/graph/infer_node.h"

namespace lenslet {
namespace {

constexpr std::size_t listed_faults = 100;

struct Fault {
  ErrorKind kind;
  std::string label, message;
};

[[noreturn]] void report(const std::vector<Fault>& faults) {
  if (faults.size() == 1) throw Error(faults[0].kind, faults[0].message, faults[0].label);
  std::string message = fmt::format("{} nodes cannot run:", faults.size());
  for (std::size_t i = 0; i < std::min(faults.size(), listed_faults); ++i)
    message += fmt::format("\n  {}: {}", faults[i].label, faults[i].message);
  if (faults.size() > listed_faults) message += fmt::format("\n  and {} more", faults.size() - listed_faults);
  throw Error(faults[0].kind, message);
}

}  // namespace

void infer_shapes(Graph& graph) {
  NodeInference inference(graph, inference_node_bytes);
  std::vector<Fault> faults;
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    const bool reachable = std::all_of(node.inputs.begin(), node.inputs.end(),
                                       [&](ValueId id) { return id == no_id || graph.value(id).typed; });
    bool known = false;
    if (reachable) {
      try {
        inference.infer(node);
        known = inference.evaluate(node);
      } catch (const Error& error) {
        faults.push_back({error.kind(), node.label(), error.what()});
        for (const ValueId id : node.outputs)
          if (id != no_id) graph.value(id).typed = false;
      }
    }
    if (!known) kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  if (!faults.empty()) report(faults);
}

}  // namespace lenslet

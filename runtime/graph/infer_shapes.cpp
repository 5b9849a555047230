#include "runtime/graph/infer_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/graph/file_types.h"
#include "runtime/graph/if_op.h"
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

bool is_decided_if(const Graph& graph, const Node& node) {
  return dynamic_cast<const IfOp*>(node.op.get()) != nullptr && node.inputs[0] != no_id &&
         graph.value(node.inputs[0]).is_constant();
}

// An operator asks for one value after the other (starts, ends, axes of a Slice): the first request waits for all
// inputs of that kind.
InputMask with_shape_arithmetic(const Graph& graph, const Node& node, InputMask asked) {
  const auto type_of = [&](std::size_t i) -> const Value& { return graph.value(node.inputs[i]); };
  std::size_t first = 0;
  while ((asked & input_bit(first)) == 0) ++first;
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] != no_id && !type_of(i).is_constant() && type_of(i).shape.rank() <= 1 &&
        type_of(i).dtype == type_of(first).dtype)
      asked |= input_bit(i);
  return asked;
}

}  // namespace

std::vector<WaitingNode> infer_known_shapes(Graph& graph) {
  NodeInference inference(graph, inference_node_bytes);
  std::vector<Fault> faults;
  std::vector<WaitingNode> waiting;
  RoundedValues rounded;
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  const auto leave_untyped = [&](const Node& node) {
    for (const ValueId id : node.outputs)
      if (id != no_id) graph.value(id).typed = false;
  };
  // A stack in reverse order, so that the nodes of a branch come next.
  std::vector<Node> next(std::make_move_iterator(graph.nodes.rbegin()), std::make_move_iterator(graph.nodes.rend()));
  while (!next.empty()) {
    Node node = std::move(next.back());
    next.pop_back();
    if (is_decided_if(graph, node)) {
      try {
        std::vector<Node> branch = taken_branch(graph, node);
        std::move(branch.rbegin(), branch.rend(), std::back_inserter(next));
      } catch (const Error& error) {
        faults.push_back({error.kind(), node.label(), error.what()});
        leave_untyped(node);
      }
      continue;
    }
    const bool reachable = std::all_of(node.inputs.begin(), node.inputs.end(),
                                       [&](ValueId id) { return id == no_id || graph.value(id).typed; });
    bool known = false;
    if (reachable) {
      if (std::vector<Node> rounding = with_rounding(graph, node, rounded); !rounding.empty()) {
        std::move(rounding.rbegin(), rounding.rend(), std::back_inserter(next));
        continue;
      }
      try {
        inference.infer(node);
        known = inference.evaluate(node);
      } catch (const NeedsValue& wait) {
        waiting.push_back(
            {static_cast<NodeId>(kept.size()), with_shape_arithmetic(graph, node, wait.inputs()), wait.message()});
        leave_untyped(node);
      } catch (const Error& error) {
        faults.push_back({error.kind(), node.label(), error.what()});
        leave_untyped(node);
      }
    }
    if (!known) kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  if (!faults.empty()) report(faults);
  return waiting;
}

void infer_shapes(Graph& graph) {
  std::vector<Fault> faults;
  for (const WaitingNode& wait : infer_known_shapes(graph))
    faults.push_back({ErrorKind::unsupported, graph.node(wait.node).label(), wait.reason});
  if (!faults.empty()) report(faults);
}

}  // namespace lenslet

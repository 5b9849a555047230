// choose_kernels: selects each node's kernel, by the rule of ops/core/choose.h or as forced. One Error lists all nodes
// without a kernel. assign_formats decides the format of nodes with a single kernel.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/passes/passes.h"

namespace lenslet {

namespace {

// PassContext::layer_algorithms, by name; unused entries are an error.
class LayerAlgorithms {
 public:
  explicit LayerAlgorithms(const PassContext& context) : context_(context) {
    for (const auto& [name, algorithm] : context.layer_algorithms) wanted_[name] = {algorithm, false};
  }

  // The algorithm forced on a node: its own, or the global one if its operator has it.
  std::string_view of(const Node& node) {
    const DeviceKind device = context_.target.device.kind;
    const auto own = wanted_.find(node.name);
    if (own == wanted_.end()) return name_of(find_kernel(node.type(), device, context_.forced_algorithm));
    auto& [algorithm, asked] = own->second;
    asked = true;
    if (algorithm.empty()) return {};
    if (const Kernel* const kernel = find_kernel(node.type(), device, algorithm)) return name_of(kernel);
    std::vector<std::string_view> known;
    for (const Kernel* kernel : kernels_of(node.type(), device)) known.push_back(kernel->name());
    throw Error(ErrorKind::invalid_argument, known.size() < 2
                                                 ? fmt::format("'{}': there is nothing to choose between", algorithm)
                                                 : fmt::format("no algorithm of {} is called '{}'; there are: {}",
                                                               node.type(), algorithm, fmt::join(known, ", ")));
  }

  void refuse_unknown() const {
    for (const auto& [name, wanted] : wanted_)
      if (!wanted.second)
        throw Error(
            ErrorKind::invalid_argument,
            fmt::format("no step that has algorithms is called '{}', for which '{}' is wanted", name, wanted.first));
  }

 private:
  static std::string_view name_of(const Kernel* kernel) { return kernel != nullptr ? kernel->name() : ""; }

  const PassContext& context_;
  std::map<std::string, std::pair<std::string, bool>, std::less<>> wanted_;
};

// Nodes that are float32 in the file are computed and estimated in float32, whatever the others use.
Target target_of(const Problem& problem, const PassContext& context) {
  const DType half = context.target.numerics.storage;
  const auto is_half = [&](const auto& type) { return type.dtype == half; };
  const bool halves = std::ranges::any_of(problem.outputs(), is_half) ||
                      std::ranges::any_of(problem.inputs(), is_half, &InputInfo::type);
  return {context.target.device, context.types_of_file && !halves ? Numerics() : context.target.numerics};
}

}  // namespace

void choose_kernels(Graph& graph, const PassContext& context) {
  const DeviceKind device = context.target.device.kind;
  std::string refusals;
  ErrorKind kind = ErrorKind::unsupported;
  bool any = false;
  LayerAlgorithms forced(context);
  for (Node& node : graph.nodes) {
    if (node.op->alias_input() >= 0) continue;  // an alias: nothing runs
    const std::vector<InputInfo> inputs = graph.input_infos(node);
    try {
      const Problem problem(node.op, inputs, graph.output_types(node));
      InputMask given = no_inputs;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (graph.is_input(node.inputs[i])) given |= input_bit(i);
      node.choice =
          std::make_shared<const Choice>(choose_kernel(problem, target_of(problem, context), node.op->describe(inputs),
                                                       forced.of(node), context.forced_where_accepted, given));
    } catch (const Error& error) {
      if (!any) kind = error.kind();
      refusals += fmt::format("{}{}: {}", any ? "\n  " : "", node.label(), error.what());
      any = true;
    }
  }
  if (!any) return forced.refuse_unknown();
  if (device == DeviceKind::cpu) throw Error(kind, refusals);
  throw Error(kind, fmt::format("cannot run on {}, and nothing is moved to the CPU:\n  {}", context.device, refusals));
}

}  // namespace lenslet

// choose_kernels: each node gets a kernel, by the rule of ops/core/choose.h or by force; what no kernel takes is
// refused, all of it in one Error. A node with a single kernel runs in whatever format its inputs arrive:
// assign_formats says.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "runtime/passes/passes.h"

namespace lenslet {

void choose_kernels(Graph& graph, const PassContext& context) {
  const DeviceKind device = context.target.device.kind;
  std::string refusals;
  ErrorKind kind = ErrorKind::unsupported;
  bool any = false;
  for (Node& node : graph.nodes) {
    if (node.op->alias_input() >= 0) continue;  // renames bytes, nothing runs
    const bool forcible = find_kernel(node.type(), device, context.forced_algorithm) != nullptr;
    const std::vector<InputInfo> inputs = graph.input_infos(node);
    try {
      const Problem problem(node.op, inputs, graph.output_types(node));
      node.choice = std::make_shared<const Choice>(
          choose_kernel(problem, context.target, node.op->describe(inputs),
                        forcible ? std::string_view(context.forced_algorithm) : "", context.forced_where_accepted));
    } catch (const Error& error) {
      if (!any) kind = error.kind();
      refusals += fmt::format("{}{}: {}", any ? "\n  " : "", node.label(), error.what());
      any = true;
    }
  }
  if (!any) return;
  if (device == DeviceKind::cpu) throw Error(kind, refusals);
  throw Error(kind, fmt::format("cannot run on {}, and nothing is moved to the CPU:\n  {}", context.device, refusals));
}

}  // namespace lenslet

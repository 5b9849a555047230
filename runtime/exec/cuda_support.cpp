#include "runtime/exec/cuda_support.h"

#include <fmt/format.h>

#include <string>

namespace lenslet {

void require_cuda_kernels(const Graph& graph, std::string_view device) {
  std::string refusals;
  for (const Node& node : graph.nodes) {
    if (node.op->alias_input() >= 0) continue;  // renames bytes, nothing runs
    if (const auto reason = node.op->refuse_cuda(graph.input_infos(node)))
      refusals += fmt::format("\n  {}: {}", node.label(), *reason);
  }
  if (!refusals.empty())
    throw Error(ErrorKind::unsupported,
                fmt::format("cannot run on {}, and nothing is moved to the CPU:{}", device, refusals));
}

}  // namespace lenslet

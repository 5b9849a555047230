#include "runtime/passes/conv/in_formats.h"

namespace lenslet {

std::optional<Choice> choose_in_formats(const Graph& graph, const Node& node, std::span<const InputInfo> inputs,
                                        const Target& target) {
  const Problem problem(node.op, inputs, graph.output_types(node));
  std::optional<Choice> best;
  for (const Kernel* const kernel : kernels_of(node.type(), target.device.kind)) {
    const Offer offer = kernel->offer(problem, target);
    for (const Candidate& candidate : offer.candidates) {
      bool meets = candidate.outputs[0] == graph.value(node.outputs[0]).format;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        meets = meets && (node.inputs[i] == no_id || inputs[i].constant != nullptr ||
                          candidate.inputs[i] == graph.value(node.inputs[i]).format);
      if (!meets || (best && best->candidate.estimated_us <= candidate.estimated_us)) continue;
      best.emplace();
      best->kernel = kernel;
      best->candidate = candidate;
    }
  }
  return best;
}

}  // namespace lenslet

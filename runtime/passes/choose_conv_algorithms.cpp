// choose_conv_algorithms: each convolution gets its algorithm, by the rule of ops/conv/choose.h or by force.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "ops/conv/conv.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

constexpr std::string_view plain_algorithm = "direct";

/// Why the convolution runs plainly, as ConvOp does it without an algorithm; "" when it may have any.
std::string only_plain(const std::vector<InputInfo>& inputs) {
  if (inputs[1].constant == nullptr) return "its filters are computed by the network";
  if (inputs[0].type.shape.rank() != 4) return "it is 1-D";
  return {};
}

}  // namespace

void choose_conv_algorithms(Graph& graph, const PassContext& context) {
  std::string refusals;
  ErrorKind kind = ErrorKind::unsupported;
  const auto refuse = [&](const Node& node, std::string_view why) {
    refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "\n  ", node.label(), why);
  };
  for (Node& node : graph.nodes) {
    const auto* conv = dynamic_cast<const ConvOp*>(node.op.get());
    if (conv == nullptr) continue;
    const std::vector<InputInfo> inputs = graph.input_infos(node);
    if (const std::string why = only_plain(inputs); !why.empty()) {
      const std::string& forced = context.forced_algorithm;
      if (!forced.empty() && forced != plain_algorithm && !context.forced_where_accepted)
        refuse(node, fmt::format("{} refuses: {}", forced, why));
      continue;
    }
    try {
      const ConvProblem problem = conv->problem(inputs);
      ConvChoice choice =
          choose_conv(problem, context.device, context.rates, context.forced_algorithm, context.forced_where_accepted);
      auto chosen = std::make_shared<ConvOp>(*conv);
      chosen->algorithm = choice.algorithm;
      chosen->chosen_for = problem;
      chosen->algorithm_reason = std::move(choice.reason);
      node.op = std::move(chosen);
    } catch (const Error& error) {
      if (refusals.empty()) kind = error.kind();
      refuse(node, error.what());
    }
  }
  if (!refusals.empty()) throw Error(kind, refusals);
}

}  // namespace lenslet

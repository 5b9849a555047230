#include "runtime/exec/describe_step.h"

#include <utility>

#include "ops/conv/conv.h"

namespace lenslet {

namespace {

void describe_conv(const ConvOp& conv, std::span<const InputInfo> inputs, const ConvView& view, StepInfo& row) {
  // Without a choice (1-D, computed filters) the operator runs plainly.
  const ConvAlgorithm& algorithm = conv.effective_algorithm(inputs, view.device);
  const ConvProblem problem = conv.algorithm != nullptr ? conv.chosen_for : conv.problem(inputs);
  row.problem = problem.str();
  row.algorithm = algorithm.name();
  row.reason = conv.algorithm != nullptr ? conv.algorithm_reason : "1-D, or its filters are computed by the network";
  row.tolerance = algorithm.tolerance(problem);
  if (conv.algorithm == nullptr) return;
  const int threads = view.device == DeviceKind::cuda ? 1 : view.threads;
  for (const ConvAlgorithm* other : conv_algorithms(view.device)) {
    ConvCandidate candidate;
    candidate.algorithm = other->name();
    if (const auto refusal = other->refuse(problem)) {
      candidate.refusal = *refusal;
    } else {
      const ConvProblem seen = other->wants_padded() ? problem.with_explicit_padding() : problem;
      candidate.estimated_us = other->estimate_us(problem, view.rates);
      candidate.workspace_bytes = other->workspace_bytes(seen, threads);
      candidate.tolerance = other->tolerance(problem);
    }
    row.candidates.push_back(std::move(candidate));
  }
}

}  // namespace

StepInfo describe_step(const Graph& graph, const PlanStep& step, const ConvView& view) {
  const Node& node = graph.node(step.node);
  const std::vector<InputInfo> inputs = graph.input_infos(node);
  StepInfo row;
  row.name = node.name;
  row.op = node.type();
  row.attributes = node.op->attributes();
  for (const ValueId input : node.inputs) {
    row.inputs.push_back(input == no_id ? "" : graph.value(input).name);
    if (input != no_id) row.bytes += graph.value(input).bytes();
  }
  for (const ValueId output : node.outputs) {
    row.outputs.push_back(graph.value(output).name);
    row.output_shapes.push_back(graph.value(output).shape);
    row.output_layouts.push_back(graph.value(output).layout);
    row.bytes += graph.value(output).bytes();
  }
  row.flops = node.op->flops(inputs, graph.output_types(node));
  row.workspace_bytes = step.workspace_bytes;
  row.no_op = !step.runs;
  row.tolerance = node.op->tolerance(inputs);
  if (const auto* conv = dynamic_cast<const ConvOp*>(node.op.get())) describe_conv(*conv, inputs, view, row);
  return row;
}

}  // namespace lenslet

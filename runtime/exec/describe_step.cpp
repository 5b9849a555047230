#include "runtime/exec/describe_step.h"

#include <fmt/format.h>

#include <utility>

namespace lenslet {

namespace {

StepCandidate describe(const Choice::Row& row) {
  StepCandidate shown;
  shown.algorithm = row.kernel->name();
  shown.refusal = row.refusal;
  if (!row.refusal.empty()) return shown;
  shown.config = row.candidate.config;
  shown.estimated_us = row.candidate.estimated_us;
  shown.neighbours_us = row.neighbours_us;
  shown.workspace_bytes = row.candidate.workspace_bytes;
  shown.tolerance = row.candidate.tolerance;
  return shown;
}

}  // namespace

StepInfo describe_step(const Graph& graph, const PlanStep& step) {
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
    row.output_formats.push_back(graph.value(output).format);
    row.bytes += graph.value(output).bytes();
  }
  // Parts of a Concat or Split that are already in place (place_parts) are neither read nor written.
  const std::vector<ValueId>& parts = node.type() == "Split" ? node.outputs : node.inputs;
  for (const std::int64_t part : integers_attribute(*node.op, "placed").value_or(std::vector<std::int64_t>()))
    row.bytes -= 2 * graph.value(parts[static_cast<std::size_t>(part)]).bytes();
  row.flops = node.op->flops(inputs, graph.output_types(node));
  row.workspace_bytes = step.workspace_bytes;
  row.no_op = !step.runs;
  if (row.no_op) return row;
  const Choice& choice = *node.choice;
  row.config = choice.candidate.config;
  row.estimated_us = choice.candidate.estimated_us;
  row.tolerance = choice.candidate.tolerance;
  row.reason = node.note;
  if (choice.rows.size() < 2) return row;
  row.problem = node.op->describe(inputs);
  row.algorithm = choice.kernel->name();
  row.reason = node.note.empty() ? choice.reason : fmt::format("{}; {}", choice.reason, node.note);
  for (const Choice::Row& candidate : choice.rows) row.candidates.push_back(describe(candidate));
  return row;
}

}  // namespace lenslet

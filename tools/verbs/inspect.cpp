// lenslet inspect: describes a model, its plan, the reasons for it, and its memory.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/error.h"
#include "lenslet/model.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/layer_table.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/plan_json.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::string model;
  std::string after;
  std::vector<std::string> shapes;
  bool memory_map = false;
  bool json = false;
  PlanOptions plan;
  TableOptions table;
};

double mega(double value) { return value / 1e6; }

/// For inputs: "; free: N (--batch), H, W (--shape)", or "; no node reads it".
std::string free_dimensions(const PortInfo& port) {
  if (port.unread) return "; no node reads it";
  std::string batch, others;
  for (std::size_t axis = 0; axis < port.dims.size(); ++axis) {
    if (port.dims[axis] >= 0) continue;
    const std::string name = port.dim_names[axis].empty() ? fmt::format("dimension {}", axis) : port.dim_names[axis];
    if (axis == 0)
      batch = name + " (--batch)";
    else
      others += (others.empty() ? "" : ", ") + name;
  }
  if (!others.empty()) others += " (--shape)";
  if (batch.empty() && others.empty()) return {};
  return fmt::format("; free: {}{}{}", batch, batch.empty() || others.empty() ? "" : ", ", others);
}

void print_ports(const char* title, const std::vector<PortInfo>& ports,
                 const std::vector<std::pair<std::string, Shape>>& planned, std::span<const std::size_t> late,
                 bool with_options) {
  fmt::print("{}\n", title);
  for (std::size_t i = 0; i < ports.size(); ++i)
    fmt::print("  {} {} {}, {}{}\n", ports[i].name, to_string(ports[i].dtype), ports[i].str(),
               std::ranges::find(late, i) == late.end() ? "planned " + planned.at(i).second.str()
                                                        : "its shape is decided in the run",
               with_options ? free_dimensions(ports[i]) : "");
}

void print_late(const PlanInfo& plan) {
  if (plan.late.empty()) return;
  fmt::print("\nplanned in the run: {} nodes", plan.late.size());
  if (plan.late_copies > 0)
    fmt::print("; {} values of {} bytes are copied to the host for them", plan.late_copies, plan.late_copied_bytes);
  fmt::print("\n");
  for (const LateInfo& node : plan.late) {
    fmt::print("  {} ({}): {}", printable(node.name), node.op, node.reason);
    for (const Shape& shape : node.at_most) fmt::print(", at most {}", shape.str());
    fmt::print("\n");
  }
}

void print_choices(const PlanInfo& plan, const TableOptions& options) {
  fmt::print(
      "\nsteps with a choice, and candidates in the rule's order\n"
      "(*: chosen; us: estimated; + us: of the conversions beside it; workspace: bytes)\n");
  TextTable table(candidate_columns, options);
  for (const StepInfo& step : plan.steps) {
    if (step.candidates.empty()) continue;
    const std::size_t most =
        std::max<std::size_t>(table.width() - std::min(table.width(), step.problem.size() + 4), 20);
    table.add(
        {fmt::format("  {}: {}", shortened(printable(step.name), most, Cut::middle, locale_is_utf8()), step.problem)});
    add_candidates(table, step, "  ");
    if (!step.reason.empty()) table.add({fmt::format("    because: {}", step.reason)});
  }
  table.print();
}

void print_floats(const PlanInfo& plan) {
  const auto has_note = [](const StepInfo& step) { return step.candidates.empty() && !step.reason.empty(); };
  if (std::ranges::none_of(plan.steps, has_note)) return;
  fmt::print("\nsteps between 8-bit codes and float32\n");
  for (const StepInfo& step : plan.steps)
    if (has_note(step)) fmt::print("  {} ({}): {}\n", printable(step.name), step.op, printable(step.reason));
}

void print_bands(const PlanInfo& plan) {
  if (plan.bands.empty()) return;
  fmt::print("\nsteps that run together, some rows at a time\n");
  for (const BandInfo& band : plan.bands)
    fmt::print("  {} to {}: {}\n", printable(plan.steps[static_cast<std::size_t>(band.first_step)].name),
               printable(plan.steps[static_cast<std::size_t>(band.last_step)].name), band.reason);
}

constexpr Column placement_columns[] = {{"offset"}, {"bytes"}, {"steps"}, {"value", 0, Column::Kind::name}};

void print_memory(const PlanInfo& plan, bool with_map, const TableOptions& options) {
  const MemoryReport& memory = plan.memory;
  fmt::print("\nmemory in bytes\n");
  fmt::print("  weights as loaded   {:>12}\n", memory.weight_bytes);
  if (plan.device != "cpu") fmt::print("  of these uploaded   {:>12}\n", memory.uploaded_bytes);
  fmt::print("  weights prepared    {:>12}\n", memory.prepared_bytes);
  fmt::print("  activations         {:>12}  ({} without reuse)\n", memory.activation_bytes,
             memory.activation_sum_bytes);
  fmt::print("  greediest workspace {:>12}\n", memory.workspace_bytes);
  fmt::print(
      "  arena               {:>12}  ({:.1f}% above the lower bound {})\n", memory.peak_bytes,
      memory.lower_bound_bytes == 0
          ? 0.0
          : 100.0 * (static_cast<double>(memory.peak_bytes) / static_cast<double>(memory.lower_bound_bytes) - 1.0),
      memory.lower_bound_bytes);
  if (!with_map) return;
  TextTable table(placement_columns, options);
  for (const PlacementInfo& place : plan.placements)
    table.add({fmt::to_string(place.offset), fmt::to_string(place.bytes),
               fmt::format("{} - {}", place.first_step, place.last_step), place.value});
  fmt::print("\n");
  table.print();
}

void print_text(const Model& model, const PlanInfo& plan, bool memory_map, const TableOptions& options) {
  const std::string how = plan.device == "cpu" ? fmt::format("with {} threads", plan.threads)
                                               : fmt::format("in {}", to_string(plan.numerics));
  fmt::print("{}: {} parameters, {:.1f} MFLOP at this shape, {} steps on {} {}\n\n", printable(model.name()),
             model.parameter_elems(), mega(total_flops(plan)), plan.steps.size(), plan.device, how);
  print_ports("inputs", model.inputs(), plan.inputs, {}, true);
  print_ports("outputs", model.outputs(), plan.outputs, plan.late_outputs, false);
  fmt::print("\nsteps by op:");
  for (const auto& [op, count] : count_ops(plan)) fmt::print(" {} {}", op, count);
  fmt::print("\nlayout conversions that move bytes: {}, explicit paddings: {}, casts: {}\n", plan.layout_conversions,
             plan.explicit_paddings, plan.type_conversions);
  print_late(plan);
  print_choices(plan, options);
  print_floats(plan);
  print_bands(plan);
  print_memory(plan, memory_map, options);
}

// What is known of a model whose shapes are not, and how to give them.
void print_unplanned(const Model& model, const std::string& file) {
  std::string shapes;
  for (const PortInfo& port : model.inputs()) {
    std::string shape;
    bool free = false;
    for (std::size_t axis = 0; axis < port.dims.size(); ++axis) {
      const bool unknown = port.dims[axis] < 0;
      free = free || (unknown && axis > 0);
      shape +=
          fmt::format("{}{}", axis == 0 ? "" : "x",
                      !unknown    ? fmt::to_string(port.dims[axis])
                      : axis == 0 ? "1"
                                  : fmt::format("<{}>", port.dim_names[axis].empty() ? "?" : port.dim_names[axis]));
    }
    if (free && !port.unread) shapes += fmt::format(" --shape {}", shell_word(fmt::format("{}={}", port.name, shape)));
  }
  if (shapes.empty()) return;
  fmt::print("{}: {} parameters\n", printable(model.name()), model.parameter_elems());
  for (const auto& [title, ports] : {std::pair("input", &model.inputs()), std::pair("output", &model.outputs())})
    for (const PortInfo& port : *ports)
      fmt::print("{} {} {} {}\n", title, printable(port.name), to_string(port.dtype), port.str());
  fmt::print("with numbers for <...>: lenslet inspect {}{}\n", shell_word(file), shapes);
}

void inspect(const Options& options) {
  PlanOptions plan_options = options.plan;
  plan_options.input_shapes = parse_shapes(options.shapes);
  const Model model = Model::load(options.model);
  if (!options.after.empty()) {
    const std::string dump = model.dump(options.after, plan_options);
    if (options.json)
      print_document(nlohmann::json{{"model", model.name()}, {"stage", options.after}, {"dump", dump}}, plan_options);
    else
      // The graph is named after the file; names inside it were checked when it was loaded.
      fmt::print("{}",
                 std::string(dump).replace(dump.find(model.name()), model.name().size(), printable(model.name())));
    return;
  }
  const auto plan_or_say = [&] {
    try {
      return model.plan(plan_options);
    } catch (const Error&) {
      if (!options.json && options.shapes.empty()) print_unplanned(model, options.model);
      throw;
    }
  };
  const PlanInfo plan = plan_or_say();
  print_device_note(plan_options);
  note_refused_algorithms(plan, plan_options);
  if (!options.json) return print_text(model, plan, options.memory_map, options.table);
  print_document(to_json(model, plan), plan_options);
}

}  // namespace

void add_inspect(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("inspect", "Show a model: ports, ops, FLOPs, candidates of every convolution, memory");
  verb->add_option("model", options->model, "ONNX file")->required();
  std::vector<std::string> stages = pass_names();
  stages.insert(stages.begin(), {"load", "infer"});
  stages.emplace_back("plan");
  verb->add_option("--after", options->after, "Print the graph after a stage instead")->check(CLI::IsMember(stages));
  verb->add_option("--batch", options->plan.batch, "Images at once")
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  verb->add_flag("--memory-map", options->memory_map, "Also list every value's place in the arena");
  add_shape_option(*verb, options->shapes);
  add_plan_options(*verb, options->plan);
  add_table_options(*verb, options->table, {candidate_columns, placement_columns});
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet inspect resnet50.onnx\n"
               "lenslet inspect resnet50.onnx --after fold_batch_norm\n"
               "lenslet inspect ppocr.onnx --shape x=1x3x48x192 --json");
  verb->callback([options, &result] {
    inspect(*options);
    result = exit_ok;
  });
}

}  // namespace lenslet::tool

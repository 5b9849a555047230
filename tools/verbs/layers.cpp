// lenslet layers: each layer's algorithm and the reason for it, its time beside the machine's limits, and its error.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/error.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/layer_table.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/trace.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::string model, sort = "order", trace;
  std::vector<std::string> layers;
  InputOptions inputs;
  double seconds = 1;
  int warmup = default_warmup;
  bool no_errors = false, json = false, csv = false;
  PlanOptions plan;
  TableOptions table;
};

struct Order {
  const char* name;
  double (*key)(const LayerRow& row);  ///< sorted by this, largest first
};
constexpr Order orders[] = {
    {"time", [](const LayerRow& row) { return row.time.us.median; }},
    {"lost", [](const LayerRow& row) { return row.time.lost_us(); }},
    {"share", [](const LayerRow& row) { return -row.time.percent_of_floor(); }},
    {"bytes", [](const LayerRow& row) { return static_cast<double>(row.time.step.bytes); }},
    {"error",
     [](const LayerRow& row) {
       return row.check && row.check->tolerance > 0 ? row.check->error / row.check->tolerance : 0.0;
     }},
};

std::vector<std::string> order_names() {
  std::vector<std::string> names{"order"};
  for (const Order& order : orders) names.emplace_back(order.name);
  return names;
}

// The step with that name, or the only one whose name ends so, or the only one whose name contains it.
template <typename NameOf>
std::size_t find_layer(std::size_t count, const NameOf& name_of, const std::string& wanted) {
  std::vector<std::size_t> ending, with;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = name_of(i);
    if (name == wanted) return i;
    if (name.ends_with(wanted)) ending.push_back(i);
    if (name.find(wanted) != std::string::npos) with.push_back(i);
  }
  if (ending.size() == 1) return ending[0];
  if (with.size() == 1) return with[0];
  if (with.empty())
    throw Error(ErrorKind::invalid_argument, fmt::format("no layer is called '{}', or has that in its name", wanted));
  constexpr std::size_t shown = 5;
  std::vector<std::string> known;
  for (const std::size_t i : std::span(with).first(std::min(with.size(), shown))) known.push_back(name_of(i));
  throw Error(ErrorKind::invalid_argument, fmt::format("'{}' is in the names of {} layers: {}{}", wanted, with.size(),
                                                       fmt::join(known, ", "), with.size() > shown ? " ..." : ""));
}

struct Report {
  std::string model, device = {};
  Numerics numerics = {};
  int threads = 1;
  std::optional<Peak> peak = {};
  std::vector<LayerRow> rows = {};
};

Report measure(const Options& options) {
  const Model model = load_for(options.model, options.inputs.files);
  PlanOptions plan = options.plan;
  const std::vector<Tensor> given = given_inputs(model, options.inputs, plan);
  print_device_note(plan);

  Report report{.model = model.name()};
  {
    Runner runner(model, plan);
    report.device = runner.plan().device;
    report.numerics = runner.plan().numerics;
    report.threads = runner.plan().threads;
    note_refused_algorithms(runner.plan(), plan);
    const std::vector<StepInfo>& steps = runner.plan().steps;
    for (const std::string& name : options.layers)  // before anything is measured
      find_layer(
          steps.size(), [&](std::size_t i) { return steps[i].no_op ? "" : steps[i].name; }, name);
    report.peak = peak_of(runner.plan());
    const std::vector<Tensor> inputs = given_or_random(model, runner.plan(), given, options.inputs);
    for (int i = 0; i < options.warmup; ++i) runner.run(inputs);
    for (LayerTime& time : time_layers(runner, inputs, options.seconds, report.peak))
      report.rows.push_back({std::move(time), {}});
  }
  if (options.no_errors) return report;
  plan.keep_all_values = true;  // the observer reads inputs that would be overwritten otherwise
  Runner runner(model, plan);
  Progress progress(report.rows.size(), "layers in double");
  std::size_t next = 0;  // both plans have the same steps in the same order
  runner.set_observer([&](const LayerEvent& event) {
    if (next < report.rows.size() && report.rows[next].time.step.name == event.info->name)
      report.rows[next++].check = check_step(event);
    progress.update(next);
  });
  runner.run(given_or_random(model, runner.plan(), given, options.inputs));
  return report;
}

void print_text(const Options& options, const Report& report) {
  if (!options.layers.empty()) {
    for (const LayerRow& row : report.rows) print_in_full(row, report.device, options.table);
    return;
  }
  fmt::print("{} on {}", printable(report.model), report.device);
  if (report.device == "cpu") fmt::print(" with {} threads", report.threads);
  if (report.peak)
    fmt::print(
        "; floor: what {:.1f} GFLOP/s{}{} or {:.1f} GB/s allow, measured now", report.peak->flops_per_us / 1e3,
        report.peak->int8_ops_per_us > 0 ? fmt::format(" ({:.0f} in int8)", report.peak->int8_ops_per_us / 1e3) : "",
        report.peak->bf16_ops_per_us > 0 ? fmt::format(" ({:.0f} in bf16)", report.peak->bf16_ops_per_us / 1e3) : "",
        report.peak->bytes_per_us / 1e3);
  fmt::print("\n");
  if (!options.no_errors) fmt::print("error: largest, relative to the output's rms, against double precision\n");
  fmt::print("\n");
  print_table(report.rows, options.table);
  print_totals(report.rows, options.table);
}

/// False if a layer's error exceeds its tolerance.
bool layers(const Options& options) {
  if (options.no_errors && options.sort == "error")
    throw Error(ErrorKind::invalid_argument, "--sort error and --no-errors exclude each other");
  if (const auto folder = std::filesystem::path(options.trace).parent_path();
      !folder.empty() && !std::filesystem::is_directory(folder))
    throw Error(ErrorKind::io, "cannot be written: there is no such folder", options.trace);
  Report report = measure(options);
  if (!options.trace.empty()) write_trace(options.trace, report.model, report.device, report.rows);
  const bool right =
      std::ranges::all_of(report.rows, [](const LayerRow& row) { return !row.check || row.check->passed(); });
  if (!options.layers.empty()) {
    std::vector<LayerRow> wanted;
    for (const std::string& name : options.layers)
      wanted.push_back(report.rows[find_layer(
          report.rows.size(), [&](std::size_t i) { return report.rows[i].time.step.name; }, name)]);
    report.rows = std::move(wanted);
  }
  for (const Order& order : orders)
    if (options.sort == order.name) std::ranges::stable_sort(report.rows, std::greater(), order.key);
  if (options.csv) {
    print_csv(report.rows);
  } else if (options.json) {
    nlohmann::ordered_json document = {{"model", report.model},
                                       {"device", report.device},
                                       {"precision", to_string(report.numerics)},
                                       {"threads", report.threads}};
    if (report.peak) document["peak"] = to_json(*report.peak);
    document["layers"] = nlohmann::ordered_json::array();
    for (const LayerRow& row : report.rows) document["layers"].push_back(to_json(row));
    print_document(std::move(document), options.plan);
  } else {
    print_text(options, report);
  }
  return right;
}

}  // namespace

void add_layers(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "layers", "Which algorithm each layer runs with, why, how close to the machine's limits, how wrong");
  verb->add_option("model", options->model, "ONNX file")->required();
  verb->add_option("--layer", options->layers, "This layer in full: its name, or a part that no other has; repeatable")
      ->allow_extra_args(false);
  verb->add_option(
          "--sort", options->sort,
          "order (of execution), time, lost (above the floor), share (of the floor, least first), bytes, error "
          "(of the tolerance)")
      ->check(CLI::IsMember(order_names()))
      ->capture_default_str();
  verb->add_flag("--no-errors", options->no_errors, "Leave out the errors: double precision takes its time");
  verb->add_option("--seconds", options->seconds, "Time to spend on measuring")
      ->check(number_up_to(3600))
      ->capture_default_str();
  add_warmup_option(*verb, options->warmup);
  verb->add_option("--trace", options->trace, "Also write the layers to this file, for ui.perfetto.dev")
      ->check(not_empty());
  verb->add_option("--batch", options->plan.batch, "Images at once")
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  add_input_options(*verb, options->inputs);
  add_plan_options(*verb, options->plan);
  add_table_options(*verb, options->table, {layer_columns, total_columns, candidate_columns});
  CLI::Option* const csv = verb->add_flag("--csv", options->csv, "Print comma-separated values instead");
  add_json_option(*verb, options->json)->excludes(csv);
  add_examples(*verb,
               "lenslet layers resnet50.onnx\n"
               "lenslet layers resnet50.onnx --sort lost --device cuda --batch 8\n"
               "lenslet layers resnet50.onnx --layer Conv_7 --conv-algorithm Conv_7=im2col\n"
               "lenslet layers resnet50.onnx --no-errors --csv --trace resnet50.trace.json");
  verb->callback([options, &result] { result = layers(*options) ? exit_ok : exit_failed; });
}

}  // namespace lenslet::tool

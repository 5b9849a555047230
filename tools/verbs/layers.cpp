// lenslet layers: each layer's algorithm and the reason for it, its time beside the machine's limits, and its error.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lenslet/error.h"
#include "tools/verbs/advice.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/layer_table.h"
#include "tools/verbs/measured_layers.h"
#include "tools/verbs/slowness.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/trace.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options : MeasuringOptions {
  std::string sort, trace;  // sort: empty for "time" in tables, "order" otherwise
  std::optional<std::size_t> top;
  std::vector<std::string> layers;
  bool json = false, csv = false;
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

void print_text(const Options& options, const MeasuredLayers& report) {
  if (!options.layers.empty()) {
    for (const LayerRow& row : report.rows) print_in_full(row, report.plan.device, options.table);
    return;
  }
  const std::size_t width = options.table.wide ? std::numeric_limits<std::size_t>::max() : terminal_columns(stdout);
  const auto say = [&](const std::string& text, std::size_t indent = 2) {
    fmt::print("{}", wrapped(text, width, indent));
  };
  const auto in_bands = std::ranges::count_if(report.rows, [](const LayerRow& row) { return !row.time.band.empty(); });
  say(fmt::format(
          "{} on {}{}: {} a run; its layers, timed alone, {}{}", report.model.name(), report.plan.device,
          report.plan.device == "cpu" ? fmt::format(" with {} threads", report.plan.threads) : "",
          duration(report.run_us->median), duration(sum_us(report.rows)),
          in_bands > 0 ? fmt::format(" (runs compute {} of them together, some rows at a time)", in_bands) : ""),
      0);
  if (!report.disturbed.empty()) say(report.disturbed, 0);
  for (const std::string& line : slowest(report.rows, !report.disturbed.empty())) say(line);
  const std::vector<Advice> advice = advice_on(report.rows, report.facts, report.timeline);
  for (const Advice& one : advice)
    if (one.layers.empty()) say("The run: " + one.text);
  if (report.peak)
    say(fmt::format(
        "Limit: the time that {:.1f} GFLOP/s{}{} or {:.1f} GB/s, measured now, allow a layer. >100 %: it did "
        "less than was counted (Winograd), or found data in the caches; totals count it as 100 %.",
        report.peak->flops_per_us / 1e3,
        report.peak->int8_ops_per_us > 0 ? fmt::format(" ({:.0f} in int8)", report.peak->int8_ops_per_us / 1e3) : "",
        report.peak->bf16_ops_per_us > 0 ? fmt::format(" ({:.0f} in bf16)", report.peak->bf16_ops_per_us / 1e3) : "",
        report.peak->bytes_per_us / 1e3));
  fmt::print("\n");
  constexpr std::size_t most_at_terminal = 20;
  const bool few = isatty(STDOUT_FILENO) == 1 && options.sort != "order";
  const std::size_t top = options.top.value_or(few ? most_at_terminal : 0);
  print_table(report.rows, top == 0 ? report.rows.size() : top, options.table);
  if (!options.no_errors) say("error: the largest, relative to the output's rms, against double precision");
  print_totals(report.rows, options.table);
  print_advice(advice, report.rows, width);
}

/// False if a layer's error exceeds its tolerance.
bool layers(Options& options) {
  if (options.no_errors && options.sort == "error")
    throw Error(ErrorKind::invalid_argument, "--sort error and --no-errors exclude each other");
  if (const auto folder = std::filesystem::path(options.trace).parent_path();
      !folder.empty() && !std::filesystem::is_directory(folder))
    throw Error(ErrorKind::io, "cannot be written: there is no such folder", options.trace);
  options.before_measuring = [&options](const PlanInfo& plan) {
    for (const std::string& name : options.layers)
      find_layer(
          plan.steps.size(), [&](std::size_t i) { return plan.steps[i].no_op ? "" : plan.steps[i].name; }, name);
  };
  MeasuredLayers report = measure_layers(options);
  if (!options.trace.empty()) write_trace(options.trace, report);
  const bool right =
      std::ranges::all_of(report.rows, [](const LayerRow& row) { return !row.check || row.check->passed(); });
  if (!options.layers.empty()) {
    std::vector<LayerRow> wanted;
    for (const std::string& name : options.layers)
      wanted.push_back(report.rows[find_layer(
          report.rows.size(), [&](std::size_t i) { return report.rows[i].time.step.name; }, name)]);
    report.rows = std::move(wanted);
    report.timeline.reset();  // it is of all layers
  }
  if (options.sort.empty() && !options.csv && !options.json && options.layers.empty()) options.sort = "time";
  for (const Order& order : orders)
    if (options.sort == order.name) std::ranges::stable_sort(report.rows, std::greater(), order.key);
  if (options.csv) {
    print_csv(report.rows);
  } else if (options.json) {
    print_document(to_json(report), options.plan);
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
          "order (of execution), time, lost (above the limit), share (of the limit, least first), bytes, error "
          "(of the tolerance)")
      ->check(CLI::IsMember(order_names()))
      ->default_str("time; with --json and --csv order");
  verb->add_option("--top", options->top, "Print only the first rows; 0: all")
      ->transform(whole_number<std::size_t>(0, 1000000))
      ->default_str("20 at a terminal, unless sorted by order; else 0");
  verb->add_option("--trace", options->trace,
                   "Also write to this file, for ui.perfetto.dev, when each thread or stream computed which layer")
      ->check(not_empty());
  add_measuring_options(*verb, *options);
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

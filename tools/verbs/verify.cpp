// lenslet verify: checks every layer, on its own inputs, and the outputs of the network as loaded against
// double-precision references.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lenslet/check.h"
#include "lenslet/device.h"
#include "lenslet/error.h"
#include "lenslet/model.h"
#include "tools/verbs/check_rows.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/text_table.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::string model;
  InputOptions inputs;
  bool json = false;
  PlanOptions plan;
  TableOptions table;
};

// The rows of one algorithm, without refusals.
struct Report {
  std::string how;  ///< the requested convolution algorithm
  std::vector<LayerCheck> layers, outputs;
};

std::vector<Report> by_algorithm(std::vector<LayerCheck> rows) {
  std::vector<Report> reports;
  for (LayerCheck& row : rows) {
    if (row.kind == LayerCheck::Kind::refusal) continue;
    if (reports.empty() || reports.back().how != row.forced) reports.emplace_back().how = row.forced;
    Report& report = reports.back();
    (row.kind == LayerCheck::Kind::layer ? report.layers : report.outputs).push_back(std::move(row));
  }
  return reports;
}

using enum Column::Kind;
constexpr Column output_columns[] = {{"output", 0, name}, {"difference", 0}, {"allowed", 1}, {"verdict", 2, text}};
constexpr Column layer_columns[] = {{"layer", 0, name}, {"op", 3, name},  {"algorithm", 1, name},
                                    {"error", 0},       {"tolerance", 1}, {"verdict", 2, text}};

// The rows of either table: the cells that identify `row`, then error, tolerance and verdict.
void add(TextTable& table, std::vector<std::string> cells, const LayerCheck& row, const char* unchecked) {
  if (row.skipped.empty())
    for (std::string cell : {fmt::format("{:.2e}", row.error), fmt::format("{:.2e}", row.tolerance), row.verdict()})
      cells.push_back(std::move(cell));
  else
    cells.push_back(fmt::format("{}: {}", unchecked, row.skipped));
  table.add(std::move(cells));
}

void print_outputs(const Report& report, const TableOptions& options) {
  if (report.outputs.empty()) return;
  TextTable table(output_columns, options);
  for (const LayerCheck& output : report.outputs) add(table, {output.name}, output, "not compared");
  fmt::print("\nthe network's outputs{}\n", report.how.empty() ? "" : fmt::format(", by {}", report.how));
  table.print();
}

void print_layers(const Report& report, const TableOptions& options) {
  if (report.layers.empty()) return;
  TextTable table(layer_columns, options);
  for (const LayerCheck& layer : report.layers)
    add(table, {layer.name, layer.op, layer.algorithm}, layer, "not checked");
  table.print();
}

bool verify(const Options& options) {
  const Model model = load_for(options.model, options.inputs.files);
  CheckOptions how{.seed = options.inputs.seed, .plan = options.plan};
  how.inputs = given_inputs(model, options.inputs, how.plan);
  print_device_note(how.plan);
  PlanOptions plan = how.plan;
  if (plan.conv_algorithm == "all") plan.conv_algorithm.clear();
  const PlanInfo planned = model.plan(plan);
  if (how.plan.conv_algorithm != "all") note_refused_algorithms(planned, plan);
  std::optional<Progress> progress;
  how.progress = [&](std::size_t done, std::size_t total) {
    if (done == 0) progress.emplace(total, "layers in double");  // of the next run
    progress->update(std::min(done, total));
  };
  const std::vector<Report> reports = by_algorithm(check_layers(model, how));
  progress.reset();

  std::size_t checked = 0, exceeded = 0, skipped = 0, compared = 0, different = 0;
  nlohmann::json rows = nlohmann::json::array(), outputs = nlohmann::json::array();
  for (const Report& report : reports) {
    for (const LayerCheck& layer : report.layers) {
      ++(layer.skipped.empty() ? checked : skipped);
      exceeded += layer.passed() ? 0 : 1;
      if (options.json) rows.push_back(to_json(layer));
    }
    for (const LayerCheck& output : report.outputs) {
      compared += output.skipped.empty() ? 1 : 0;
      different += output.passed() ? 0 : 1;
      if (options.json) outputs.push_back(to_json(output));
    }
    if (options.json) continue;
    print_layers(report, options.table);
    print_outputs(report, options.table);
  }
  if (options.json) {
    const nlohmann::json document = {{"model", model.name()}, {"device", planned.device}, {"layers", rows},
                                     {"checked", checked},    {"exceeded", exceeded},     {"unchecked", skipped},
                                     {"outputs", outputs},    {"different", different}};
    print_document(document, options.plan);
  } else {
    fmt::print("{} layers checked on {}, {} exceeded their tolerance, {} without a reference\n", checked,
               planned.device, exceeded, skipped);
    fmt::print("{} outputs compared with the file's network in double precision, {} differ\n", compared, different);
    for (const Report& report : reports)
      if (const std::string advice = range_advice(report.layers); !advice.empty()) {
        fmt::print("{} (--precision bf16)\n", advice);
        break;
      }
  }
  return exceeded == 0 && different == 0;
}

}  // namespace

void add_verify(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("verify", "Check every layer, and the outputs of all, against double precision");
  verb->add_option("model", options->model, "ONNX file")->required();
  verb->add_option("--batch", options->plan.batch, "Images at once")
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  add_input_options(*verb, options->inputs);
  add_plan_options(*verb, options->plan);
  CLI::Option* const algorithm = verb->get_option("--conv-algorithm");
  algorithm->description(algorithm->get_description() + "; all: each of them in turn");
  add_table_options(*verb, options->table, {layer_columns, output_columns});
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet verify resnet50.onnx\n"
               "lenslet verify resnet50.onnx --conv-algorithm all --random 7\n"
               "lenslet verify net.onnx --input x=photo.npy --json");
  verb->callback([options, &result] { result = verify(*options) ? exit_ok : exit_failed; });
}

}  // namespace lenslet::tool

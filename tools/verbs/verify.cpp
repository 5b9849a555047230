// lenslet verify: checks every layer, on its own inputs, and the outputs of the network as loaded against
// double-precision references.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/check.h"
#include "lenslet/device.h"
#include "lenslet/error.h"
#include "lenslet/model.h"
#include "tools/verbs/check_rows.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/terminal.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::string model;
  InputOptions inputs;
  bool json = false;
  PlanOptions plan;
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

void print_outputs(const Report& report) {
  if (report.outputs.empty()) return;
  fmt::print("{:<32} {:>20} {:>10}\n",
             report.how.empty() ? "output, of the file's network" : fmt::format("output, by {}", report.how),
             "difference", "allowed");
  for (const LayerCheck& output : report.outputs)
    if (output.skipped.empty())
      fmt::print("{:<32} {:>20.2e} {:>10.2e}  {}\n", printable(output.name), output.error, output.tolerance,
                 output.verdict());
    else
      fmt::print("{:<32} not compared: {}\n", printable(output.name), output.skipped);
}

void print_layers(const Report& report) {
  if (report.layers.empty()) return;
  std::size_t width = 14;
  for (const LayerCheck& layer : report.layers) width = std::max(width, layer.algorithm.size());
  fmt::print("{:<32} {:<20} {:<{}} {:>10} {:>10}\n", "layer", "op", "algorithm", width, "error", "tolerance");
  for (const LayerCheck& layer : report.layers) {
    fmt::print("{:<32} {:<20} {:<{}} ", layer.name, layer.op, layer.algorithm, width);
    if (layer.skipped.empty())
      fmt::print("{:>10.2e} {:>10.2e}  {}\n", layer.error, layer.tolerance, layer.verdict());
    else
      fmt::print("not checked: {}\n", layer.skipped);
  }
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
  const std::vector<Report> reports = by_algorithm(check_layers(model, how));

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
    print_layers(report);
    print_outputs(report);
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
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet verify resnet50.onnx\n"
               "lenslet verify resnet50.onnx --conv-algorithm all --random 7\n"
               "lenslet verify net.onnx --input x=photo.npy --json");
  verb->callback([options, &result] { result = verify(*options) ? exit_ok : exit_failed; });
}

}  // namespace lenslet::tool

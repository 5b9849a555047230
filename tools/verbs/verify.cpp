// lenslet verify: every layer against a double-precision reference, fed with the layer's own inputs, and the outputs
// against the whole network as the file has it, in double precision.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/device.h"
#include "lenslet/error.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/layer_check.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/network_check.h"
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

struct Report {
  std::string how;  ///< the convolution algorithm that was asked for
  std::vector<LayerCheck> layers;
  NetworkRun run;
  std::vector<OutputCheck> outputs;
};

// What is verified: the model, its inputs (none: random ones), and the plan.
struct Subject {
  const Model& model;
  const InputOptions& options;
  PlanOptions plan;
  std::vector<Tensor> inputs = given_inputs(model, options, plan);

  std::vector<Tensor> inputs_of(const PlanInfo& planned) const {
    return given_or_random(model, planned, inputs, options);
  }
};

Report verify_once(const Subject& subject, PlanOptions plan, bool notes) {
  plan.keep_all_values = true;  // the observer looks back at inputs that would be overwritten otherwise
  Runner runner(subject.model, plan);
  if (notes) note_refused_algorithms(runner.plan(), plan);
  Report report;
  report.how = plan.conv_algorithm;
  runner.set_observer([&](const LayerEvent& event) { report.layers.push_back(check_layer(event)); });
  for (const Tensor& output : runner.run(subject.inputs_of(runner.plan())))
    report.run.outputs.push_back(output.clone());
  report.run.plan = runner.plan();
  report.run.large_integers =
      std::ranges::any_of(report.layers, [](const LayerCheck& layer) { return layer.large_integers; });
  report.run.made_nan = std::ranges::any_of(report.layers, [](const LayerCheck& layer) { return layer.made_nan > 0; });
  return report;
}

std::vector<Report> run_all(const Subject& subject) {
  PlanOptions plan = subject.plan;
  std::vector<Report> reports;
  if (plan.conv_algorithm != "all") {
    reports.push_back(verify_once(subject, plan, true));
    return reports;
  }
  const std::vector<std::string> names = conv_algorithm_names(plan.device);
  plan.conv_algorithm_where_accepted = true;
  for (const std::string& name : names) {
    plan.conv_algorithm = name;
    Report report = verify_once(subject, plan, false);
    // Layers that refused it ran with another algorithm, which has its own turn.
    std::erase_if(report.layers, [&](const LayerCheck& layer) { return layer.algorithm != name; });
    reports.push_back(std::move(report));
  }
  // And the other ops, once.
  plan.conv_algorithm.clear();
  Report rest = verify_once(subject, plan, false);
  std::erase_if(rest.layers, [&](const LayerCheck& layer) {
    return std::find(names.begin(), names.end(), layer.algorithm) != names.end();
  });
  reports.push_back(std::move(rest));
  return reports;
}

std::vector<Report> verify_all(const Subject& subject) {
  std::vector<Report> reports = run_all(subject);
  std::vector<NetworkRun> runs;
  for (const Report& report : reports) runs.push_back(report.run);
  try {
    const NetworkReference reference(subject.model, subject.plan, subject.inputs_of(runs.at(0).plan), runs);
    for (Report& report : reports)
      if (!report.layers.empty()) report.outputs = reference.check(report.run);  // else that algorithm took no layer
  } catch (const Error& error) {
    // What no kernel takes until a pass has rewritten it.
    if (error.kind() != ErrorKind::unsupported) throw;
    for (const auto& [name, shape] : runs.at(0).plan.outputs)
      reports.at(0).outputs.push_back({.name = name, .skipped = error.message()});
  }
  return reports;
}

nlohmann::json to_json(const OutputCheck& output, const std::string& how) {
  nlohmann::json row = {{"name", output.name}, {"passed", output.passed()}};
  if (!how.empty()) row["conv_algorithm"] = how;
  if (output.skipped.empty())
    row.update({{"error", number_or_infinite(output.error)}, {"tolerance", output.tolerance}});
  else
    row["skipped"] = output.skipped;
  return row;
}

nlohmann::json to_json(const LayerCheck& layer) {
  nlohmann::json row = {{"name", layer.name}, {"op", layer.op}, {"tolerance", layer.tolerance}};
  if (!layer.algorithm.empty()) row["algorithm"] = layer.algorithm;
  if (!layer.skipped.empty())
    row["skipped"] = layer.skipped;
  else
    row["error"] = number_or_infinite(layer.error);
  if (layer.not_finite > 0) row["not_finite"] = layer.not_finite;
  if (layer.made_nan > 0) row["made_nan"] = layer.made_nan;
  if (layer.beyond_range > 0) row["beyond_range"] = layer.beyond_range;
  row["passed"] = layer.passed();
  return row;
}

void print_outputs(const Report& report) {
  if (report.outputs.empty()) return;
  fmt::print("{:<32} {:>20} {:>10}\n",
             report.how.empty() ? "output, of the file's network" : fmt::format("output, by {}", report.how),
             "difference", "allowed");
  for (const OutputCheck& output : report.outputs)
    if (output.skipped.empty())
      fmt::print("{:<32} {:>20.2e} {:>10.2e}  {}\n", printable(output.name), output.error, output.tolerance,
                 output.passed() ? "ok" : "EXCEEDED: the plan computes another network");
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
      fmt::print("{:>10.2e} {:>10.2e}  {}\n", layer.error, layer.tolerance, verdict(layer));
    else
      fmt::print("not checked: {}\n", layer.skipped);
  }
}

bool verify(const Options& options) {
  const Model model = load_for(options.model, options.inputs.files);
  const Subject subject{model, options.inputs, options.plan};
  print_device_note(options.plan);
  const std::vector<Report> reports = verify_all(subject);
  const std::string& device = reports.at(0).run.plan.device;

  std::size_t checked = 0, exceeded = 0, skipped = 0, compared = 0, different = 0;
  nlohmann::json rows = nlohmann::json::array(), outputs = nlohmann::json::array();
  for (const Report& report : reports) {
    for (const LayerCheck& layer : report.layers) {
      ++(layer.skipped.empty() ? checked : skipped);
      exceeded += layer.passed() ? 0 : 1;
      if (options.json) rows.push_back(to_json(layer));
    }
    for (const OutputCheck& output : report.outputs) {
      compared += output.skipped.empty() ? 1 : 0;
      different += output.passed() ? 0 : 1;
      if (options.json) outputs.push_back(to_json(output, report.how));
    }
    if (options.json) continue;
    print_layers(report);
    print_outputs(report);
  }
  if (options.json) {
    const nlohmann::json document = {{"model", model.name()}, {"device", device},      {"layers", rows},
                                     {"checked", checked},    {"exceeded", exceeded},  {"unchecked", skipped},
                                     {"outputs", outputs},    {"different", different}};
    print_document(document, options.plan);
  } else {
    fmt::print("{} layers checked on {}, {} exceeded their tolerance, {} without a reference\n", checked, device,
               exceeded, skipped);
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

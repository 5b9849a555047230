// lenslet verify: every layer against a double-precision reference, fed with the layer's own inputs.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/device.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/layer_check.h"
#include "tools/verbs/model_inputs.h"
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
  std::string device;
  std::vector<LayerCheck> layers;
};

// What is verified: the model, its inputs (none: random ones), and the plan.
struct Subject {
  const Model& model;
  const InputOptions& options;
  PlanOptions plan;
  std::vector<Tensor> inputs = given_inputs(model, options, plan);
};

Report verify_once(const Subject& subject, PlanOptions plan, bool notes) {
  plan.keep_all_values = true;  // the observer looks back at inputs that would be overwritten otherwise
  Runner runner(subject.model, plan);
  if (notes) note_refused_algorithms(runner.plan(), plan);
  Report report{runner.plan().device, {}};
  runner.set_observer([&](const LayerEvent& event) { report.layers.push_back(check_layer(event)); });
  runner.run(given_or_random(subject.model, runner.plan(), subject.inputs, subject.options));
  return report;
}

std::vector<Report> verify_all(const Subject& subject) {
  PlanOptions plan = subject.plan;
  if (plan.conv_algorithm != "all") return {verify_once(subject, plan, true)};
  std::vector<Report> reports;
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

nlohmann::json to_json(const LayerCheck& layer) {
  nlohmann::json row = {{"name", layer.name}, {"op", layer.op}, {"tolerance", layer.tolerance}};
  if (!layer.algorithm.empty()) row["algorithm"] = layer.algorithm;
  if (!layer.skipped.empty())
    row["skipped"] = layer.skipped;
  else
    row["error"] = number_or_infinite(layer.error);
  if (layer.against_terms) row["relative_to"] = "terms";
  if (layer.not_finite > 0) row["not_finite"] = layer.not_finite;
  if (layer.made_nan > 0) row["made_nan"] = layer.made_nan;
  if (layer.beyond_range > 0) row["beyond_range"] = layer.beyond_range;
  row["passed"] = layer.passed();
  return row;
}

void print_report(const Report& report) {
  std::size_t width = 14;
  for (const LayerCheck& layer : report.layers) width = std::max(width, layer.algorithm.size());
  fmt::print("{:<32} {:<20} {:<{}} {:>10} {:>10}\n", "layer", "op", "algorithm", width, "error/rms", "tolerance");
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
  const std::string& device = reports.at(0).device;

  std::size_t checked = 0, exceeded = 0, skipped = 0;
  nlohmann::json rows = nlohmann::json::array();
  for (const Report& report : reports) {
    for (const LayerCheck& layer : report.layers) {
      ++(layer.skipped.empty() ? checked : skipped);
      exceeded += layer.passed() ? 0 : 1;
      if (options.json) rows.push_back(to_json(layer));
    }
    if (!options.json && !report.layers.empty()) print_report(report);
  }
  if (options.json) {
    const nlohmann::json document = {{"model", model.name()}, {"device", device},     {"layers", rows},
                                     {"checked", checked},    {"exceeded", exceeded}, {"unchecked", skipped}};
    print_document(document, options.plan);
  } else {
    fmt::print("{} layers checked on {}, {} exceeded their tolerance, {} without a reference\n", checked, device,
               exceeded, skipped);
    for (const Report& report : reports)
      if (const std::string advice = range_advice(report.layers); !advice.empty()) {
        fmt::print("{} (--precision bf16)\n", advice);
        break;
      }
  }
  return exceeded == 0;
}

}  // namespace

void add_verify(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("verify", "Check every layer against a double-precision reference");
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

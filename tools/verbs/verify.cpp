// lenslet verify: every layer against a double-precision reference, fed with the layer's own inputs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/device.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "oracle/oracle.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/model_inputs.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options {
  std::string model;
  std::vector<std::string> inputs;
  std::vector<std::string> shapes;
  std::uint64_t seed = 1;
  bool json = false;
  PlanOptions plan;
};

struct LayerCheck {
  std::string name, op, algorithm;
  double error = 0;  ///< max |got - exact| / oracle::rms(exact), worst output
  double tolerance = 0;
  bool against_terms = false;  ///< the error is relative to the channel's terms: they cancel, see error_against_terms
  std::size_t not_finite = 0;  ///< elements that are infinite or NaN by the reference
  std::size_t made_nan = 0;    ///< elements that the algorithm made NaN for their neighbours' sake, see Judge
  std::string skipped;         ///< why it was not checked; empty: it was
  bool passed() const { return !skipped.empty() || error <= tolerance; }
};

struct Report {
  std::string device;
  std::vector<LayerCheck> layers;
};

// Where the reference is NaN, or an infinity, the layer has to have the same: anything else is an infinite error, and
// so is what is not finite where the reference is. But Winograd adds and subtracts the pixels of a tile before it
// multiplies: of an infinity or a NaN among a layer's inputs it makes NaN in all outputs of the tile, which is told and
// no error. Errors are measured where both are finite.
class Judge {
 public:
  Judge(const LayerEvent& event, const std::vector<oracle::Array>& inputs)
      : spreads_(event.info->algorithm.starts_with("winograd") &&
                 !std::ranges::all_of(inputs, [](const oracle::Array& input) {
                   return std::ranges::all_of(input.values, [](double value) { return std::isfinite(value); });
                 })) {}

  bool made_nan(double got, double exact) const { return spreads_ && std::isnan(got) && !std::isnan(exact); }
  static bool comparable(double got, double exact) { return std::isfinite(got) && std::isfinite(exact); }

  void look_at(const oracle::Array& got, const oracle::Array& exact, LayerCheck& check) const {
    if (got.values.size() != exact.values.size()) {
      check.error = INFINITY;
      return;
    }
    double worst = 0;
    for (std::size_t i = 0; i < got.values.size(); ++i) {
      const double a = got.values[i], e = exact.values[i];
      if (!std::isfinite(e)) ++check.not_finite;
      if (made_nan(a, e))
        ++check.made_nan;
      else if (comparable(a, e))
        worst = std::max(worst, std::abs(a - e));
      else if (a != e && !(std::isnan(a) && std::isnan(e)))
        worst = INFINITY;
    }
    const double scale = oracle::rms(exact.values);
    if (worst > 0) check.error = std::max(check.error, scale > 0 ? worst / scale : INFINITY);
  }

 private:
  bool spreads_;
};

// The same sum with every term positive and no activation: what rounding errors are proportional to.
std::vector<oracle::Array> sum_of_magnitudes(const LayerEvent& event, std::vector<oracle::Array> inputs) {
  AttributeList attributes = event.info->attributes;
  for (auto& [name, value] : attributes) {
    if (name == "activation") value = std::string("none");
    if (auto* factors = std::get_if<std::vector<double>>(&value))
      for (double& factor : *factors) factor = std::abs(factor);
    if (auto* factor = std::get_if<double>(&value)) *factor = std::abs(*factor);
  }
  for (oracle::Array& input : inputs)
    for (double& value : input.values) value = std::abs(value);
  return oracle::run(event.info->op, attributes, inputs).value();
}

// Tolerances of sums of products are stated for terms of random sign, where oracle::rms(y) is about oracle::rms(sum
// |terms|) / sqrt(terms). In a trained layer a channel's terms may cancel (against its bias, too) or an activation may
// clip most of them away; the rounding error does not cancel with them. There the channel's rms of sum |terms| /
// sqrt(terms) stands in for the output's rms. Only ever asked for layers that exceed the plain measure.
double error_against_terms(const LayerEvent& event, const std::vector<oracle::Array>& inputs,
                           const oracle::Array& exact) {
  const oracle::Array magnitudes = sum_of_magnitudes(event, inputs).at(0);
  const oracle::Array got = oracle::from_tensor(event.outputs[0]);
  const std::int64_t channels = exact.shape[1];
  const std::int64_t inner = exact.shape.rank() > 2 ? exact.shape.elems() / (exact.shape[0] * channels) : 1;
  const double terms = static_cast<double>(inputs.at(1).shape.elems()) / static_cast<double>(channels);
  const double output_rms = oracle::rms(exact.values);
  double worst = 0;
  for (std::int64_t c = 0; c < channels; ++c) {
    std::vector<double> of_channel;
    for (std::int64_t n = 0; n < exact.shape[0]; ++n)
      for (std::int64_t i = 0; i < inner; ++i)
        of_channel.push_back(magnitudes.values[static_cast<std::size_t>((n * channels + c) * inner + i)]);
    const double scale = std::max(output_rms, oracle::rms(of_channel) / std::sqrt(terms));
    for (std::int64_t n = 0; n < exact.shape[0]; ++n)
      for (std::int64_t i = 0; i < inner; ++i) {
        const auto at = static_cast<std::size_t>((n * channels + c) * inner + i);
        if (!Judge::comparable(got.values[at], exact.values[at])) continue;
        const double error = std::abs(got.values[at] - exact.values[at]);
        const double of_terms = magnitudes.values[at] / std::sqrt(terms);
        worst = std::max(worst, error / (std::isfinite(of_terms) ? std::max(scale, of_terms) : scale));
      }
  }
  return worst;
}

bool sums_products(const LayerEvent& event) {
  const bool of_two = event.info->op == "Conv" || event.info->op == "Gemm";
  return of_two && event.outputs[0].shape().rank() >= 2 && event.outputs[0].elems() > 0;
}

LayerCheck check_layer(const LayerEvent& event) {
  LayerCheck check;
  check.name = event.info->name;
  check.op = event.info->op;
  check.algorithm = event.info->algorithm;
  check.tolerance = event.info->tolerance;
  std::vector<oracle::Array> inputs;
  for (const Tensor& tensor : event.inputs) inputs.push_back(oracle::from_tensor(tensor));
  const auto exact = oracle::run(event.info->op, event.info->attributes, inputs);
  if (!exact) {
    check.skipped = "no reference for this op";
    return check;
  }
  const Judge judge(event, inputs);
  for (std::size_t i = 0; i < event.outputs.size() && i < exact->size(); ++i)
    judge.look_at(oracle::from_tensor(event.outputs[i]), (*exact)[i], check);
  if (check.error > check.tolerance && std::isfinite(check.error) && sums_products(event)) {
    check.error = error_against_terms(event, inputs, (*exact)[0]);
    check.against_terms = true;
  }
  return check;
}

// What is verified: the model, its inputs (none: random ones), and the plan.
struct Subject {
  const Model& model;
  std::vector<Tensor> inputs;
  std::uint64_t seed = 1;
  PlanOptions plan;
};

Report verify_once(const Subject& subject, PlanOptions plan) {
  plan.keep_all_values = true;  // the observer looks back at inputs that would be overwritten otherwise
  Runner runner(subject.model, plan);
  const std::vector<Tensor> inputs =
      subject.inputs.empty() ? random_inputs(subject.model, runner.plan(), subject.seed) : subject.inputs;
  Report report{runner.plan().device, {}};
  runner.set_observer([&](const LayerEvent& event) { report.layers.push_back(check_layer(event)); });
  runner.run(inputs);
  return report;
}

std::vector<Report> verify_all(const Subject& subject) {
  PlanOptions plan = subject.plan;
  if (plan.conv_algorithm != "all") return {verify_once(subject, plan)};
  std::vector<Report> reports;
  const std::vector<std::string> names = conv_algorithm_names(plan.device);
  plan.conv_algorithm_where_accepted = true;
  for (const std::string& name : names) {
    plan.conv_algorithm = name;
    Report report = verify_once(subject, plan);
    // Layers that refused it ran with another algorithm, which has its own turn.
    std::erase_if(report.layers, [&](const LayerCheck& layer) { return layer.algorithm != name; });
    reports.push_back(std::move(report));
  }
  // And the other ops, once.
  plan.conv_algorithm.clear();
  Report rest = verify_once(subject, plan);
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
    row["error"] = std::isfinite(layer.error) ? nlohmann::json(layer.error) : nlohmann::json("infinite");
  if (layer.against_terms) row["relative_to"] = "terms";
  if (layer.not_finite > 0) row["not_finite"] = layer.not_finite;
  if (layer.made_nan > 0) row["made_nan"] = layer.made_nan;
  row["passed"] = layer.passed();
  return row;
}

std::string verdict(const LayerCheck& layer) {
  if (!layer.passed()) return "EXCEEDED";
  std::string text = layer.against_terms ? "ok (of the terms: they cancel)" : "ok";
  if (layer.not_finite > 0) text += fmt::format("; {} infinite or NaN by the reference", layer.not_finite);
  if (layer.made_nan > 0) text += fmt::format("; {} made NaN by {}", layer.made_nan, layer.algorithm);
  return text;
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
  const Model model = Model::load(options.model);
  Subject subject{model, {}, options.seed, options.plan};
  subject.plan.input_shapes = parse_shapes(options.shapes);
  if (!options.inputs.empty()) subject.inputs = read_named_inputs(model, options.inputs);
  for (std::size_t i = 0; i < subject.inputs.size(); ++i)
    subject.plan.input_shapes.emplace_back(model.inputs()[i].name, subject.inputs[i].shape());
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
    print_document(document);
  } else {
    fmt::print("{} layers checked on {}, {} exceeded their tolerance, {} without a reference\n", checked, device,
               exceeded, skipped);
  }
  return exceeded == 0;
}

}  // namespace

void add_verify(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("verify", "Check every layer against a double-precision reference");
  verb->add_option("model", options->model, "ONNX file")->required();
  auto* input =
      verb->add_option("--input", options->inputs, "[NAME=]FILE.npy or .pb; repeatable")->allow_extra_args(false);
  verb->add_option("--random", options->seed, "Seed of random inputs, when no --input is given")
      ->transform(whole_number(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str()
      ->excludes(input);
  verb->add_option("--batch", options->plan.batch, "Images at once")
      ->transform(whole_number<std::int64_t>(1, max_batch))
      ->capture_default_str();
  add_shape_option(*verb, options->shapes);
  add_plan_options(*verb, options->plan);
  add_json_option(*verb, options->json);
  add_examples(*verb,
               "lenslet verify resnet50.onnx\n"
               "lenslet verify resnet50.onnx --conv-algorithm all --random 7\n"
               "lenslet verify net.onnx --input x=photo.npy --json");
  verb->callback([options, &result] { result = verify(*options) ? exit_ok : exit_failed; });
}

}  // namespace lenslet::tool

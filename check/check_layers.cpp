// A network's layers and outputs, as `lenslet verify` shows them.

#include <algorithm>
#include <utility>

#include "check/layer_check.h"
#include "check/network_check.h"
#include "check/random_inputs.h"
#include "lenslet/error.h"

namespace lenslet {

namespace {

using check::NetworkReference;
using check::NetworkRun;

/// Results of one plan's run.
struct Report {
  std::string forced;
  std::vector<LayerCheck> layers, refusals, outputs;
  NetworkRun run;
};

class Checks {
 public:
  Checks(const Model& model, const CheckOptions& options) : model_(model), options_(options), plan_(options.plan) {
    if (!options.device.empty()) plan_.device = options.device;
    if (!options.precision.empty()) plan_.numerics = parse_numerics(options.precision);
    if (!options.algorithm.empty()) plan_.conv_algorithm = options.algorithm;
    const std::vector<PortInfo>& ports = model.inputs();
    if (options.inputs.size() > ports.size())
      throw Error(ErrorKind::invalid_argument, std::to_string(options.inputs.size()) +
                                                   " inputs are given, the model has " + std::to_string(ports.size()));
    for (std::size_t i = 0; i < options.inputs.size(); ++i) {
      Tensor input = options.inputs[i];
      if (!input.empty()) {
        const DType wanted = ports[i].dtype;
        if (input.dtype() != wanted && check::is_real(input.dtype()) && check::is_real(wanted))
          input = input.to_dtype(wanted);
        const bool said =
            std::ranges::any_of(plan_.input_shapes, [&](const auto& shape) { return shape.first == ports[i].name; });
        if (!said) plan_.input_shapes.emplace_back(ports[i].name, input.shape());
      }
      inputs_.push_back(std::move(input));
    }
  }

  std::vector<LayerCheck> rows() {
    std::vector<Report> reports = run_all();
    if (options_.outputs) compare_outputs(reports);
    std::vector<LayerCheck> rows;
    for (Report& report : reports) {
      for (LayerCheck& row : report.outputs) row.forced = report.forced;
      for (std::vector<LayerCheck>* part : {&report.layers, &report.refusals, &report.outputs})
        std::ranges::move(*part, std::back_inserter(rows));
    }
    return rows;
  }

 private:
  std::vector<Tensor> inputs_of(const PlanInfo& plan) const {
    return inputs_.empty() ? check::random_inputs(model_, plan, options_.seed) : inputs_;
  }

  Report run_once(PlanOptions plan) const {
    Report report;
    report.forced = plan.conv_algorithm;
    std::vector<Tensor> inputs;
    {
      PlanOptions keeping = plan;
      keeping.keep_all_values = true;  // the observer looks back at inputs that would be overwritten otherwise
      Runner runner(model_, keeping);
      const check::StepCounter counter(options_.progress, runner.plan());
      runner.set_observer([&](const LayerEvent& event) {
        report.layers.push_back(check::row_of(event, runner.plan(), report.forced));
        counter.passed(report.layers.size());
      });
      inputs = inputs_of(runner.plan());
      for (const Tensor& output : runner.run(inputs)) report.run.outputs.push_back(output.clone());
      report.run.plan = runner.plan();
    }
    for (const LayerCheck& layer : report.layers) {
      report.run.large_integers |= layer.skipped == check::large_integers;
      report.run.made_nan |= layer.made_nan > 0;
    }
    if (options_.seconds > 0)
      check::add_times(report.layers, check::time_steps(model_, plan, inputs, options_.seconds));
    return report;
  }

  std::vector<Report> run_all() const {
    std::vector<Report> reports;
    if (plan_.conv_algorithm != "all") {
      reports.push_back(run_once(plan_));
      return reports;
    }
    PlanOptions plan = plan_;
    const std::vector<std::string> names = conv_algorithm_names(plan.device);
    plan.conv_algorithm_where_accepted = true;
    for (const std::string& name : names) {
      plan.conv_algorithm = name;
      Report report = run_once(plan);
      // Layers that refused it ran with another algorithm, which is reported separately.
      std::erase_if(report.layers, [&](const LayerCheck& layer) { return layer.algorithm != name; });
      for (const StepInfo& step : report.run.plan.steps)
        for (const StepCandidate& candidate : step.candidates)
          if (candidate.algorithm == name && !candidate.refusal.empty())
            report.refusals.push_back(check::refusal_of(step, candidate, report.run.plan));
      reports.push_back(std::move(report));
    }
    // And the other ops, once.
    plan.conv_algorithm.clear();
    Report rest = run_once(plan);
    std::erase_if(rest.layers,
                  [&](const LayerCheck& layer) { return std::ranges::find(names, layer.algorithm) != names.end(); });
    reports.push_back(std::move(rest));
    return reports;
  }

  void compare_outputs(std::vector<Report>& reports) const {
    std::vector<NetworkRun> runs;
    for (const Report& report : reports) runs.push_back(report.run);
    try {
      const NetworkReference reference(model_, plan_, inputs_of(runs.at(0).plan), runs, options_.progress);
      for (Report& report : reports)
        if (!report.layers.empty()) report.outputs = reference.check(report.run);  // else that algorithm took no layer
    } catch (const Error& error) {
      // Nodes without a kernel until a pass rewrites them.
      if (error.kind() != ErrorKind::unsupported) throw;
      for (const auto& [name, shape] : runs.at(0).plan.outputs) {
        LayerCheck& row = reports.at(0).outputs.emplace_back();
        row.kind = LayerCheck::Kind::output;
        row.name = name;
        row.device = runs.at(0).plan.device;
        row.precision = to_string(runs.at(0).plan.numerics);
        row.output_shapes = {shape};
        row.skipped = error.message();
      }
    }
  }

  const Model& model_;
  const CheckOptions& options_;
  PlanOptions plan_;
  std::vector<Tensor> inputs_;  // none: random ones
};

}  // namespace

std::vector<LayerCheck> check_layers(const Model& model, const CheckOptions& options) {
  return Checks(model, options).rows();
}

}  // namespace lenslet

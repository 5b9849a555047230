// One layer by itself.

#include <algorithm>
#include <set>
#include <utility>

#include "check/layer_check.h"
#include "check/layer_model.h"
#include "check/network_check.h"
#include "lenslet/device.h"
#include "lenslet/error.h"

namespace lenslet {

namespace {

class Layer {
 public:
  Layer(std::string_view op, const AttributeList& attributes, const std::vector<Tensor>& inputs,
        const LayerOptions& options)
      : op_(op), options_(options), model_(load(op, attributes, inputs, options)) {
    plan_.device = options.device.empty() ? "auto" : options.device;
    plan_.numerics = parse_numerics(options.precision.empty() ? "fp32" : options.precision);
    plan_.threads = options.threads;
    for (std::size_t i = 0; i < std::min(options.run_inputs, inputs.size()); ++i)
      if (!inputs[i].empty()) inputs_.push_back(inputs[i].to_format(formats::nchw));
    // Unchanged: no pass may rewrite the layer, except layers that only run after a rewrite.
    plan_.disabled_passes = check::optional_passes();
    try {
      model_.plan(plan_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;
      plan_.disabled_passes.clear();
    }
  }

  std::vector<LayerCheck> rows() const {
    const Run chosen = run(plan_);  // by the rule
    std::vector<LayerCheck> rows;
    std::set<std::string> known;
    for (const StepInfo& step : chosen.plan.steps) {
      // Conversions that a plan inserts around the layer do not belong to it.
      if (step.op != op_ && (step.op == "LayoutConvert" || step.op == "Relabel" || step.op == "Cast")) continue;
      if (step.candidates.empty()) {
        if (options_.algorithm.empty()) add_rows_of(step, chosen, rows);
        continue;
      }
      std::set<std::string> asked;  // a kernel may offer several configurations, of which it runs the best
      for (const StepCandidate& candidate : step.candidates) {
        known.insert(candidate.algorithm);
        if (options_.algorithm.empty() || options_.algorithm == candidate.algorithm)
          if (asked.insert(candidate.algorithm).second) try_kernel(step, candidate, chosen.plan, rows);
      }
    }
    if (rows.empty()) nothing_ran(known);
    return rows;
  }

 private:
  struct Run {
    PlanInfo plan;
    std::vector<LayerCheck> rows;
  };

  static Model load(std::string_view op, const AttributeList& attributes, const std::vector<Tensor>& inputs,
                    const LayerOptions& options) {
    const std::string file = check::layer_model(op, attributes, inputs, options);
    return Model::load_bytes(std::as_bytes(std::span(file)), {}, "check_layer");
  }

  Run run(PlanOptions plan) const {
    Run made;
    {
      plan.keep_all_values = true;
      Runner runner(model_, plan);
      runner.set_observer(
          [&](const LayerEvent& event) { made.rows.push_back(check::row_of(event, runner.plan(), {})); });
      runner.run(inputs_);
      made.plan = runner.plan();
    }
    plan.keep_all_values = false;
    if (options_.seconds > 0) check::add_times(made.rows, check::time_steps(model_, plan, inputs_, options_.seconds));
    return made;
  }

  static void add_rows_of(const StepInfo& step, const Run& run, std::vector<LayerCheck>& rows) {
    std::ranges::copy_if(run.rows, std::back_inserter(rows),
                         [&](const LayerCheck& row) { return row.name == step.name; });
  }

  void try_kernel(const StepInfo& step, const StepCandidate& candidate, const PlanInfo& plan,
                  std::vector<LayerCheck>& rows) const {
    if (!candidate.refusal.empty()) {
      if (!options_.algorithm.empty())
        throw Error(ErrorKind::unsupported, candidate.algorithm + " refuses: " + candidate.refusal,
                    "check_layer: " + op_);
      rows.push_back(check::refusal_of(step, candidate, plan));
      return;
    }
    PlanOptions forced = plan_;
    forced.layer_algorithms = {{step.name, candidate.algorithm}};
    const std::size_t before = rows.size();
    add_rows_of(step, run(forced), rows);
    for (std::size_t i = before; i < rows.size(); ++i) rows[i].forced = candidate.algorithm;
  }

  [[noreturn]] void nothing_ran(const std::set<std::string>& known) const {
    const std::string where = "check_layer: " + op_;
    if (options_.algorithm.empty())
      throw Error(ErrorKind::unsupported, "no step of a plan computes it: its result is known beforehand", where);
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    throw Error(ErrorKind::invalid_argument,
                "no algorithm is called '" + options_.algorithm + "'; " +
                    (names.empty() ? "there is nothing to choose between" : "there are: " + names),
                where);
  }

  std::string op_;
  const LayerOptions& options_;
  Model model_;
  PlanOptions plan_;
  std::vector<Tensor> inputs_;
};

}  // namespace

std::vector<LayerCheck> check_layer(std::string_view op, const AttributeList& attributes,
                                    const std::vector<Tensor>& inputs, const LayerOptions& options) {
  return Layer(op, attributes, inputs, options).rows();
}

}  // namespace lenslet

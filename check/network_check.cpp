#include "check/network_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <future>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

#include "check/layer_check.h"
#include "oracle/oracle.h"

namespace lenslet::check {

namespace {

// Passes that planning requires cannot be left out.
constexpr std::array<std::string_view, 4> needed = {"widen", "assign_types", "choose_kernels", "assign_formats"};

// Number of random perturbations of every result. Two, since one may leave an element unchanged by chance. In a network
// with QuantizeLinear they have opposite signs: whatever an error may push over the middle between two codes, one does.
constexpr std::size_t draws = 2;
// Safety factor: the perturbations give the largest of only a few samples.
constexpr double factor = 4;
// An element's tolerance is the largest change by the perturbations among elements up to its size, and the next larger
// ones.
constexpr std::size_t larger_ones = 16;

/// By how much a step that stores codes may differ from what the file's nodes compute, before it rounds, in steps of
/// its codes (lower_quantized).
double steps_off(const StepInfo& step) {
  const std::vector<double>* multipliers = nullptr;
  for (const auto& [name, value] : step.attributes)
    if (name == "multipliers") multipliers = std::get_if<std::vector<double>>(&value);
  if (multipliers == nullptr && !step.op.starts_with("Quantized")) return 0;
  // Four roundings to float32 of up to 256 steps; a sum in fixed point; a bias in units of the sums, whose rounding the
  // pass limits to an eighth.
  double steps = 256 * 4 * 0x1p-24;
  if (step.op == "QuantizedAdd") steps += 0.01;
  if (multipliers != nullptr && step.inputs.size() > 2) steps += std::min(0.125, std::ranges::max(*multipliers) / 2);
  return steps;
}

/// Tolerance of each step's results relative to their scale, by the step's name; and their rounding to 16 bits.
struct Allowed {
  std::map<std::string, double> by_step, steps;
  double rounding = 0;

  explicit Allowed(std::span<const NetworkRun> runs) {
    for (const NetworkRun& run : runs) {
      for (const StepInfo& step : run.plan.steps) {
        by_step[step.name] = std::max(by_step[step.name], step.tolerance);
        steps[step.name] = std::max(steps[step.name], steps_off(step));
      }
      const DType storage = run.plan.numerics.storage;
      rounding = std::max(rounding, storage == DType::f16 ? 0x1p-11 : storage == DType::bf16 ? 0x1p-8 : 0.0);
    }
  }
  double of(const StepInfo& step) const {
    const auto found = by_step.find(step.name);
    return std::max(step.tolerance, found == by_step.end() ? 0.0 : found->second) + rounding;
  }
};

std::vector<oracle::Array> arrays_of(std::span<const Tensor> tensors) {
  std::vector<oracle::Array> arrays;
  for (const Tensor& tensor : tensors) arrays.push_back(oracle::from_tensor(tensor));
  return arrays;
}

/// All values of one evaluation, by name.
class Evaluation {
 public:
  /// Computes a step from the values here; constants and network inputs come from the run, as do results without an
  /// oracle.
  /// `off`: how far its first input is moved, up or down at random.
  std::vector<oracle::Array> evaluate(const LayerEvent& event, std::int64_t reach = 0, double off = 0) const {
    std::vector<oracle::Array> inputs;
    for (std::size_t i = 0; i < event.inputs.size(); ++i) {
      const auto known = values_.find(event.info->inputs[i]);
      inputs.push_back(known != values_.end() ? known->second : oracle::from_tensor(event.inputs[i]));
    }
    std::minstd_rand random(static_cast<unsigned>(event.step + 1));
    if (off != 0)
      for (double& value : inputs[0].values) value += random() % 2 == 0 ? off : -off;
    auto results = oracle::run(event.info->op, event.info->attributes, inputs, reach);
    return results ? std::move(*results) : arrays_of(event.outputs);
  }
  void keep(const LayerEvent& event, std::vector<oracle::Array> results) {
    for (std::size_t i = 0; i < event.info->outputs.size() && i < results.size(); ++i) {
      results[i].scale.clear();
      values_[event.info->outputs[i]] = std::move(results[i]);
    }
  }
  void forget(const std::string& name) { values_.erase(name); }
  const oracle::Array* find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, oracle::Array> values_;
};

void draw_off(std::vector<oracle::Array>& results, const std::vector<oracle::Array>& exact, double tolerance,
              std::mt19937& random) {
  // Random magnitudes, so that perturbations do not cancel over a few steps.
  std::uniform_real_distribution<double> size(0.5, 1);
  for (std::size_t i = 0; i < results.size() && i < exact.size(); ++i) {
    if (!is_real(results[i].dtype) || results[i].values.size() != exact[i].values.size()) continue;
    for (std::size_t j = 0; j < results[i].values.size(); ++j)
      results[i].values[j] +=
          ((random() & 1U) != 0 ? tolerance : -tolerance) * size(random) * oracle::scale_at(exact[i], j);
  }
}

/// How far the number that a QuantizeLinear reads may be off (steps_off), 0 for other steps. `values` are those that
/// are on their way to one.
double steps_before(const LayerEvent& event, const std::map<std::string, double>& by_step,
                    std::map<std::string, double>& values) {
  double steps = 0;
  if (const auto found = by_step.find(event.info->name); found != by_step.end()) steps = found->second;
  for (const std::string& input : event.info->inputs)
    if (const auto found = values.find(input); found != values.end()) steps = std::max(steps, found->second);
  if (event.info->op == "QuantizeLinear")
    return event.inputs[1].dtype() == DType::f32 && event.inputs[1].elems() == 1
               ? steps * double{event.inputs[1].values<float>()[0]}
               : 0;
  for (std::size_t i = 0; i < event.outputs.size(); ++i)
    if (steps > 0 && is_real(event.outputs[i].dtype())) values[event.info->outputs[i]] = steps;
  return 0;
}

}  // namespace

std::vector<std::string> optional_passes() {
  std::vector<std::string> names = pass_names();
  std::erase_if(names, [](const std::string& name) { return std::ranges::find(needed, name) != needed.end(); });
  return names;
}

NetworkReference::NetworkReference(const Model& model, PlanOptions plan, std::span<const Tensor> inputs,
                                   std::span<const NetworkRun> runs, const StepCounter::Progress& progress) {
  plan.device = "cpu";
  plan.numerics = Numerics();
  plan.conv_algorithm.clear();
  plan.layer_algorithms.clear();
  plan.calibration.clear();
  plan.keep_all_values = true;
  plan.disabled_passes = optional_passes();

  const Allowed allowed(runs);
  Evaluation exact;
  std::array<Evaluation, draws> drawn;
  std::array<bool, draws> comparable;
  comparable.fill(true);
  std::mt19937 random(1);
  Runner runner(model, plan);
  // Frees values without later readers, except outputs; none in a network planned during the run.
  std::map<std::string, int> last_reader;
  for (std::size_t i = 0; runner.plan().late.empty() && i < runner.plan().steps.size(); ++i)
    for (const std::string& input : runner.plan().steps[i].inputs) last_reader[input] = static_cast<int>(i);
  for (const PortInfo& port : model.outputs()) last_reader.erase(port.name);
  std::map<std::string, std::vector<double>> own;
  const auto is_output = [&](const std::string& name) {
    return std::ranges::any_of(model.outputs(), [&](const PortInfo& port) { return port.name == name; });
  };
  const bool quantizes =
      std::ranges::any_of(runner.plan().steps, [](const StepInfo& step) { return step.op == "QuantizeLinear"; });
  std::map<std::string, double> steps_off;  // by value: of the codes that it is quantised to
  const StepCounter counter(progress, runner.plan());
  std::size_t done = 0;
  runner.set_observer([&](const LayerEvent& event) {
    const double push = steps_before(event, allowed.steps, steps_off);
    std::array<std::future<std::vector<oracle::Array>>, draws> off;
    for (std::size_t d = 0; d < draws; ++d)
      off[d] = std::async([&, d] { return drawn[d].evaluate(event, oracle::no_scale, d % 2 == 0 ? push : -push); });
    std::vector<oracle::Array> results = exact.evaluate(event);
    const double tolerance = allowed.of(*event.info);
    const std::mt19937 before = random;
    for (std::size_t d = 0; d < draws; ++d) {
      if (quantizes) random = before;
      try {
        std::vector<oracle::Array> drawn_results = off[d].get();
        if (event.info->tolerance > 0)
          draw_off(drawn_results, results, quantizes && d % 2 != 0 ? -tolerance : tolerance, random);
        drawn[d].keep(event, std::move(drawn_results));
      } catch (const std::exception&) {
        comparable[d] = false;  // it selected other elements than the run, for whose shapes the steps are planned
      }
    }
    for (std::size_t i = 0; i < results.size() && i < event.info->outputs.size(); ++i)
      if (is_output(event.info->outputs[i]) && is_real(results[i].dtype))
        for (std::size_t j = 0; j < results[i].values.size(); ++j)
          own[event.info->outputs[i]].push_back(event.info->tolerance > 0 ? tolerance * oracle::scale_at(results[i], j)
                                                                          : 0);
    exact.keep(event, std::move(results));
    for (const std::string& input : event.info->inputs)
      if (const auto last = last_reader.find(input); last != last_reader.end() && last->second == event.step) {
        exact.forget(input);
        for (Evaluation& evaluation : drawn) evaluation.forget(input);
      }
    counter.passed(++done);
  });
  runner.run(inputs);

  for (std::size_t port = 0; port < model.outputs().size(); ++port) {
    const std::string& name = model.outputs()[port].name;
    const oracle::Array* made = exact.find(name);
    if (made == nullptr) continue;
    Output output{*made, std::move(own[name]), std::vector<double>(made->values.size()), true};
    output.own.resize(made->values.size());
    for (std::size_t d = 0; d < draws; ++d) {
      const oracle::Array* off = comparable[d] ? drawn[d].find(name) : nullptr;
      if (off == nullptr || !(off->shape == made->shape)) {
        output.shaped = false;
        break;
      }
      for (std::size_t i = 0; i < output.off.size(); ++i) {
        const double difference = std::abs(off->values[i] - made->values[i]);
        output.off[i] = std::max(output.off[i], std::isnan(difference) ? 0 : difference);
      }
    }
    outputs_.emplace(name, std::move(output));
  }
}

std::vector<LayerCheck> NetworkReference::check(const NetworkRun& run) const {
  std::vector<LayerCheck> checks;
  for (std::size_t port = 0; port < run.outputs.size(); ++port) {
    LayerCheck& check = checks.emplace_back();
    check.kind = LayerCheck::Kind::output;
    check.device = run.plan.device;
    check.precision = to_string(run.plan.numerics);
    check.output_shapes = {run.outputs[port].shape()};
    check.name = run.plan.outputs.at(port).first;
    const auto found = outputs_.find(check.name);
    if (found == outputs_.end()) {
      check.skipped = "no step makes it";
      continue;
    }
    const Output& output = found->second;
    const oracle::Array got = oracle::from_tensor(run.outputs[port]);
    if (!output.shaped || run.large_integers) {
      check.skipped = output.shaped ? large_integers : "rounding decides its shape";
      continue;
    }
    if (!(got.shape == output.exact.shape) || got.dtype != output.exact.dtype) {
      check.error = INFINITY;
      continue;
    }
    // Elements by their size, and the largest difference of the draws up to there.
    const std::vector<double>& exact = output.exact.values;
    std::vector<std::size_t> order(exact.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto size = [&](std::size_t i) { return std::isnan(exact[i]) ? INFINITY : std::abs(exact[i]); };
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return size(a) < size(b); });
    std::vector<double> most(order.size());
    double so_far = 0;
    for (std::size_t i = 0; i < order.size(); ++i) most[i] = so_far = std::max(so_far, output.off[order[i]]);
    double worst = -1;
    for (std::size_t i = 0, end = 0; i < order.size(); ++i) {
      const std::size_t at = order[i];
      while (end < order.size() && (end <= i + larger_ones || size(order[end]) <= 2 * size(at))) ++end;
      if (run.made_nan && std::isnan(got.values[at])) continue;
      const double error = oracle::error_beyond_rounding(got.values[at], exact[at], got.dtype);
      // A value between two of 16 bits may be rounded to either.
      const double spacing = got.dtype == DType::f16 ? 0x1p-10 : got.dtype == DType::bf16 ? 0x1p-7 : 0;
      const double stored = std::isfinite(exact[at]) ? spacing * std::abs(exact[at]) : 0;
      const double bound = std::max(factor * most[end - 1], output.own[at]) + stored + 0x1p-100;
      if (error / bound <= worst) continue;
      worst = error / bound;
      check.error = error;
      check.tolerance = bound;
      check.worst_output = port;
      check.worst_element = at;
      check.got = got.values[at];
      check.exact = exact[at];
    }
  }
  return checks;
}

}  // namespace lenslet::check

#include "check/layer_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "lenslet/device.h"
#include "oracle/oracle.h"

namespace lenslet {

namespace {

// NaN and infinities must match the reference exactly; any mismatch is an infinite error. Exception: Winograd and FFT
// mix the pixels of a tile before multiplying, so an infinity or NaN among the inputs makes all outputs of the tile
// NaN; this is reported and is no error. Errors are relative to each element's own terms (oracle::Array::scale), beyond
// the rounding to the output's storage type.
class Judge {
 public:
  Judge(bool tiles, const std::vector<oracle::Array>& inputs)
      : spreads_(tiles && !std::ranges::all_of(inputs, [](const oracle::Array& input) {
                   return std::ranges::all_of(input.values, [](double value) { return std::isfinite(value); });
                 })) {}

  void look_at(std::size_t output, const oracle::Array& got, const oracle::Array& exact, LayerCheck& check) const {
    if (got.values.size() != exact.values.size()) {
      check.error = INFINITY;
      check.worst_output = output;
      return;
    }
    for (std::size_t i = 0; i < got.values.size(); ++i) {
      const double a = got.values[i], e = exact.values[i];
      if (!std::isfinite(e)) ++check.not_finite;
      if (std::isinf(a) && std::isfinite(e) && got.dtype != DType::f32) {
        ++check.beyond_range;
        check.largest = std::max(check.largest, std::abs(e));
      }
      if (spreads_ && std::isnan(a) && !std::isnan(e)) {
        ++check.made_nan;
        continue;
      }
      const double error = oracle::error_at(a, exact, i, got.dtype);
      if (error <= check.error) continue;
      check.error = error;
      check.worst_output = output;
      check.worst_element = i;
      check.got = a;
      check.exact = e;
    }
  }

 private:
  bool spreads_;
};

template <typename... T>
std::string formatted(const char* format, T... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string shapes_of(const std::vector<Shape>& shapes) {
  std::string text;
  for (const Shape& shape : shapes) {
    if (!text.empty()) text += ',';
    text += shape.str();
  }
  return text;
}

}  // namespace

std::string LayerCheck::verdict() const {
  if (kind == Kind::refusal) return "refuses: " + refusal;
  if (!skipped.empty()) return skipped;
  if (beyond_range > 0) return formatted("OUT OF RANGE: %zu up to %.3g are infinite as stored", beyond_range, largest);
  if (!passed()) return kind == Kind::output ? "EXCEEDED: the plan computes another network" : "EXCEEDED";
  std::string text = "ok";
  if (not_finite > 0) text += formatted("; %zu infinite or NaN by the reference", not_finite);
  if (made_nan > 0) text += formatted("; %zu made NaN by ", made_nan) + algorithm;
  return text;
}

std::string LayerCheck::str() const {
  std::string text = kind == Kind::output ? "output " : "";
  text += name + " (";
  if (kind == Kind::output) text += forced.empty() ? "of the network" : "of the network by " + forced;
  if (op != name) text += op;
  if (!algorithm.empty()) text += (op != name ? " by " : "by ") + algorithm;
  if (!device.empty()) text += (text.back() == '(' ? "on " : " on ") + device;
  if (!precision.empty() && precision != "fp32") text += " in " + precision;
  if (!input_shapes.empty()) text += ", " + shapes_of(input_shapes) + " ->";
  if (!output_shapes.empty()) text += (input_shapes.empty() ? ", " : " ") + shapes_of(output_shapes);
  text += "): ";
  if (kind == Kind::refusal) return text + verdict();
  if (!skipped.empty()) return text + "not judged: " + skipped;
  text += formatted("error %.2e ", error);
  text += kind == Kind::output ? "where " : "of the element's terms, ";
  text += formatted("%.2e allowed: ", tolerance) + verdict();
  if (!passed() && got != exact) {
    text += formatted(", worst at element %zu", worst_element);
    if (kind == Kind::layer && worst_output > 0) text += formatted(" of output %zu", worst_output);
    text += formatted(": %.9g instead of %.9g", got, exact);
  }
  if (runs > 0) text += formatted(" (%.4g ms)", ms);
  return text;
}

LayerCheck check_step(const LayerEvent& event) {
  LayerCheck check;
  check.name = event.info->name;
  check.op = event.info->op;
  check.algorithm = event.info->algorithm;
  check.config = event.info->config;
  check.tolerance = event.info->tolerance;
  check.ms = event.ms;
  check.runs = 1;
  for (const Tensor& input : event.inputs) check.input_shapes.push_back(input.shape());
  for (const Tensor& output : event.outputs) check.output_shapes.push_back(output.shape());
  std::vector<oracle::Array> inputs;
  for (const Tensor& tensor : event.inputs) inputs.push_back(oracle::from_tensor(tensor));
  const std::int64_t reach = oracle::tile_reach(event.info->algorithm + " " + event.info->config);
  const auto exact = oracle::run(event.info->op, event.info->attributes, inputs, reach);
  if (!exact) {
    check.skipped = "no reference for this op";
    return check;
  }
  const Judge judge(reach > 0, inputs);
  const auto rounded = [](const oracle::Array& array) {
    return (array.dtype == DType::i64 || array.dtype == DType::u64) &&
           std::ranges::any_of(array.values, [](double value) { return std::abs(value) >= 0x1p53; });
  };
  for (std::size_t i = 0; i < event.outputs.size() && i < exact->size(); ++i)
    judge.look_at(i, oracle::from_tensor(event.outputs[i]), (*exact)[i], check);
  if (check.error > check.tolerance && (std::ranges::any_of(inputs, rounded) || std::ranges::any_of(*exact, rounded)))
    check.skipped = check::large_integers;
  return check;
}

namespace check {

bool is_real(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

LayerCheck row_of(const LayerEvent& event, const PlanInfo& plan, std::string_view forced) {
  LayerCheck row = check_step(event);
  row.device = plan.device;
  row.precision = to_string(plan.numerics);
  row.forced = forced;
  row.ms = row.runs = 0;  // the observed run is slower: it is the first and keeps all values
  return row;
}

LayerCheck refusal_of(const StepInfo& step, const StepCandidate& refused, const PlanInfo& plan) {
  LayerCheck row;
  row.kind = LayerCheck::Kind::refusal;
  row.name = step.name;
  row.op = step.op;
  row.algorithm = row.forced = refused.algorithm;
  row.device = plan.device;
  row.precision = to_string(plan.numerics);
  row.output_shapes = step.output_shapes;
  row.refusal = refused.refusal;
  return row;
}

std::vector<StepTime> time_steps(const Model& model, const PlanOptions& plan, std::span<const Tensor> inputs,
                                 double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int at_least = 3;
  Runner runner(model, plan);
  runner.run(inputs);  // the first run meets cold caches
  std::map<std::string, std::vector<double>> ms;
  runner.set_observer([&](const LayerEvent& event) { ms[event.info->name].push_back(event.ms); });
  const auto begin = Clock::now();
  for (int i = 0; i < at_least || std::chrono::duration<double>(Clock::now() - begin).count() < seconds; ++i)
    runner.run(inputs);
  std::vector<StepTime> times;
  for (auto& [name, samples] : ms) {
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::ranges::nth_element(samples, middle);
    times.push_back({name, *middle, static_cast<int>(samples.size())});
  }
  return times;
}

void add_times(std::span<LayerCheck> rows, std::span<const StepTime> times) {
  for (LayerCheck& row : rows)
    for (const StepTime& time : times)
      if (row.kind == LayerCheck::Kind::layer && row.name == time.name) {
        row.ms = time.ms;
        row.runs = time.runs;
      }
}

}  // namespace check

}  // namespace lenslet

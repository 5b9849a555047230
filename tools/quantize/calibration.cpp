#include "tools/quantize/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lenslet/error.h"
#include "tools/verbs/bound_run.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

Model load(const OnnxFile& file) {
  const std::string bytes = file.bytes();
  return Model::load_bytes(std::as_bytes(std::span(bytes)), {}, "the network for calibration");
}

void add_means(const Tensor& value, std::vector<double>& means) {
  if (value.shape().rank() < 2) return;
  const auto channels = static_cast<std::size_t>(value.shape()[1]);
  const std::span<const float> values = value.values<float>();
  if (values.empty()) return;
  std::size_t inner = 1;
  for (int axis = 2; axis < value.shape().rank(); ++axis) inner *= static_cast<std::size_t>(value.shape()[axis]);
  means.resize(channels);
  const double share = static_cast<double>(channels) / static_cast<double>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) means[i / inner % channels] += values[i] * share;
}

}  // namespace

Calibration calibrate(const OnnxFile& file, const QuantizePlan& plan, const Samples& samples, Calibration result,
                      std::size_t keep, const PlanOptions& how, const std::function<void(const Calibration&)>& see) {
  OnnxFile observed = file;
  std::vector<std::string> names;
  for (const auto& [value, group] : plan.group)
    if (std::ranges::none_of(file.inputs, [&name = value](const auto& input) { return input.name == name; }))
      names.push_back(value);
  if (!names.empty()) observed.outputs.clear();
  for (const std::string& name : names) observed.outputs.push_back(float_port(name));
  const Model model = load(observed);

  std::optional<Runner> runner;
  const auto count = [&](const std::string& name, const Tensor& value, const std::string& sample) {
    if (!result.values[name].add(value.values<float>()))
      throw Error(ErrorKind::invalid_argument, fmt::format("the value {} is infinite or NaN", name), sample);
    add_means(value, result.means[name]);
  };
  const std::size_t before = result.done;
  for (std::size_t at = 0; at < samples.files.size(); ++at) {
    const std::string& sample = samples.files[at];
    if (at < before && result.kept.size() >= std::min(keep, result.runs)) continue;
    if (at >= before) see(result);
    Tensor input;
    try {
      input = samples.read(sample);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid_image && error.kind() != ErrorKind::io && error.kind() != ErrorKind::limit)
        throw;
      say(first_line(error));
      if (at < before) continue;
      ++result.failed;
      ++result.done;
      continue;
    }
    if (at >= before) {
      if (!runner) {
        PlanOptions options = how;
        options.other_shapes = 1;
        runner.emplace(runner_for(model, {&input, 1}, options));
      }
      const auto outputs = runner->run(input);
      ++result.runs;
      ++result.done;
      for (const EditedPort& port : file.inputs)
        if (plan.group.contains(port.name)) count(port.name, input, sample);
      for (std::size_t i = 0; i < names.size(); ++i) count(names[i], outputs[i], sample);
    }
    if (result.kept.size() < keep) result.kept.push_back(std::move(input));
  }
  see(result);
  if (result.runs == 0) throw Error(ErrorKind::invalid_argument, "none of the photos could be read");
  for (auto& [name, means] : result.means)
    for (double& mean : means) mean /= static_cast<double>(result.runs);
  return result;
}

OutputError::OutputError(const OnnxFile& file, std::vector<Tensor> inputs, const PlanOptions& how)
    : file_(file), inputs_(std::move(inputs)), how_(how) {
  for (EditedPort& output : file_.outputs)
    for (const EditedNode& node : file_.nodes)
      if (node.op == "Softmax" && node.has_input(0) && node.outputs[0] == output.name) {
        output = float_port(node.inputs[0]);
        break;
      }
  outputs_ = run(file_);
}

std::vector<std::vector<Tensor>> OutputError::run(const OnnxFile& file) const {
  std::vector<std::vector<Tensor>> outputs;
  if (inputs_.empty()) return outputs;
  const Model model = load(file);
  PlanOptions options = how_;
  options.other_shapes = 1;
  Runner runner = runner_for(model, {inputs_.data(), 1}, options);
  for (const Tensor& input : inputs_) {
    auto& copies = outputs.emplace_back();
    for (const Tensor& output : runner.run(input)) copies.push_back(output.clone());
  }
  return outputs;
}

std::map<std::string, double> OutputError::estimated_us(const OnnxFile& changed) const {
  std::map<std::string, double> times;
  if (inputs_.empty()) return times;
  const Model model = load(changed);
  const Runner runner = runner_for(model, {inputs_.data(), 1}, how_);
  for (const StepInfo& step : runner.plan().steps) times[step.name] += step.estimated_us;
  return times;
}

double OutputError::of(const OnnxFile& changed) const {
  const auto got = run(changed);
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    for (std::size_t o = 0; o < got[i].size(); ++o) {
      const Tensor &mine = got[i][o], &exact = outputs_[i][o];
      if (exact.dtype() != DType::f32) continue;
      const auto expected = exact.values<float>();
      const bool same = mine.shape() == exact.shape();
      for (std::size_t e = 0; e < expected.size(); ++e) {
        const double difference = same ? double{mine.values<float>()[e]} - double{expected[e]} : double{expected[e]};
        squares += double{expected[e]} * double{expected[e]};
        differences += difference * difference;
      }
    }
  return squares > 0 ? std::sqrt(differences / squares) : std::sqrt(differences);
}

}  // namespace lenslet::tool

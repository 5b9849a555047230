#include "runtime/exec/check_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "lenslet/error.h"
#include "lenslet/runner.h"

namespace lenslet {
namespace {

constexpr float most_of_f16 = 65504;

/// The largest finite magnitude; 0 for tensors other than float32.
float largest(const Tensor& tensor) {
  if (tensor.empty() || tensor.dtype() != DType::f32) return 0;
  float most = 0;
  const Tensor plain = tensor.to_format(formats::nchw);  // without the format's padding
  for (const float value : plain.values<float>())
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  return most;
}

/// assign_types calls a value that it casts "x:float16".
std::string uncast(std::string_view name) {
  const std::string suffix = fmt::format(":{}", to_string(DType::f16));
  return std::string(name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name);
}

PlanOptions in_float32(const Model& model, const PlanOptions& options) {
  PlanOptions cpu;
  cpu.device = "cpu";
  cpu.threads = options.threads;
  cpu.executor = options.executor;
  cpu.numerics = Numerics();
  cpu.batch = options.batch;
  cpu.disabled_passes = {"fuse_elementwise"};  // a device's plan may store what the CPU's would keep in registers
  cpu.input_values = options.input_values;
  for (std::size_t i = 0; i < options.calibration.size() && i < model.inputs().size(); ++i)
    if (!options.calibration[i].empty())
      cpu.input_shapes.emplace_back(model.inputs()[i].name, options.calibration[i].shape());
  return cpu;
}

}  // namespace

std::vector<BeyondRange> find_beyond_f16(const Model& model, const PlanOptions& options,
                                         const std::function<bool(std::string_view)>& asked_for) {
  std::vector<BeyondRange> found;
  const auto look_at = [&](const std::string& name, const std::string& step, const Tensor& value) {
    if (!asked_for(name)) return;
    if (const float most = largest(value); most > most_of_f16) found.push_back({name, step, static_cast<double>(most)});
  };
  Runner runner(model, in_float32(model, options));
  for (std::size_t i = 0; i < options.calibration.size() && i < model.inputs().size(); ++i)
    look_at(model.inputs()[i].name, "", options.calibration[i]);
  runner.set_observer([&](const LayerEvent& event) {
    for (std::size_t i = 0; i < event.outputs.size(); ++i)
      look_at(event.info->outputs[i], fmt::format("{} ({})", event.info->name, event.info->op), event.outputs[i]);
  });
  static_cast<void>(runner.run(options.calibration));
  return found;
}

void check_calibration(const Model& model, const PlanOptions& options, const Plan& plan) {
  if (options.calibration.empty()) return;
  std::unordered_set<std::string> stored;
  for (const Value& value : plan.graph.values)
    if (value.dtype == DType::f16 && !value.is_constant()) stored.insert(uncast(value.name));
  if (stored.empty()) return;
  const std::vector<BeyondRange> beyond =
      find_beyond_f16(model, options, [&](std::string_view name) { return stored.contains(std::string(name)); });
  if (beyond.empty()) return;
  const BeyondRange& first = beyond.front();
  throw Error(ErrorKind::unsupported,
              fmt::format("{} reaches {:.3g} on the calibration inputs, and float16 ends at {}: {} of its values are "
                          "beyond that; bf16 has the range of float32",
                          first.step.empty() ? fmt::format("input '{}'", first.value) : first.step, first.largest,
                          most_of_f16, beyond.size()),
              model.name());
}

}  // namespace lenslet

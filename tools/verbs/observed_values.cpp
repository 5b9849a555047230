#include "tools/verbs/observed_values.h"

#include <map>
#include <set>
#include <utility>

namespace lenslet::tool {

namespace {

bool copies_layout(const StepInfo& step) { return step.op == "LayoutConvert" || step.op == "Relabel"; }

/// Outputs that a step converts to another layout: the original value's name, and the output's.
std::map<std::string, std::string> output_names(const PlanInfo& plan, const Model& model) {
  std::map<std::string, std::string> names;
  for (const PortInfo& port : model.outputs()) names.emplace(port.name, port.name);
  for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step)
    if (const auto found = names.find(step->outputs[0]); copies_layout(*step) && found != names.end())
      names.emplace(step->inputs[0], found->second);
  return names;
}

}  // namespace

std::span<const Tensor> observe_values(Runner& runner, const Model& model, std::span<const Tensor> inputs,
                                       const std::function<void(ObservedValue)>& see) {
  const std::map<std::string, std::string> names = output_names(runner.plan(), model);
  std::set<std::string> seen;
  runner.set_observer([&](const LayerEvent& event) {
    const StepInfo& step = *event.info;
    if (copies_layout(step)) return;
    for (std::size_t i = 0; i < event.outputs.size(); ++i) {
      const auto found = names.find(step.outputs[i]);
      const std::string& name = found == names.end() ? step.outputs[i] : found->second;
      if (!name.empty() && !event.outputs[i].empty() && seen.insert(name).second)
        see({name, step.name, step.op, event.outputs[i].to_format(formats::nchw)});
    }
  });
  const auto outputs = runner.run(inputs);
  runner.set_observer({});
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (const std::string& name = model.outputs()[i].name; seen.insert(name).second)
      see({name, {}, {}, outputs[i].clone()});
  return outputs;
}

}  // namespace lenslet::tool

#include "tools/verbs/plan_json.h"

#include "lenslet/plan_json.h"

namespace lenslet::tool {

using Json = nlohmann::json;

Json to_json(const PortInfo& port) {
  Json dims = Json::array();
  for (std::size_t i = 0; i < port.dims.size(); ++i) {
    if (port.dims[i] >= 0)
      dims.push_back(port.dims[i]);
    else
      dims.push_back(i < port.dim_names.size() ? port.dim_names[i] : "");
  }
  return {{"name", port.name}, {"dtype", to_string(port.dtype)}, {"dims", dims}};
}

std::map<std::string, int> count_ops(const PlanInfo& plan) {
  std::map<std::string, int> counts;
  for (const StepInfo& step : plan.steps) ++counts[step.op];
  return counts;
}

double total_flops(const PlanInfo& plan) {
  double flops = 0;
  for (const StepInfo& step : plan.steps) flops += step.flops;
  return flops;
}

Json to_json(const PlanInfo& plan) { return Json::parse(lenslet::to_json(plan)); }

Json to_json(const Model& model, const PlanInfo& plan) {
  Json document = {{"model", model.name()},
                   {"parameters", model.parameter_elems()},
                   {"flops", total_flops(plan)},
                   {"ops", count_ops(plan)},
                   {"plan", tool::to_json(plan)}};
  for (const PortInfo& port : model.inputs()) document["inputs"].push_back(to_json(port));
  for (const PortInfo& port : model.outputs()) document["outputs"].push_back(to_json(port));
  return document;
}

}  // namespace lenslet::tool

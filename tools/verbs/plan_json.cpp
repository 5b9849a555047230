#include "tools/verbs/plan_json.h"

namespace lenslet {
// Member by member, under their names.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryReport, weight_bytes, uploaded_bytes, prepared_bytes, activation_bytes,
                                   activation_sum_bytes, lower_bound_bytes, workspace_bytes, peak_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlacementInfo, value, offset, bytes, first_step, last_step)
}  // namespace lenslet

namespace lenslet::tool {

namespace {

using Json = nlohmann::json;

Json to_json(const Shape& shape) {
  Json dims = Json::array();
  for (const std::int64_t dim : shape.dims()) dims.push_back(dim);
  return dims;
}

Json named_shapes(const std::vector<std::pair<std::string, Shape>>& ports) {
  Json rows = Json::array();
  for (const auto& [name, shape] : ports) rows.push_back({{"name", name}, {"shape", to_json(shape)}});
  return rows;
}

struct AttributeJson {
  template <typename T>
  Json operator()(const T& value) const {
    return value;
  }
  Json operator()(const Tensor& tensor) const {
    return {{"dtype", to_string(tensor.dtype())}, {"shape", to_json(tensor.shape())}};
  }
};

Json to_json(const StepInfo& step) {
  Json attributes = Json::object();
  for (const auto& [name, value] : step.attributes) attributes[name] = std::visit(AttributeJson{}, value);
  Json outputs = Json::array();
  for (std::size_t i = 0; i < step.outputs.size(); ++i)
    outputs.push_back({{"name", step.outputs[i]},
                       {"shape", to_json(step.output_shapes[i])},
                       {"layout", to_string(step.output_formats[i])}});
  Json row = {{"name", step.name},        {"op", step.op},
              {"attributes", attributes}, {"inputs", step.inputs},
              {"outputs", outputs},       {"flops", step.flops},
              {"bytes", step.bytes},      {"estimated_us", step.estimated_us},
              {"no_op", step.no_op},      {"workspace_bytes", step.workspace_bytes},
              {"config", step.config},    {"tolerance", step.tolerance}};
  if (!step.candidates.empty()) {
    row["problem"] = step.problem;
    row["algorithm"] = step.algorithm;
    row["reason"] = step.reason;
    Json candidates = Json::array();
    for (const StepCandidate& candidate : step.candidates) {
      if (candidate.refusal.empty())
        candidates.push_back({{"algorithm", candidate.algorithm},
                              {"config", candidate.config},
                              {"estimated_us", candidate.estimated_us},
                              {"neighbours_us", candidate.neighbours_us},
                              {"workspace_bytes", candidate.workspace_bytes},
                              {"tolerance", candidate.tolerance}});
      else
        candidates.push_back({{"algorithm", candidate.algorithm}, {"refusal", candidate.refusal}});
    }
    row["candidates"] = candidates;
  }
  return row;
}

}  // namespace

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

Json to_json(const PlanInfo& plan) {
  Json steps = Json::array();
  for (const StepInfo& step : plan.steps) steps.push_back(to_json(step));
  Json late = Json::array();
  for (const LateInfo& node : plan.late) {
    Json at_most = Json::array();
    for (const Shape& shape : node.at_most) at_most.push_back(to_json(shape));
    late.push_back({{"name", node.name}, {"op", node.op}, {"reason", node.reason}, {"at_most", at_most}});
  }
  Json bands = Json::array();
  for (const BandInfo& band : plan.bands)
    bands.push_back(
        {{"first_step", band.first_step}, {"last_step", band.last_step}, {"rows", band.rows}, {"reason", band.reason}});
  Json outputs = named_shapes(plan.outputs);
  for (const std::size_t i : plan.late_outputs) outputs[i]["shape"] = nullptr;
  return {{"device", plan.device},
          {"precision", to_string(plan.numerics)},
          {"threads", plan.threads},
          {"inputs", named_shapes(plan.inputs)},
          {"outputs", outputs},
          {"steps", steps},
          {"late", {{"nodes", late}, {"copies", plan.late_copies}, {"copied_bytes", plan.late_copied_bytes}}},
          {"bands", bands},
          {"placements", plan.placements},
          {"memory", plan.memory},
          {"layout_conversions", plan.layout_conversions},
          {"type_conversions", plan.type_conversions},
          {"explicit_paddings", plan.explicit_paddings}};
}

}  // namespace lenslet::tool

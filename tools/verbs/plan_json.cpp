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

Json to_json(const PlanInfo& plan) { return Json::parse(lenslet::to_json(plan)); }

}  // namespace lenslet::tool

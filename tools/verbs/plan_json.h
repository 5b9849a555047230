#pragma once
// A plan as JSON.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/model.h"

namespace lenslet::tool {

nlohmann::json to_json(const PlanInfo& plan);
nlohmann::json to_json(const PortInfo& port);
/// What `lenslet inspect --json` prints, without the machine.
nlohmann::json to_json(const Model& model, const PlanInfo& plan);
/// Steps by operator.
std::map<std::string, int> count_ops(const PlanInfo& plan);
double total_flops(const PlanInfo& plan);

}  // namespace lenslet::tool

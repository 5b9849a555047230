#pragma once
// A plan as JSON.

#include <nlohmann/json.hpp>

#include "lenslet/model.h"

namespace lenslet::tool {

nlohmann::json to_json(const PlanInfo& plan);
nlohmann::json to_json(const PortInfo& port);

}  // namespace lenslet::tool

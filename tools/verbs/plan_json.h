#pragma once
// A plan as JSON, for inspect and bench.

#include <nlohmann/json.hpp>

#include "lenslet/model.h"

namespace lenslet::tool {

nlohmann::json to_json(const MemoryReport& memory);
nlohmann::json to_json(const StepInfo& step);
nlohmann::json to_json(const PlanInfo& plan);
nlohmann::json to_json(const PortInfo& port);
nlohmann::json to_json(const Shape& shape);

}  // namespace lenslet::tool

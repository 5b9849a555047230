#pragma once
// Provenance of a result.

#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/model.h"

namespace lenslet::tool {

/// "0.1.0", and the commit it was built from where that is known: "0.1.0 (895cada)", "-dirty" with changes beside it.
std::string version_text();
/// {"lenslet": "0.1.0", "commit": ..., "cpu": name, "instruction_set": "AVX2", "cores": those this process may use,
/// "threads": those of `plan`}, and "gpu" where the plan's device is one.
nlohmann::ordered_json provenance(const PlanOptions& plan);

}  // namespace lenslet::tool

#pragma once
// Provenance of a result.

#include <nlohmann/json.hpp>
#include <string>

#include "lenslet/model.h"

namespace lenslet::tool {

/// "0.1.0", and the commit of the build if known: "0.1.0 (895cada)", with "-dirty" for uncommitted changes. A second
/// line names the decoders of pictures.
std::string version_text();
/// {"lenslet": "0.1.0", "commit": ..., "cpu": name, "instruction_set": "AVX2", "cores": available to this process,
/// "threads": those of `plan`}, and "gpu" if the plan's device is one.
nlohmann::ordered_json provenance(const PlanOptions& plan);

}  // namespace lenslet::tool

#pragma once
// A plan as text for other programs.

#include <string>

#include "lenslet/export.h"
#include "lenslet/model.h"

namespace lenslet {

/// One line of JSON, in UTF-8 whatever bytes names have (what is none of it becomes U+FFFD): the members of PlanInfo
/// under their names, but `precision` of its numerics, the nodes of `late` under one name with what is copied for them,
/// and null for the shapes of late outputs. Numbers that are not finite are null. `lenslet inspect --json` prints it.
LENSLET_API std::string to_json(const PlanInfo& plan);

}  // namespace lenslet

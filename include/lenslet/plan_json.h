#pragma once
// A plan as JSON, for other programs.

#include <string>

#include "lenslet/export.h"
#include "lenslet/model.h"

namespace lenslet {

/// One line of JSON with the members of PlanInfo under their own names. Exceptions: `precision` stands for the
/// numerics, the nodes of `late` and the copies made for them share one name, and shapes of late outputs are null.
/// Non-finite numbers are null. Always valid UTF-8: invalid bytes in names become U+FFFD. `lenslet inspect --json`
/// prints it.
LENSLET_API std::string to_json(const PlanInfo& plan);

}  // namespace lenslet

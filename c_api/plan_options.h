#pragma once
// lenslet_plan_options as PlanOptions.

#include "lenslet/lenslet.h"
#include "lenslet/model.h"

namespace lenslet::c_api {

/// All options except the executor and the allocator (host.h). Checks structs, flags and shapes; the library checks
/// values.
PlanOptions plan_options(const lenslet_plan_options& given);

}  // namespace lenslet::c_api

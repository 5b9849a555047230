#pragma once
// lenslet_plan_options as PlanOptions.

#include "lenslet/lenslet.h"
#include "lenslet/model.h"

namespace lenslet::c_api {

/// All but the executor and the allocator (host.h). Errors of structs, flags and shapes; what values mean is the
/// library's to judge.
PlanOptions plan_options(const lenslet_plan_options& given);

}  // namespace lenslet::c_api

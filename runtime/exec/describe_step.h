#pragma once
// A planned step as PlanInfo shows it.

#include "runtime/exec/plan.h"

namespace lenslet {

StepInfo describe_step(const Graph& graph, const PlanStep& step);

}  // namespace lenslet

#pragma once
// A planned step as PlanInfo shows it.

#include "ops/conv/choose.h"
#include "runtime/exec/plan.h"

namespace lenslet {

/// What a convolution's candidates are shown for.
struct ConvView {
  DeviceKind device = DeviceKind::cpu;
  MachineRates rates;
  int threads = 1;
};

StepInfo describe_step(const Graph& graph, const PlanStep& step, const ConvView& view);

}  // namespace lenslet

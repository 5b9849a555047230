#pragma once
// What an observer of a CUDA network looks at: values on the host, and the device's time of each step.

#include <optional>
#include <span>
#include <vector>

#include "base/cuda/graph.h"
#include "lenslet/runner.h"
#include "runtime/exec/plan.h"

namespace lenslet::cuda {

struct Observation {
  /// Host memory for every value of `plan` in place of its device memory; renamed values share it.
  Observation(const Plan& plan, Observer observer);

  struct StepViews {
    std::vector<Tensor> inputs, outputs;
  };

  Observer observer;
  std::vector<Tensor> values;      ///< by ValueId, on the host
  std::vector<StepViews> steps;    ///< the same by step
  std::vector<Event> boundaries;   ///< before each step, and after the last
  std::optional<GraphExec> timed;  ///< the network with those events recorded in it; none with sync_each_step
};

}  // namespace lenslet::cuda

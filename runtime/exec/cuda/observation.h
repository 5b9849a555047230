#pragma once
// Data for an observer of a CUDA network: values on the host, and each step's device time.

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
  std::optional<GraphExec> timed;  ///< the network captured with those events; empty with sync_each_step
};

}  // namespace lenslet::cuda

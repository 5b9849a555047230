#pragma once
// From the graph as loaded to the graph that is executed: shapes, then the passes.

#include <string>

#include "lenslet/device.h"
#include "lenslet/model.h"
#include "ops/conv/choose.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// Of a device name already resolved.
inline DeviceKind device_kind(const DeviceChoice& device) {
  return device.is_cuda() ? DeviceKind::cuda : DeviceKind::cpu;
}

/// Threads as asked for, or the cores available. Error(invalid_argument) outside 0..1024.
int resolve_threads(int threads);

/// What the cost model assumes of `device`, with as many threads as `options` ask for.
MachineRates rates_of(const DeviceChoice& device, const PlanOptions& options);

/// Runs binding, inference and the passes up to and including `stage` ("load", "infer", a pass; "" or "plan": all).
/// `device` is what options.device stands for.
Graph lower(const Graph& source, const PlanOptions& options, const DeviceChoice& device, const std::string& stage = {});

}  // namespace lenslet

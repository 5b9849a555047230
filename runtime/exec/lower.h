#pragma once
// From the graph as loaded to the graph that is executed: shapes, then the passes.

#include <string>

#include "lenslet/model.h"
#include "ops/conv/choose.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// A device name resolved. Error(invalid_argument) for an unknown one, Error(device) for CUDA in this release.
DeviceKind parse_device(const std::string& device);

/// Threads as asked for, or the cores available. Error(invalid_argument) outside 0..1024.
int resolve_threads(int threads);

/// Runs binding, inference and the passes up to and including `stage` ("load", "infer", a pass; "" or "plan": all).
Graph lower(const Graph& source, const PlanOptions& options, const std::string& stage = {});

}  // namespace lenslet

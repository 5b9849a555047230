#pragma once
// Which nodes have a CUDA kernel.

#include <string_view>

#include "runtime/graph/graph.h"

namespace lenslet {

/// Error(unsupported) with a line for every node of `graph`, as it is after the passes, that would have to run on
/// `device` ("cuda:0") and has no kernel there, and why. Needs no device.
void require_cuda_kernels(const Graph& graph, std::string_view device);

}  // namespace lenslet

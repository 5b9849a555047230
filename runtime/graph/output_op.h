#pragma once
// The operator that computes an output's values.

#include <cstddef>
#include <string>

#include "runtime/graph/graph.h"

namespace lenslet {

/// Model::output_op().
std::string output_op(const Graph& graph, std::size_t index);

}  // namespace lenslet

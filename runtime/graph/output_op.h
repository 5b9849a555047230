#pragma once
// Which operator an output's numbers come from.

#include <cstddef>
#include <string>

#include "runtime/graph/graph.h"

namespace lenslet {

/// Model::output_op().
std::string output_op(const Graph& graph, std::size_t index);

}  // namespace lenslet

#pragma once
// Which operators only move elements.

#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// The inputs whose elements the outputs consist of; none for other nodes. MaxPool, Min, Max, ReduceMin and ReduceMax
/// count, as codes have the order of their numbers. An input may be left out (Pad's value).
std::vector<std::size_t> moved_inputs(const GraphEdit& edit, const Node& node);

}  // namespace lenslet

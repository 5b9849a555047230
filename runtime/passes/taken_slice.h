#pragma once
// What a Slice takes of one axis.

#include <optional>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Elements of one axis, in order, from `begin` on.
struct TakenSlice {
  std::int64_t axis = 0, begin = 0;  ///< neither is negative
};

/// Of a Slice along one known axis by step 1; nothing for other nodes.
std::optional<TakenSlice> taken_slice(const Graph& graph, const Node& node);

}  // namespace lenslet

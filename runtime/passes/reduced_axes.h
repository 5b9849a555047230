#pragma once
// Which axes a reduction is along, and whether it reduces squares.

#include <optional>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// The axes of a ReduceMean, ReduceSum and others, in order and not negative: an attribute, or since opset 13 or 18 an
/// input. Nothing if the node says none or computes them.
std::optional<std::vector<std::int64_t>> reduced_axes(const Graph& graph, const Node& node);

/// Whether the result has the reduced axes, of size 1.
inline bool keeps_axes(const Node& node) { return integer_attribute(*node.op, "keepdims").value_or(1) != 0; }

/// The same axes of a node that keeps them; nothing of one that does not.
std::optional<std::vector<std::int64_t>> kept_axes(const Graph& graph, const Node& node);

/// x of `id` = x * x or x^2; no_id if it is neither.
ValueId squared(const GraphEdit& edit, ValueId id);

}  // namespace lenslet

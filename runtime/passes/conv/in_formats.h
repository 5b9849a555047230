#pragma once
// The kernel of a step that a pass makes after formats were assigned.

#include <optional>
#include <span>

#include "runtime/passes/passes.h"

namespace lenslet {

/// The kernel and candidate of the least estimate for `node`, whose inputs are described by `inputs`, that read and
/// write the formats which its values have. Constants are packed into any. Without reason and rows; nothing if there is
/// none.
std::optional<Choice> choose_in_formats(const Graph& graph, const Node& node, std::span<const InputInfo> inputs,
                                        const Target& target);

}  // namespace lenslet

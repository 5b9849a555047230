#pragma once
// Integers that a node has as an attribute or, since later opsets, as an input.

#include <optional>
#include <string_view>
#include <vector>

#include "runtime/passes/edit.h"

namespace lenslet {

/// Those of the attribute, else of the constant input; nothing where they are neither.
std::optional<std::vector<std::int64_t>> known_integers(const Graph& graph, const Node& node,
                                                        std::string_view attribute, std::size_t input);

}  // namespace lenslet

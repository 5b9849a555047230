#pragma once

#include <climits>

namespace lenslet {

/// First version of an operator that no file may hold: a step that only passes make (OpRow::min_opset).
inline constexpr int never = INT_MAX;

}  // namespace lenslet

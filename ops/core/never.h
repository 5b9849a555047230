#pragma once

#include <climits>

namespace lenslet {

/// OpRow::min_opset of operators that no file may contain: only passes create them.
inline constexpr int never = INT_MAX;

}  // namespace lenslet

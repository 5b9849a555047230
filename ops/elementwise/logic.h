#pragma once
// Functions of the comparison and boolean operators.

#include <cstdint>

namespace lenslet {

/// l for logical: of booleans, that is of bytes where everything but 0 is true. lnot has one operand.
enum class LogicKind : std::uint8_t { equal, less, less_or_equal, greater, greater_or_equal, land, lor, lxor, lnot };

}  // namespace lenslet

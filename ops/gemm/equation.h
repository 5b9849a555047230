#pragma once
// The equation of an Einsum, taken apart.

#include <string>
#include <string_view>
#include <vector>

namespace lenslet {

/// Terms of letters, one an axis; an ellipsis is one character.
struct Equation {
  static constexpr char ellipsis = '.';
  std::vector<std::string> operands;
  std::string result;  ///< as written, or the letters that stand once, in order, behind the ellipsis
};

/// Error(invalid_model) for what is no equation.
Equation parse_equation(std::string_view text);

}  // namespace lenslet

#pragma once
// The equation of an Einsum, taken apart.

#include <span>
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

/// Labels of a tensor's axes: letters; the axes that an ellipsis stands for have -1, -2 ... from the last one on.
using AxisLabels = std::vector<int>;
/// Of the operands, which have these ranks, and of the result. Error(invalid_model) where a rank contradicts its term.
std::vector<AxisLabels> axis_labels(const Equation& equation, std::span<const int> ranks);

}  // namespace lenslet

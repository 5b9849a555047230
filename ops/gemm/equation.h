#pragma once
// The parsed equation of an Einsum.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lenslet {

/// Terms of letters, one letter per axis; an ellipsis is one character.
struct Equation {
  static constexpr char ellipsis = '.';
  std::vector<std::string> operands;
  std::string result;  ///< as written, or the letters that stand once, in order, behind the ellipsis
};

/// Error(invalid_model) when the text is not an equation.
Equation parse_equation(std::string_view text);

/// Labels of a tensor's axes: letters; the axes of an ellipsis have -1, -2 ... from the last one on.
using AxisLabels = std::vector<int>;
/// Labels of operands of these ranks and of the result. Error(invalid_model) where a rank does not match its term.
std::vector<AxisLabels> axis_labels(const Equation& equation, std::span<const int> ranks);

}  // namespace lenslet

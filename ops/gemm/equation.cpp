#include "ops/gemm/equation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lenslet/error.h"

namespace lenslet {

Equation parse_equation(std::string_view text) {
  const auto refuse = [text](const char* why) {
    throw Error(ErrorKind::invalid_model, fmt::format("equation '{}' {}", text, why));
  };
  Equation equation;
  equation.operands.emplace_back();
  bool arrow = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& term = arrow ? equation.result : equation.operands.back();
    const char c = text[i];
    if (c == ' ') continue;
    if (c == ',' && !arrow) {
      equation.operands.emplace_back();
    } else if (c == '-' && !arrow && text.substr(i, 2) == "->") {
      arrow = true;
      ++i;
    } else if (c == '.' && text.substr(i, 3) == "..." && term.find(Equation::ellipsis) == std::string::npos) {
      term += Equation::ellipsis;
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      if (arrow && term.find(c) != std::string::npos) refuse("names an axis of the result twice");
      term += c;
    } else {
      refuse("cannot be read");
    }
  }
  if (arrow) return equation;
  std::map<char, int> counts;  // in the order of the letters, the ellipsis first
  for (const std::string& term : equation.operands)
    for (const char label : term) ++counts[label];
  for (const auto& [label, count] : counts)
    if (count == 1 || label == Equation::ellipsis) equation.result += label;
  return equation;
}

std::vector<AxisLabels> axis_labels(const Equation& equation, std::span<const int> ranks) {
  std::vector<AxisLabels> all;
  int most = 0;
  const auto add = [&](const std::string& term, int hidden) {
    AxisLabels labels;
    for (const char label : term)
      if (label != Equation::ellipsis)
        labels.push_back(label);
      else
        for (int d = hidden; d > 0; --d) labels.push_back(-d);
    all.push_back(std::move(labels));
  };
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    const std::string& term = equation.operands[i];
    const bool hides = term.find(Equation::ellipsis) != std::string::npos;
    const int hidden = ranks[i] - static_cast<int>(term.size()) + (hides ? 1 : 0);
    if (hidden < 0 || (hidden > 0 && !hides))
      throw Error(ErrorKind::invalid_model, fmt::format("operand {} has rank {} for '{}'", i, ranks[i], term));
    most = std::max(most, hidden);
    add(term, hidden);
  }
  add(equation.result, most);
  return all;
}

}  // namespace lenslet

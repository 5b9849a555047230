#include "models/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace lenslet {

namespace {

std::string line(const std::string& where, const std::string& reason) {
  return where.empty() ? reason : where + ": " + reason;
}

}  // namespace

void Problems::add(ErrorKind kind, std::string where, std::string reason, std::string_view op) {
  list_.push_back({kind, std::move(where), std::move(reason), std::string(op)});
}

// " (DequantizeLinear x228, QuantizeLinear x104)", most first; empty where no node is at fault.
std::string Problems::counts() const {
  constexpr std::size_t most = 8;
  std::map<std::string_view, std::size_t> by_op;
  for (const Problem& problem : list_)
    if (!problem.op.empty()) ++by_op[problem.op];
  std::vector<std::pair<std::string_view, std::size_t>> ops(by_op.begin(), by_op.end());
  std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(ops.size(), most); ++i)
    text += fmt::format("{}{} x{}", i == 0 ? "" : ", ", ops[i].first, ops[i].second);
  if (ops.size() > most) text += fmt::format(" and {} more operators", ops.size() - most);
  return text.empty() ? text : fmt::format(" ({})", text);
}

void Problems::throw_if_any() const {
  if (list_.empty()) return;
  const Problem& first = list_.front();
  if (list_.size() == 1) throw Error(first.kind, first.reason, first.where);
  ErrorKind kind = first.kind;
  std::string text = fmt::format("cannot run for {} reasons{}, the first: {}", list_.size(), counts(),
                                 line(first.where, first.reason));
  for (const Problem& problem : list_) {
    if (problem.kind == ErrorKind::invalid_model) kind = ErrorKind::invalid_model;
    text += "\n  " + line(problem.where, problem.reason);
  }
  throw Error(kind, std::move(text));
}

}  // namespace lenslet

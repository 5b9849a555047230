#include "models/problems.h"

#include <fmt/format.h>

#include <utility>

namespace lenslet {

namespace {

std::string line(const std::string& where, const std::string& reason) {
  return where.empty() ? reason : where + ": " + reason;
}

}  // namespace

void Problems::add(ErrorKind kind, std::string where, std::string reason) {
  list_.push_back({kind, std::move(where), std::move(reason)});
}

void Problems::throw_if_any() const {
  if (list_.empty()) return;
  const Problem& first = list_.front();
  if (list_.size() == 1) throw Error(first.kind, first.reason, first.where);
  ErrorKind kind = first.kind;
  std::string text =
      fmt::format("cannot run for {} reasons, the first: {}", list_.size(), line(first.where, first.reason));
  for (const Problem& problem : list_) {
    if (problem.kind == ErrorKind::invalid_model) kind = ErrorKind::invalid_model;
    text += "\n  " + line(problem.where, problem.reason);
  }
  throw Error(kind, std::move(text));
}

}  // namespace lenslet

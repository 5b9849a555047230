#pragma once
// Checks of an Error's kind and text.

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "lenslet/error.h"

namespace lenslet::test {

/// The Error that `f` throws; fails the test if it throws none.
template <typename F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no Error was thrown");
  return {ErrorKind::internal, ""};
}

/// The message with context of an Error of that kind; empty if `f` throws none.
template <typename F>
std::string refusal_of(ErrorKind kind, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK_MESSAGE(error.kind() == kind, std::string(error.what()));
    return error.what();
  }
  return {};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Checks that `f` throws an Error of that kind whose what(), one line, contains the text.
template <typename F>
void check_error(ErrorKind kind, const std::string& part, F&& f, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  INFO(std::string(file), ":", line);
  const Error caught = error_of(f);
  CHECK_MESSAGE(caught.kind() == kind, std::string(caught.what()));
  CHECK_MESSAGE(contains(caught.what(), part), std::string(caught.what()));
  CHECK_MESSAGE(!contains(caught.what(), "\n"), std::string(caught.what()));
}

}  // namespace lenslet::test

/// The same for an expression.
#define CHECK_ERROR(expression, wanted_kind, part) \
  ::lenslet::test::check_error(::lenslet::ErrorKind::wanted_kind, part, [&] { (void)(expression); })

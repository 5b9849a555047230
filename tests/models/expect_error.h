#pragma once
// Errors as tests want them: kind and text.

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "lenslet/error.h"

namespace lenslet::test {

/// The Error that `f` throws; fails the test when it throws none.
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

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace lenslet::test

/// `expression` throws an Error of that kind whose what() contains the text.
#define CHECK_ERROR(expression, wanted_kind, part)                                          \
  do {                                                                                      \
    const ::lenslet::Error caught = ::lenslet::test::error_of([&] { (void)(expression); }); \
    CAPTURE(caught.what());                                                                 \
    CHECK(caught.kind() == ::lenslet::ErrorKind::wanted_kind);                              \
    CHECK(::lenslet::test::contains(caught.what(), part));                                  \
  } while (false)

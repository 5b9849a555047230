#pragma once
// Shared by the fuzz targets. Build: cmake --preset asan; run: build/asan/tests/fuzz/lenslet-fuzz-NAME CORPUS_FOLDER.

#include <cstdlib>

#include "lenslet/error.h"

namespace lenslet::test {

/// Errors are valid results unless internal; all else ends the process, which libFuzzer reports.
template <typename F>
void expect_result_or_error(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) std::abort();
  }
}

}  // namespace lenslet::test

#pragma once
// What every public function stands behind, so that nothing of the caller's comes in and nothing but Errors goes out.

#include "base/float_environment.h"

namespace lenslet {

/// Throws the exception in flight again. What the standard library throws becomes an Error: memory or threads that are
/// not to be had are of kind limit, files of kind io. Anything else (an observer's own) stays what it is.
[[noreturn]] void rethrow_as_error();

/// work(), with the exceptions that it may end with.
template <typename Work>
decltype(auto) with_errors(const Work& work) {
  try {
    return work();
  } catch (...) {
    rethrow_as_error();
  }
}

/// The same in our floating-point environment.
template <typename Work>
decltype(auto) at_boundary(const Work& work) {
  const FloatEnvironment environment;
  return with_errors(work);
}

}  // namespace lenslet

#pragma once
// Wraps every public function: isolates it from the caller's floating-point state, and lets only Errors out.

#include "base/float_environment.h"

namespace lenslet {

/// Rethrows the exception in flight. Those of the standard library become Errors: limit for memory and threads, io for
/// files. Others, such as an observer's own, pass unchanged.
[[noreturn]] void rethrow_as_error();

/// work(), with its exceptions as Errors.
template <typename Work>
decltype(auto) with_errors(const Work& work) {
  try {
    return work();
  } catch (...) {
    rethrow_as_error();
  }
}

/// The same in lenslet's floating-point environment.
template <typename Work>
decltype(auto) at_boundary(const Work& work) {
  const FloatEnvironment environment;
  return with_errors(work);
}

}  // namespace lenslet

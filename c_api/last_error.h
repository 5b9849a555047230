#pragma once
// Converts exceptions to statuses and the calling thread's last error.

#include "lenslet/lenslet.h"

namespace lenslet::c_api {

/// The current exception as a status; its message becomes the calling thread's last error.
lenslet_status remember_exception() noexcept;

/// Runs work() and records any exception.
template <typename Work>
lenslet_status guarded(const Work& work) noexcept {
  try {
    work();
    return LENSLET_OK;
  } catch (...) {
    return remember_exception();
  }
}

}  // namespace lenslet::c_api

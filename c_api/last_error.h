#pragma once
// What stands between the functions of lenslet.h and the exceptions behind them.

#include "lenslet/lenslet.h"

namespace lenslet::c_api {

/// The exception in flight as a status; what it says becomes the calling thread's last error.
lenslet_status remember_exception() noexcept;

/// work(), with what it throws remembered.
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

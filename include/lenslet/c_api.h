#pragma once
// For C interfaces beside lenslet.h, such as lenslet_photos.h: lenslet.h's handles, options, errors and texts in C++.

#include <cstdint>
#include <string>

#include "lenslet/error.h"
#include "lenslet/export.h"
#include "lenslet/lenslet.h"
#include "lenslet/model.h"

namespace lenslet::c_api {

/// The handle may be freed afterwards. Error(invalid_argument) when it is none.
LENSLET_API Model model_of(const lenslet_model* model);
/// Null: the defaults. Checks structs, flags and shapes as lenslet_runner_create() does; the library checks values.
/// Error(unsupported) for an executor or an allocator.
LENSLET_API PlanOptions plan_options_of(const lenslet_plan_options* options);

LENSLET_API lenslet_status status_of(ErrorKind kind) noexcept;
/// The current exception as a status; its message becomes the calling thread's lenslet_last_error().
LENSLET_API lenslet_status remember_exception() noexcept;
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

/// A copy for lenslet_text_free(). std::bad_alloc.
LENSLET_API char* text_for_app(const std::string& text);
/// A number for a handle, which no other handle has or gets. It looks like an address in messages and debuggers, but
/// is never dereferenced.
LENSLET_API std::uintptr_t next_handle() noexcept;

}  // namespace lenslet::c_api

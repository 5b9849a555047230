#include <exception>
#include <new>
#include <string>

#include "lenslet/c_api.h"
#include "lenslet/error.h"

namespace lenslet::c_api {

namespace {

struct LastError {
  std::string line, details;
  bool no_memory = false;  // of the words
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

lenslet_status remember(lenslet_status status, const char* what) noexcept {
  try {
    LastError& last = last_error();
    last.no_memory = true;
    last.details = what;
    last.line = last.details.substr(0, last.details.find('\n'));
    last.no_memory = false;
  } catch (const std::bad_alloc&) {  // no_memory says so
  }
  return status;
}

}  // namespace

lenslet_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return LENSLET_INVALID_ARGUMENT;
    case ErrorKind::invalid_model:
      return LENSLET_INVALID_MODEL;
    case ErrorKind::unsupported:
      return LENSLET_UNSUPPORTED;
    case ErrorKind::invalid_image:
      return LENSLET_INVALID_IMAGE;
    case ErrorKind::io:
      return LENSLET_IO;
    case ErrorKind::limit:
      return LENSLET_LIMIT;
    case ErrorKind::device:
      return LENSLET_DEVICE;
    case ErrorKind::internal:
      return LENSLET_INTERNAL;
    case ErrorKind::cancelled:
      return LENSLET_CANCELLED;
  }
  return LENSLET_INTERNAL;
}

lenslet_status remember_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return remember(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return remember(LENSLET_LIMIT, "out of memory");
  } catch (const std::exception& error) {
    return remember(LENSLET_INTERNAL, error.what());
  } catch (...) {
    return remember(LENSLET_INTERNAL, "an exception that is none of the library's");
  }
}

}  // namespace lenslet::c_api

using lenslet::c_api::last_error;

const char* lenslet_last_error(void) { return last_error().no_memory ? "out of memory" : last_error().line.c_str(); }

const char* lenslet_last_error_details(void) {
  return last_error().no_memory ? "out of memory" : last_error().details.c_str();
}

const char* lenslet_status_name(lenslet_status status) {
  if (status == LENSLET_OK) return "ok";
  for (int kind = 0; kind <= static_cast<int>(lenslet::ErrorKind::cancelled); ++kind)
    if (const auto of = static_cast<lenslet::ErrorKind>(kind); lenslet::c_api::status_of(of) == status)
      return lenslet::to_string(of).data();  // of a literal
  return "no status";
}

#include "base/boundary.h"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "lenslet/error.h"

namespace lenslet {

namespace {

// Made while there is memory; short, so that copying it allocates nothing.
const Error no_memory(ErrorKind::limit, "out of memory");

}  // namespace

void rethrow_as_error() {
  try {
    try {
      throw;
    } catch (const std::filesystem::filesystem_error& error) {
      throw Error(ErrorKind::io, error.code().message(), error.path1().string());
    } catch (const std::system_error& error) {
      throw Error(ErrorKind::limit, "the system cannot start another thread: " + error.code().message());
    } catch (const std::length_error&) {
      throw Error(no_memory);
    }
  } catch (const std::bad_alloc&) {  // also from the messages above
    throw Error(no_memory);
  }
}

}  // namespace lenslet

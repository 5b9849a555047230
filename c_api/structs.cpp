#include "c_api/structs.h"

#include <fmt/format.h>

#include "lenslet/error.h"

namespace lenslet::c_api {

// A larger size means uninitialised memory.
constexpr std::size_t most_bytes = 4096;

std::size_t checked_size(const void* given, std::size_t least, const char* name) {
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < least || size > most_bytes)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: struct_size is {}, at least {} were expected", name, size, least));
  return size;
}

void check_unknown(const void* given, std::size_t known, std::size_t size, const char* name) {
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < size; ++i)
    if (bytes[i] != 0)
      throw Error(ErrorKind::unsupported,
                  fmt::format("{}: byte {} of the struct is set, which this library does not know", name, i));
}

void check_same_size(std::size_t size, std::size_t of_first, const char* name) {
  if (size != of_first)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: struct_size is {}, and {} in the first element", name, size, of_first));
}

void check_given(const void* given, const char* name) {
  if (given == nullptr) throw Error(ErrorKind::invalid_argument, fmt::format("{} is NULL", name));
}

void take_names(const char* const* given, std::size_t count, const char* name, std::vector<std::string>& to) {
  if (count > 0) check_given(given, name);
  for (std::size_t i = 0; i < count; ++i) {
    check_given(given[i], name);
    to.emplace_back(given[i]);
  }
}

}  // namespace lenslet::c_api

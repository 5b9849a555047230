#pragma once
// Checks and copies the application's structs, whose size may be that of another version.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "lenslet/error.h"
#include "lenslet/lenslet.h"

namespace lenslet::c_api {

/// The struct's size in its first version. A struct that grows keeps it here: the offset of the first later member.
template <typename T>
inline constexpr std::size_t first_size = sizeof(T);
template <>
inline constexpr std::size_t first_size<lenslet_plan_options> = offsetof(lenslet_plan_options, layer_algorithms);
template <>
inline constexpr std::size_t first_size<lenslet_load_options> = offsetof(lenslet_load_options, overridden);
template <>
inline constexpr std::size_t first_size<lenslet_port> = offsetof(lenslet_port, unread);
template <>
inline constexpr std::size_t first_size<lenslet_image_spec> = offsetof(lenslet_image_spec, pad);

// A larger size means uninitialised memory.
inline constexpr std::size_t most_bytes = 4096;

/// Reads the leading `struct_size`. Error(invalid_argument) below `least` or above any plausible size.
inline std::size_t checked_size(const void* given, std::size_t least, const char* name) {
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < least || size > most_bytes)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: struct_size is {}, at least {} were expected", name, size, least));
  return size;
}

/// Error(unsupported) if a byte in [known, size) is not 0: a newer application requests an unknown feature.
inline void check_unknown(const void* given, std::size_t known, std::size_t size, const char* name) {
  const auto* const bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < size; ++i)
    if (bytes[i] != 0)
      throw Error(ErrorKind::unsupported,
                  fmt::format("{}: byte {} of the struct is set, which this library does not know", name, i));
}

/// Error(invalid_argument) unless equal.
inline void check_same_size(std::size_t size, std::size_t of_first, const char* name) {
  if (size != of_first)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: struct_size is {}, and {} in the first element", name, size, of_first));
}

/// Error(invalid_argument) for null.
inline void check_given(const void* given, const char* name) {
  if (given == nullptr) throw Error(ErrorKind::invalid_argument, fmt::format("{} is NULL", name));
}

/// Converts to this version's struct; members missing in an older application's struct are 0, as are all for null.
template <typename T>
T taken(const T* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  T result{};
  if (given == nullptr) return result;
  const std::size_t size = checked_size(given, first_size<T>, name);
  check_unknown(given, sizeof(T), size, name);
  std::memcpy(&result, given, std::min(size, sizeof(T)));
  return result;
}

/// Element `index` of an array whose elements all have the size of the first.
template <typename T>
T taken_from(const T* array, std::size_t index, const char* name) {
  const std::size_t stride = checked_size(array, first_size<T>, name);
  const auto* const element = reinterpret_cast<const T*>(reinterpret_cast<const char*>(array) + index * stride);
  check_same_size(checked_size(element, first_size<T>, name), stride, name);
  return taken(element, name);
}

/// Adds `count` strings. Error(invalid_argument) if the array or an element is null.
inline void take_names(const char* const* given, std::size_t count, const char* name, std::vector<std::string>& to) {
  if (count > 0) check_given(given, name);
  for (std::size_t i = 0; i < count; ++i) {
    check_given(given[i], name);
    to.emplace_back(given[i]);
  }
}

/// Writes `made` to the application's struct, truncated or zero-filled to its size. Error(invalid_argument) for null.
template <typename T>
void give(T* to, T made, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, struct_size) == 0);
  check_given(to, name);
  made.struct_size = checked_size(to, first_size<T>, name);
  std::memcpy(static_cast<void*>(to), &made, std::min(made.struct_size, sizeof(T)));
  if (made.struct_size > sizeof(T))
    std::memset(reinterpret_cast<char*>(to) + sizeof(T), 0, made.struct_size - sizeof(T));
}

}  // namespace lenslet::c_api

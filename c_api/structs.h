#pragma once
// Checks and copies the application's structs, whose size may be that of another version.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

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

/// Reads the leading `struct_size`. Error(invalid_argument) below `least` or above any plausible size.
std::size_t checked_size(const void* given, std::size_t least, const char* name);
/// Error(unsupported) if a byte in [known, size) is not 0: a newer application requests an unknown feature.
void check_unknown(const void* given, std::size_t known, std::size_t size, const char* name);
/// Error(invalid_argument) unless equal.
void check_same_size(std::size_t size, std::size_t of_first, const char* name);
/// Error(invalid_argument) for null.
void check_given(const void* given, const char* name);

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

/// Replaces `to` with `count` strings. Error(invalid_argument) if the array or an element is null.
void take_names(const char* const* given, std::size_t count, const char* name, std::vector<std::string>& to);

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

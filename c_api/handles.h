#pragma once
// Handles are numbers, never given twice, that a table leads to objects: what was freed, or is none, is found out
// without a look at its memory, and who is in an object keeps it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "lenslet/error.h"

namespace lenslet::c_api {

/// Looks like an address in messages and debuggers, and is none: the first pages are never mapped to data of an app's,
/// and nobody reads there.
inline std::uintptr_t next_handle() {
  static std::atomic<std::uintptr_t> next{0x10};
  return next.fetch_add(0x10);
}

/// Of one kind: `Object::Handle` is the type in lenslet.h, `Object::handle_name` what messages call it.
template <typename Object>
class Handles {
 public:
  using Handle = typename Object::Handle;

  static Handle* add(std::shared_ptr<Object> object) {
    const std::uintptr_t number = next_handle();
    const std::unique_lock lock(table().mutex);
    table().objects.emplace(number, std::move(object));
    return reinterpret_cast<Handle*>(number);
  }

  /// Error(invalid_argument) when there is none.
  static std::shared_ptr<Object> get(const Handle* handle) {
    const std::shared_lock lock(table().mutex);
    const auto found = table().objects.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == table().objects.end()) throw_unknown(handle);
    return found->second;
  }

  /// Null passes. The object goes with its last user.
  static void free(const Handle* handle) {
    if (handle == nullptr) return;
    std::shared_ptr<Object> last;  // let go of without the lock
    const std::unique_lock lock(table().mutex);
    const auto found = table().objects.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == table().objects.end()) throw_unknown(handle);
    last = std::move(found->second);
    table().objects.erase(found);
  }

 private:
  struct Table {
    std::shared_mutex mutex;
    std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects;
  };
  // Never destroyed: an app may free in its own destructors, and threads that still run at exit may look.
  static Table& table() {
    static Table& of = *new Table;
    return of;
  }
  [[noreturn]] static void throw_unknown(const Handle* handle) {
    throw Error(ErrorKind::invalid_argument,
                handle == nullptr ? std::string(Object::handle_name) + " is NULL"
                                  : "no " + std::string(Object::handle_name) + ": it was freed, or is something else");
  }
};

}  // namespace lenslet::c_api

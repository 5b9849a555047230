#pragma once
// Handles are numbers, never reused, which a table maps to objects. Freed and invalid handles are detected without
// touching memory; an object in use stays alive.

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "lenslet/c_api.h"
#include "lenslet/error.h"

namespace lenslet::c_api {

/// The handles of one kind: `Object::Handle` is the type in the C header, `Object::handle_name` its name in messages.
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

  /// Accepts null. The object is destroyed with its last user.
  static void free(const Handle* handle) {
    if (handle == nullptr) return;
    std::shared_ptr<Object> last;  // destroyed outside the lock
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
  // Never destroyed: applications may free handles in static destructors, and threads may still run at exit.
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

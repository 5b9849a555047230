#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_set>

#include "lenslet/c_api.h"
#include "lenslet/error.h"

namespace lenslet::c_api {

namespace {

// Texts not freed yet, to detect a double free. Never destroyed, like the handle tables.
struct Texts {
  std::mutex mutex;
  std::unordered_set<const char*> out;
};
Texts& texts() {
  static Texts& of = *new Texts;
  return of;
}

}  // namespace

char* text_for_app(const std::string& text) {
  std::unique_ptr<char, decltype(&std::free)> copy(static_cast<char*>(std::malloc(text.size() + 1)), std::free);
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy.get(), text.c_str(), text.size() + 1);
  const std::lock_guard lock(texts().mutex);
  texts().out.insert(copy.get());
  return copy.release();
}

}  // namespace lenslet::c_api

lenslet_status lenslet_text_free(char* text) {
  using namespace lenslet;
  return c_api::guarded([&] {
    if (text == nullptr) return;
    const std::lock_guard lock(c_api::texts().mutex);
    if (c_api::texts().out.erase(text) == 0)
      throw Error(ErrorKind::invalid_argument, "no text of lenslet's: it was freed, or is something else");
    std::free(text);
  });
}

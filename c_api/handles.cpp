#include <atomic>
#include <cstdint>

#include "lenslet/c_api.h"

std::uintptr_t lenslet::c_api::next_handle() noexcept {
  static std::atomic<std::uintptr_t> next{0x10};  // the first pages hold no application data
  return next.fetch_add(0x10);
}

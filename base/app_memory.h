#pragma once
// Memory out of an app's Allocator, checked.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "lenslet/error.h"
#include "lenslet/host.h"

namespace lenslet {

/// `bytes` > 0, released with the last pointer to them, which also keeps `allocator`. Error(limit) when it has none,
/// Error(invalid_argument) when what it gives is not aligned.
inline std::shared_ptr<std::byte> app_memory(std::shared_ptr<Allocator> allocator, std::size_t bytes,
                                             std::size_t alignment, bool on_cuda) {
  void* const data = allocator->allocate(bytes, alignment, on_cuda);
  if (data == nullptr) throw Error(ErrorKind::limit, fmt::format("the app's allocator gives no {} bytes", bytes));
  // Released by the constructor's own care when it throws.
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(data),
                                    [bytes, alignment, on_cuda, kept = std::move(allocator)](std::byte* given) {
                                      kept->release(given, bytes, alignment, on_cuda);
                                    });
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the app's allocator gave memory that is not aligned to {} bytes", alignment));
  return memory;
}

}  // namespace lenslet

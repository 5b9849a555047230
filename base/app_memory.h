#pragma once
// Checked allocation from an app's Allocator.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "lenslet/error.h"
#include "lenslet/host.h"

namespace lenslet {

/// `bytes` > 0, freed with the last pointer, which also keeps `allocator` alive. Error(limit) when out of memory,
/// Error(invalid_argument) when the result is not aligned.
inline std::shared_ptr<std::byte> app_memory(std::shared_ptr<Allocator> allocator, std::size_t bytes,
                                             std::size_t alignment, bool on_cuda) {
  void* const data = allocator->allocate(bytes, alignment, on_cuda);
  if (data == nullptr) throw Error(ErrorKind::limit, fmt::format("the app's allocator did not give {} bytes", bytes));
  // If the constructor throws, it frees the memory itself.
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

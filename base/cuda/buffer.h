#pragma once
// Owning buffers: device memory of the current CUDA device, and pinned host memory.

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#include "base/cuda/check.h"

namespace lenslet::cuda {

struct DeviceAllocator {
  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    CUDA_CHECK(cudaMalloc(&data, bytes));
    held += bytes;
    return data;
  }
  static void free(void* data, std::size_t bytes) noexcept {
    CUDA_LOG(cudaFree(data));
    held -= bytes;
  }
  /// Bytes held by this process on all devices. A device's free memory also depends on other processes.
  static inline std::atomic<std::size_t> held = 0;
};

struct PinnedAllocator {
  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    CUDA_CHECK(cudaMallocHost(&data, bytes));
    return data;
  }
  static void free(void* data, std::size_t) noexcept { CUDA_LOG(cudaFreeHost(data)); }
};

/// `count` uninitialised elements of T, aligned to at least 256 bytes. Move-only; a moved-from buffer is empty. The
/// destructor is synchronous: it waits for work that may still use the memory.
template <typename T, typename Allocator>
class Buffer {
 public:
  Buffer() = default;
  /// Error(device) when there is not enough memory.
  explicit Buffer(std::size_t count) : count_(count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    if (count > 0) data_ = static_cast<T*>(Allocator::allocate(count * sizeof(T)));
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) Allocator::free(data_, bytes());
  }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

template <typename T>
using DeviceBuffer = Buffer<T, DeviceAllocator>;
/// Pinned host memory, for asynchronous copies.
template <typename T>
using PinnedBuffer = Buffer<T, PinnedAllocator>;

}  // namespace lenslet::cuda

#pragma once
// Owning streams and events.

#include <utility>

#include "base/cuda/check.h"

namespace lenslet::cuda {

/// A handle with its destroy function. Move-only.
template <typename Handle, cudaError_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) CUDA_LOG(destroy(handle_));
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
};

/// A work queue on the current device, not synchronised with the legacy default stream.
class Stream {
 public:
  Stream() : stream_(create()) {}
  cudaStream_t get() const noexcept { return stream_.get(); }
  /// Waits for all queued work; throws its errors.
  void synchronize() const { CUDA_CHECK(cudaStreamSynchronize(get())); }

 private:
  static cudaStream_t create() {
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
  Owned<cudaStream_t, cudaStreamDestroy> stream_;
};

/// A timed point in a stream. With cudaEventBlockingSync a thread that waits for it sleeps, and wakes some 20 us late;
/// otherwise it keeps its core busy.
class Event {
 public:
  Event() : Event(cudaEventDefault) {}
  explicit Event(unsigned flags) : event_(create(flags)) {}
  cudaEvent_t get() const noexcept { return event_.get(); }
  void record(const Stream& stream) { CUDA_CHECK(cudaEventRecord(get(), stream.get())); }
  void synchronize() const { CUDA_CHECK(cudaEventSynchronize(get())); }
  /// Milliseconds from `start` to this event; both must have completed.
  float ms_since(const Event& start) const {
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start.get(), get()));
    return ms;
  }

 private:
  static cudaEvent_t create(unsigned flags) {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
    return event;
  }
  Owned<cudaEvent_t, cudaEventDestroy> event_;
};

}  // namespace lenslet::cuda

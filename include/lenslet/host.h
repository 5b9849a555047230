#pragma once
// Threads and memory that an application provides in place of lenslet's own.

#include <cstddef>

#include "lenslet/export.h"

namespace lenslet {

/// The application's thread pool, which replaces a Runner's own threads (PlanOptions::executor).
class LENSLET_API Executor {
 public:
  /// A plain function and its context; needs no allocation.
  struct Task {
    void (*call)(void* context, int index);
    void* context;
    void operator()(int index) const { call(context, index); }
  };

  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor();
  /// Calls task(i) once for each i in [0, tasks), on any threads, and returns when all calls have returned. Tasks do
  /// not wait for each other, so running them in sequence on the calling thread is correct. Called some hundred times a
  /// run, by the thread that uses the Runner; concurrently if several Runners share it. An exception ends the run once
  /// all started tasks have returned.
  virtual void run(int tasks, Task task) = 0;
};

/// The application's memory allocator (PlanOptions::allocator).
class LENSLET_API Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator();
  /// Returns `bytes` > 0 bytes aligned to `alignment` (a power of two up to 256), or null when out of memory, which
  /// becomes Error(limit). `on_cuda`: memory of the calling thread's current CUDA device; else host memory.
  virtual void* allocate(std::size_t bytes, std::size_t alignment, bool on_cuda) = 0;
  /// Frees memory from allocate(); no work on it is queued any more. The same device is current, except after a device
  /// error. Called on whichever thread releases the Runner.
  virtual void release(void* data, std::size_t bytes, std::size_t alignment, bool on_cuda) noexcept = 0;
};

}  // namespace lenslet

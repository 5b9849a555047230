#pragma once
// What an app may give a Runner in place of lenslet's own: threads, and memory.

#include <cstddef>

#include "lenslet/export.h"

namespace lenslet {

/// Threads of the app's that loops are shared out to, in place of threads of a Runner's own (PlanOptions::executor).
class LENSLET_API Executor {
 public:
  /// A plain function and its context: nothing is allocated for it.
  struct Task {
    void (*call)(void* context, int index);
    void* context;
    void operator()(int index) const { call(context, index); }
  };

  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor();
  /// Calls task(i) for each i in [0, tasks), in whatever threads, and returns when all have returned. None waits for
  /// another: one after the other in the calling thread is right, too. The same i never twice at once. Called in the
  /// thread that is in a Runner, so by several at once where Runners share it; some hundred times a run. What it throws
  /// ends the run, after what was shared out is done.
  virtual void run(int tasks, Task task) = 0;
};

/// Memory of the app's (PlanOptions::allocator).
class LENSLET_API Allocator {
 public:
  Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;
  virtual ~Allocator();
  /// `bytes` > 0, aligned to `alignment`, a power of two up to 256; null when there are none, which is Error(limit).
  /// `on_cuda`: device memory, of the device that is current in the calling thread; else of the host.
  virtual void* allocate(std::size_t bytes, std::size_t alignment, bool on_cuda) = 0;
  /// Takes back what it gave, for which nothing is queued any more, with the same device current (but after an error of
  /// the device). In whatever thread lets go of the Runner.
  virtual void release(void* data, std::size_t bytes, std::size_t alignment, bool on_cuda) noexcept = 0;
};

}  // namespace lenslet

#pragma once
// Workers that share loops. Why we have our own: docs/cpu-choices.md.

#include <cstdint>
#include <memory>
#include <type_traits>

namespace lenslet {

class Executor;  // lenslet/host.h

/// A function pointer and its context: no heap allocation.
class RangeFunction {
 public:
  template <typename F>
  // NOLINTNEXTLINE(google-explicit-constructor): lambdas convert implicitly.
  RangeFunction(const F& f)
      : context_(&f), call_([](const void* c, std::int64_t begin, std::int64_t end, int worker) {
          (*static_cast<const F*>(c))(begin, end, worker);
        }) {}
  void operator()(std::int64_t begin, std::int64_t end, int worker) const { call_(context_, begin, end, worker); }

 private:
  const void* context_;
  void (*call_)(const void*, std::int64_t, std::int64_t, int);
};

/// `threads` - 1 workers plus the caller. parallel_for is not reentrant and serves one caller at a time; a Runner owns
/// one pool. An exception in a piece is rethrown in the caller after all pieces have ended. Workers run in our
/// FloatEnvironment and block all signals except their own faults.
class ThreadPool {
 public:
  /// std::system_error when no thread can be started.
  explicit ThreadPool(int threads, bool flush_denormals = false);
  /// No threads of its own: loops are divided for `threads` workers, which run as `executor`'s tasks. Null: as above.
  ThreadPool(int threads, bool flush_denormals, std::shared_ptr<Executor> executor);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  /// Call before loops: a child of fork() has no workers and starts its own here. May throw as the constructor does.
  void start_in_this_process();

  /// f(begin, end, worker) over [0, count), in pieces of about `grain` that the workers take in turn; `worker` in [0,
  /// threads()) selects scratch memory. The assignment of pieces varies, so results must not depend on it. Loops of one
  /// piece run in the caller without synchronisation.
  void parallel_for(std::int64_t count, std::int64_t grain, RangeFunction f);

 private:
  struct State;
  bool flush_denormals_;
  std::unique_ptr<State> state_;
};

/// Cores this process may run on (by affinity mask and cgroup quota), >= 1.
int available_cores();

}  // namespace lenslet

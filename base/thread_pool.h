#pragma once
// Workers that share loops. Why our own and not a library: docs/cpu-choices.md.

#include <cstdint>
#include <memory>
#include <type_traits>

namespace lenslet {

class Executor;  // lenslet/host.h

/// A plain function and its context: no allocation, no type erasure on the heap.
class RangeFunction {
 public:
  template <typename F>
  // NOLINTNEXTLINE(google-explicit-constructor): a lambda is passed where a RangeFunction is wanted.
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
/// one pool. An exception thrown by a part is rethrown in the caller after all parts ended. Workers compute in our
/// FloatEnvironment and take no signals but those of their own faults.
class ThreadPool {
 public:
  /// std::system_error when the system gives no thread.
  explicit ThreadPool(int threads, bool flush_denormals = false);
  /// No threads of its own: loops are cut for `threads` workers, which are `executor`'s tasks. Null: as above.
  ThreadPool(int threads, bool flush_denormals, std::shared_ptr<Executor> executor);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept;

  /// To be called before loops: fork() takes no worker along, so that a child starts its own here. May throw as the
  /// constructor does.
  void start_in_this_process();

  /// f(begin, end, worker) over [0, count), cut into pieces of about `grain` that the workers take in turn; `worker` in
  /// [0, threads()) tells scratch apart. Which worker gets which piece varies, so results must not depend on it.
  /// Loops of one piece run in the caller with no synchronisation.
  void parallel_for(std::int64_t count, std::int64_t grain, RangeFunction f);

 private:
  struct State;
  bool flush_denormals_;
  std::unique_ptr<State> state_;
};

/// Cores this process may run on (affinity mask and cgroup quota respected), >= 1.
int available_cores();

}  // namespace lenslet

#include "base/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "base/float_environment.h"
#include "base/fork.h"
#include "base/time_stamps.h"
#include "lenslet/host.h"

namespace lenslet {
namespace {

/// Blocks signals in the calling thread and in threads that it starts, since an app's signals are not for our workers.
/// Faults still reach the app's handler in the faulting thread.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Steps of a network follow within microseconds, while a futex wake-up takes tens: spinning workers save that time.
// After a longer gap they release the core.
constexpr auto spin_time = std::chrono::microseconds(50);
constexpr int pauses_between_clock_reads = 16;

void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// True as soon as `ready()`; false after `spin_time`.
template <typename Ready>
bool spin_until(Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < pauses_between_clock_reads; ++i) {
      if (ready()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

}  // namespace

/// The pieces of a loop are divided into contiguous shares, one per worker. Each worker starts with its own, so that a
/// core reads in one step the image rows that it wrote in the previous one, from its own cache; idle workers steal from
/// the other shares. (2 cores of a Sapphire Rapids, MobileNetV2: with one shared counter depthwise steps gained nothing
/// from the second core, because half of the input was in the other core's L2.)
///
/// Stores to the shares publish the loop. A worker that takes a number > 0 from a share owns a piece, and the loop
/// stays open until `unfinished` has counted that piece. So plain members are only read while they are constant, and a
/// worker that wakes up late finds no piece and touches nothing.
struct ThreadPool::State {
  struct alignas(64) Share {            // a cache line each: contended only by thieves
    std::atomic<std::int64_t> left{0};  ///< pieces nobody took yet (below 0: a take that came too late)
  };

  // The loop: the caller writes it while no share has pieces and unfinished == 0.
  const RangeFunction* function = nullptr;
  std::int64_t count = 0, grain = 1, pieces = 0;
  std::exception_ptr error;  ///< written by whoever sets `failed` first
  std::atomic<bool> failed{false};

  std::vector<Share> shares;                            ///< by worker
  alignas(64) std::atomic<std::int64_t> unfinished{0};  ///< pieces not done yet
  alignas(64) std::atomic<std::uint32_t> loops{0};      ///< loops published; 32 bits: what a futex waits on directly
  std::atomic<int> sleepers{0};
  alignas(64) std::atomic<std::uint32_t> done_bell{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};
  bool spin = true;
  const unsigned process = fork_count();
  const std::shared_ptr<Executor> executor;  ///< or null: `workers`
  std::vector<std::jthread> workers;

  State(int threads, bool flush_denormals, std::shared_ptr<Executor> given)
      : shares(static_cast<std::size_t>(threads)), executor(std::move(given)) {
    if (threads == 1 || executor != nullptr) return;
    // With more threads than cores, a spinning thread would occupy the core that the awaited one needs.
    spin = threads <= available_cores();
    workers.reserve(static_cast<std::size_t>(threads - 1));
    const SignalsBlocked signals_blocked;
    try {
      for (int i = 1; i < threads; ++i)
        workers.emplace_back([this, i, flush_denormals] {
          FloatEnvironment::set(flush_denormals);
          worker_loop(i);
        });
    } catch (...) {  // the system is out of threads: those that started must not outlive this
      end();
      throw;
    }
  }

  /// First piece of a worker's share, which ends at that of worker + 1.
  std::int64_t share_begin(std::size_t worker) const {
    return pieces * static_cast<std::int64_t>(worker) / static_cast<std::int64_t>(shares.size());
  }

  void run_piece(std::int64_t piece, int worker) {
    // After a failure the remaining pieces are only counted: their results are discarded.
    if (!failed.load(std::memory_order_relaxed)) {
      try {
        const std::int64_t begin = piece * grain;
        (*function)(begin, std::min(begin + grain, count), worker);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
    if (unfinished.fetch_sub(1) == 1 && caller_sleeps.load()) {
      done_bell.fetch_add(1);
      done_bell.notify_one();
    }
  }

  /// Publishes the loop whose members are set.
  void deal_out() {
    unfinished.store(pieces);
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i].left.store(share_begin(i + 1) - share_begin(i));
    loops.fetch_add(1);
    if (sleepers.load() > 0) loops.notify_all();
  }

  /// Takes pieces until none are left: the worker's own share from the front, then the others'.
  void take_pieces(int worker) {
    const auto own = static_cast<std::size_t>(worker);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const std::size_t at = (own + i) % shares.size();
      while (shares[at].left.load(std::memory_order_relaxed) > 0) {
        const std::int64_t left = shares[at].left.fetch_sub(1);
        if (left <= 0) break;
        run_piece(share_begin(at + 1) - left, worker);
      }
    }
  }

  void worker_loop(int worker) {
    std::uint32_t seen = 0;
    while (true) {
      const auto news = [&] { return loops.load() != seen || stop.load(); };
      if (!spin || !spin_until(news)) {
        // `sleepers` is raised before the wait reads `loops`, and the caller raises `loops` before it reads `sleepers`:
        // one of the two sees the other.
        sleepers.fetch_add(1);
        while (!news()) loops.wait(seen);
        sleepers.fetch_sub(1);
      }
      if (stop.load()) return;
      seen = loops.load();
      take_pieces(worker);
    }
  }

  /// Runs the open loop in the executor's tasks. Each task takes pieces until none are left, so tasks may start at any
  /// time, and the caller takes the rest.
  void execute(bool flush_denormals) {
    struct Loop {
      State* state;
      bool flush_denormals;
    } loop{this, flush_denormals};
    std::exception_ptr refused;
    try {
      const auto tasks = std::min(static_cast<std::int64_t>(shares.size()), pieces);
      executor->run(static_cast<int>(tasks), {[](void* context, int worker) {
                                                const Loop& of = *static_cast<const Loop*>(context);
                                                const FloatEnvironment environment(of.flush_denormals);
                                                of.state->take_pieces(worker);
                                              },
                                              &loop});
    } catch (...) {
      refused = std::current_exception();
      failed.store(true);  // what is left is only counted down
    }
    take_pieces(0);
    wait_until_finished();
    if (refused == nullptr) return;
    error = nullptr;
    std::rethrow_exception(refused);
  }

  void end() {
    stop.store(true);
    loops.fetch_add(1);
    loops.notify_all();
    workers.clear();  // joins
  }

  void wait_until_finished() {
    const auto finished = [this] { return unfinished.load() == 0; };
    if (spin ? spin_until(finished) : finished()) return;
    caller_sleeps.store(true);
    while (true) {
      const std::uint32_t bell = done_bell.load();
      if (finished()) break;
      done_bell.wait(bell);
    }
    caller_sleeps.store(false);
  }
};

ThreadPool::ThreadPool(int threads, bool flush_denormals) : ThreadPool(threads, flush_denormals, nullptr) {}

ThreadPool::ThreadPool(int threads, bool flush_denormals, std::shared_ptr<Executor> executor)
    : flush_denormals_(flush_denormals),
      state_(std::make_unique<State>(std::max(threads, 1), flush_denormals, std::move(executor))) {}

ThreadPool::~ThreadPool() {
  if (state_->process == fork_count() || state_->executor != nullptr)
    state_->end();
  else  // of threads that are not in this process nothing can be joined or freed
    static_cast<void>(state_.release());
}

void ThreadPool::start_in_this_process() {
  if (state_->process == fork_count() || state_->executor != nullptr) return;
  auto fresh = std::make_unique<State>(threads(), flush_denormals_, nullptr);
  static_cast<void>(state_.release());
  state_ = std::move(fresh);
}

int ThreadPool::threads() const noexcept { return static_cast<int>(state_->shares.size()); }

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, RangeFunction f) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t pieces = (count - 1) / grain + 1;
  State& s = *state_;
  if (pieces == 1 || s.shares.size() == 1) {
    // Same pieces as with many threads: a body may size its scratch by the grain.
    for (std::int64_t i = 0; i < pieces; ++i) f(i * grain, std::min((i + 1) * grain, count), 0);
    return;
  }
  assert(s.unfinished.load() == 0 && "parallel_for is not reentrant");
  TimeStamps* const stamps = TimeStamps::current();
  if (stamps != nullptr) stamps->end_alone();
  const auto stamped = [&](std::int64_t begin, std::int64_t end, int worker) {
    const double begin_us = stamps->now_us();
    f(begin, end, worker);
    stamps->add(worker, stamps->step(), TimelineSpan::Kind::piece, begin_us);
  };
  const RangeFunction with_stamps(stamped);
  s.function = stamps == nullptr ? &f : &with_stamps;
  s.count = count;
  s.grain = grain;
  s.pieces = pieces;
  s.failed.store(false, std::memory_order_relaxed);
  s.deal_out();
  if (s.executor != nullptr) {
    s.execute(flush_denormals_);
  } else {
    s.take_pieces(0);
    s.wait_until_finished();
  }
  if (stamps != nullptr) stamps->begin_alone();
  if (s.failed.load()) {
    // Moved out, so that the pool does not keep the exception alive and the next loop starts clean.
    const std::exception_ptr error = std::move(s.error);
    s.error = nullptr;
    std::rethrow_exception(error);
  }
}

}  // namespace lenslet

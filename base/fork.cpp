#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace lenslet {

namespace {

std::atomic<unsigned> forks{0};

// Registered when the library is loaded: a fork() before the first Runner has no effect.
[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

unsigned fork_count() noexcept { return forks.load(std::memory_order_relaxed); }

}  // namespace lenslet

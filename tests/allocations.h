#pragma once
// What a test's process asks operator new for: counted, and refused on wish. Link allocations.cpp into the test, which
// replaces operator new; under the sanitizers, which bring their own, nothing is counted and nothing is refused.

#include <cstdint>

namespace lenslet::test {

/// Whether this build counts.
bool allocations_are_counted();

/// What is allocated, by any thread, while one of these lives. One at a time.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;
  int count() const;
};

/// Refuses allocation number `n` (from 0) of the calling thread and then no other. With `and_all_after`, those too.
class AllocationFailure {
 public:
  explicit AllocationFailure(int n, bool and_all_after = false);
  ~AllocationFailure();
  AllocationFailure(const AllocationFailure&) = delete;
  AllocationFailure& operator=(const AllocationFailure&) = delete;
  /// Whether it came to that.
  bool happened() const;
};

/// Allocated and not freed yet.
std::int64_t live_allocations();

}  // namespace lenslet::test

#pragma once
// Counts and, on request, refuses allocations of a test's process. Link allocations.cpp into the test, which replaces
// operator new. Sanitizers bring their own; under them nothing is counted or refused.

#include <cstdint>

namespace lenslet::test {

/// Whether this build counts allocations.
bool allocations_are_counted();

/// Counts allocations of all threads during its lifetime. Only one at a time.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;
  int count() const;
};

/// Refuses allocation number `n` (from 0) of the calling thread, and with `and_all_after` also all later ones.
class AllocationFailure {
 public:
  explicit AllocationFailure(int n, bool and_all_after = false);
  ~AllocationFailure();
  AllocationFailure(const AllocationFailure&) = delete;
  AllocationFailure& operator=(const AllocationFailure&) = delete;
  /// Whether an allocation was refused.
  bool happened() const;
};

/// Number of allocations that are not yet freed.
std::int64_t live_allocations();

}  // namespace lenslet::test

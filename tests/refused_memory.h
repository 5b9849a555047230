#pragma once
// Fails allocations, one after the other.

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>

#include "lenslet/error.h"
#include "tests/allocations.h"

namespace lenslet::test {

/// Calls `work` with its first allocation refused, then its second, and so on until none is: the single one, and with
/// all later ones. Each failure must be an Error of kind limit, and must leave nothing behind.
template <typename Work>
void check_refused_memory(const Work& work) {
  work();  // makes everything that is made once in a process
  if (!allocations_are_counted()) return;
  for (const bool and_all_after : {false, true}) {
    bool happened = true;
    for (int n = 0; happened; ++n) {
      CAPTURE(n);
      CAPTURE(and_all_after);
      std::optional<ErrorKind> kind;
      bool other = false;
      std::int64_t before = 0;
      for (int time = 0; time < 2; ++time) {  // and everything that a failure makes once in a process
        before = live_allocations();
        kind.reset();
        const AllocationFailure failure(n, and_all_after);
        try {
          work();
        } catch (const Error& error) {
          kind = error.kind();
        } catch (...) {
          other = true;
        }
        happened = failure.happened();
      }
      REQUIRE_FALSE(other);
      REQUIRE(live_allocations() == before);
      // It may succeed if it can do without the memory (an unreadable stream counts as missing).
      if (kind) REQUIRE(*kind == ErrorKind::limit);
      if (!happened) REQUIRE_FALSE(kind);
      REQUIRE(n < 100000);
    }
  }
}

}  // namespace lenslet::test

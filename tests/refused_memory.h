#pragma once
// Memory that is short, at each place where some is asked for.

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>

#include "lenslet/error.h"
#include "tests/allocations.h"

namespace lenslet::test {

/// Calls `work` with its first allocation refused, then its second, and so on until none is; alone, and with all that
/// come after. Whenever it fails, it must be with an Error of kind limit, and nothing may be left behind.
template <typename Work>
void check_refused_memory(const Work& work) {
  work();  // what is made once in a process is there
  if (!allocations_are_counted()) return;
  for (const bool and_all_after : {false, true}) {
    bool happened = true;
    for (int n = 0; happened; ++n) {
      CAPTURE(n);
      CAPTURE(and_all_after);
      std::optional<ErrorKind> kind;
      bool other = false;
      std::int64_t before = 0;
      for (int time = 0; time < 2; ++time) {  // what a failure makes once in a process is there then, too
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
      // Where it can be done without (a stream that cannot be read counts as missing), it may get through.
      if (kind) REQUIRE(*kind == ErrorKind::limit);
      if (!happened) REQUIRE_FALSE(kind);
      REQUIRE(n < 100000);
    }
  }
}

}  // namespace lenslet::test

#pragma once
// Runs a check with every compiled instruction set that this CPU supports.

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/ops/op_runner.h"

namespace lenslet::test {

/// Calls f() once for each of `compiled` (HWY_TARGETS) that the CPU supports. The setting is process-wide: no other
/// kernel may run meanwhile. Skipped in runs for lesser instruction sets (LENSLET_LESSER_ONLY).
template <typename F>
void for_each_target(std::int64_t compiled, const F& f) {
  if (std::getenv("LENSLET_LESSER_ONLY") != nullptr) return;
  for (std::int64_t left = hwy::SupportedTargets() & compiled; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    const std::string instruction_set = hwy::TargetName(target);
    CAPTURE(instruction_set);
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
}

/// The same if the tested runner is the CPU's. On a device, which has no instruction sets, calls f() once.
template <typename F>
void on_every_instruction_set(std::int64_t compiled, const F& f) {
  if (op_runner().device() == DeviceKind::cpu)
    for_each_target(compiled, f);
  else
    f();
}

}  // namespace lenslet::test

#pragma once
// Runs a check under every instruction set this CPU has and the kernels were compiled for.

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/ops/op_runner.h"

namespace lenslet::test {

/// f() once for each of `compiled` (HWY_TARGETS) that the CPU supports. The choice is process-wide: nothing else may
/// run kernels meanwhile. Not in the runs for lesser instruction sets (LENSLET_LESSER_ONLY): the other one had them
/// all.
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

/// The same where the tested runner is the CPU's. On a device f() once, which knows of no instruction sets.
template <typename F>
void on_every_instruction_set(std::int64_t compiled, const F& f) {
  if (op_runner().device() == DeviceKind::cpu)
    for_each_target(compiled, f);
  else
    f();
}

}  // namespace lenslet::test

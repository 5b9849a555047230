#pragma once
// What every timeline of a run keeps to, on any device.

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "lenslet/runner.h"
#include "lenslet/timeline.h"

namespace lenslet::test {

/// Checks a timeline of `plan`; returns each lane's busy share of the run.
inline std::vector<double> check_timeline(const Timeline& timeline, const PlanInfo& plan) {
  CHECK(timeline.run_us > 0);
  CHECK(timeline.undisturbed_us > 0);
  std::vector<double> busy(timeline.lanes.size());
  std::set<int> seen;
  int lane = 0;
  double at = 0;
  for (const TimelineSpan& span : timeline.spans) {
    REQUIRE(span.lane >= lane);
    if (span.lane != lane) at = 0;
    lane = span.lane;
    REQUIRE(static_cast<std::size_t>(lane) < busy.size());
    REQUIRE(span.step >= -1);
    REQUIRE(span.step < static_cast<int>(plan.steps.size()));
    CHECK(at <= span.begin_us);
    CHECK(span.begin_us <= span.end_us);
    CHECK(span.end_us <= timeline.run_us);
    at = span.end_us;
    busy[static_cast<std::size_t>(lane)] += (span.end_us - span.begin_us) / timeline.run_us;
    seen.insert(span.step);
  }
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    CAPTURE(plan.steps[i].name);
    CHECK(seen.contains(static_cast<int>(i)) == !plan.steps[i].no_op);
  }
  for (const double share : busy) CHECK(share <= 1 + 1e-9);
  return busy;
}

}  // namespace lenslet::test

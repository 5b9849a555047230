// Runner::timeline on the CPU: what each thread did in a real run.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "late_cases.h"
#include "lenslet/host.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"
#include "tests/allocations.h"
#include "tests/tensors.h"
#include "timeline_check.h"

namespace lenslet::test {
namespace {

using Kind = TimelineSpan::Kind;

TEST_CASE("exec/timeline/threads_and_bands") {
  const Model model = make_model(inverted_residuals());
  const std::array<Tensor, 1> x{random_tensor({1, 5, 421, 31}, 3)};
  for (const int threads : {1, 2, 3}) {
    if (threads == 2 && std::getenv("LENSLET_TEST_REDUCED") != nullptr) continue;
    CAPTURE(threads);
    Runner runner(model, on_cpu(1, threads));
    REQUIRE(!runner.plan().bands.empty());
    const Tensor expected = runner.run(x)[0].clone();
    const Timeline timeline = runner.timeline(x, 1);
    REQUIRE(timeline.lanes.size() == static_cast<std::size_t>(threads));
    CHECK(timeline.lanes.back() == "thread " + std::to_string(threads));
    std::vector<double> busy = check_timeline(timeline, runner.plan());
    // A single thread never waits, but other work may take its processor.
    for (int again = 0; again < 20 && threads == 1 && busy[0] <= 0.95; ++again)
      busy = check_timeline(runner.timeline(x, 1), runner.plan());
    if (threads == 1) CHECK(busy[0] > 0.95);
    for (const TimelineSpan& span : timeline.spans) {
      const auto inside = [&](const BandInfo& band) {
        return band.first_step <= span.step && span.step <= band.last_step;
      };
      const bool in_band = std::ranges::any_of(runner.plan().bands, inside);
      if (span.kind == Kind::band) CHECK(in_band);
      if (in_band) CHECK(span.kind != Kind::piece);
      if (span.kind == Kind::step) CHECK(span.lane == 0);
    }
    const auto any = [&](Kind kind) {
      return std::ranges::any_of(timeline.spans, [&](const TimelineSpan& span) { return span.kind == kind; });
    };
    CHECK(any(Kind::band));
    CHECK(any(Kind::step));
    CHECK(any(Kind::piece) == (threads > 1));
    // No stamps any more.
    const AllocationCount allocations;
    const Tensor& y = runner.run(x)[0];
    CHECK(allocations.count() == 0);
    CHECK(equal(y, expected));
  }
}

/// Runs task i in turn, or throws in call number `fails_at`.
class InTurn final : public Executor {
 public:
  void run(int tasks, Task task) override {
    if (++calls == fails_at) throw std::runtime_error("no threads today");
    for (int i = 0; i < tasks; ++i) task(i);
  }
  int calls = 0, fails_at = -1;
};

TEST_CASE("exec/timeline/executor") {
  const auto executor = std::make_shared<InTurn>();
  PlanOptions options = on_cpu(64, 2);
  options.executor = executor;
  Runner runner(make_model(small_net()), options);
  const std::array<Tensor, 1> x{random_tensor({64, 3, 17, 19}, 5)};
  const Tensor expected = runner.run(x)[0].clone();
  const Timeline timeline = runner.timeline(x, 2);
  CHECK(timeline.lanes.size() == 2);
  check_timeline(timeline, runner.plan());
  // Tasks in turn: task 0 leaves nothing for task 1.
  CHECK(std::ranges::none_of(timeline.spans, [](const TimelineSpan& span) { return span.lane == 1; }));
  // Fails in the third run, which has stamps.
  executor->calls = 0;
  runner.run(x);
  executor->fails_at = 3 * executor->calls;
  executor->calls = 0;
  CHECK_THROWS_WITH_AS(runner.timeline(x), "no threads today", std::runtime_error);
  CHECK(equal(runner.run(x)[0], expected));
  CHECK(error_of([&] { runner.timeline(x, 0); }).kind() == ErrorKind::invalid_argument);
}

TEST_CASE("exec/timeline/steps_of_all_parts") {
  Runner runner(make_model(positive_net()), on_cpu(1, 2));
  const std::array<Tensor, 1> x{Tensor::of<float>({8}, {1, -1, 2, -2, 3, -3, 4, 5})};
  const Timeline timeline = runner.timeline(x, 2);
  CHECK(runner.plan().steps.size() > 2);
  check_timeline(timeline, runner.plan());
  // With the observer, which stays, steps are stamped, too.
  int steps = 0;
  runner.set_observer([&](const LayerEvent&) { ++steps; });
  check_timeline(runner.timeline(x, 1), runner.plan());
  CHECK(steps > 0);
}

TEST_CASE("exec/timeline/other_shapes") {
  PlanOptions options = on_cpu(1, 1);
  options.other_shapes = 1;
  Runner runner(make_model(small_net()), options);
  for (const std::int64_t batch : {1, 2})
    check_timeline(runner.timeline(std::array<Tensor, 1>{random_tensor({batch, 3, 17, 19}, 5)}, 2), runner.plan());
}

}  // namespace
}  // namespace lenslet::test

// Steps that run in bands give the same bits as one by one, with any number of threads, in the planned memory.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "runtime/exec/plan.h"
#include "small_net.h"
#include "tests/allocations.h"
#include "tests/tensors.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("exec/bands/same_bits_as_step_by_step") {
  const Model model = make_model(inverted_residuals());
  const bool reduced = std::getenv("LENSLET_TEST_REDUCED") != nullptr;
  for (const std::int64_t batch : reduced ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, 3}) {
    const std::array<Tensor, 1> x{random_tensor({batch, 5, 421, 31}, 3)};
    PlanOptions plain = on_cpu(batch, 2);
    plain.disabled_passes = {"choose_bands"};
    Runner one_by_one(model, plain);
    CHECK(one_by_one.plan().bands.empty());
    const Tensor expected = one_by_one.run(x)[0].clone();
    for (const int threads : {1, 2, 3}) {
      Runner runner(model, on_cpu(batch, threads));
      REQUIRE(!runner.plan().bands.empty());
      for (int run = 0; run < 2; ++run) CHECK(equal(runner.run(x)[0], expected));

      int steps = 0;
      runner.set_observer([&](const LayerEvent&) { ++steps; });
      CHECK(equal(runner.run(x)[0], expected));
      CHECK(steps == static_cast<int>(runner.plan().steps.size()));
      runner.set_observer({});
      CHECK(equal(runner.run(x)[0], expected));
    }
  }
}

TEST_CASE("exec/bands/the_first_step_has_room_for_all_threads") {
  const Model model = make_model(inverted_residuals());
  for (const int threads : {1, 3}) {
    std::shared_ptr<ThreadPool> pool;
    const auto plan = make_plan(*model.impl(), on_cpu(1, threads), pool);
    int bands = 0;
    for (const PlanStep& step : plan->steps)
      if (step.band != nullptr) {
        ++bands;
        CHECK(step.workspace_bytes >= step.band->workspace_bytes(threads));
        CHECK(step.band->workspace_bytes(threads) == static_cast<std::size_t>(threads) * step.band->workspace_bytes(1));
      }
    CHECK(bands > 0);
  }
}

TEST_CASE("exec/bands/on_memory_of_the_apps") {
  const Model model = make_model(inverted_residuals());
  const Tensor x = random_tensor({1, 5, 421, 31}, 3);
  Runner runner(model, on_cpu(1, 2));
  REQUIRE(!runner.plan().bands.empty());
  const Tensor expected = runner.run(x)[0].clone();
  Tensor y(DType::f32, expected.shape());
  const std::array inputs{IoTensor{x}}, outputs{IoTensor{y}};
  for (int run = 0; run < 2; ++run) {
    std::memset(y.data(), 0xFF, y.bytes());
    CHECK(runner.run(inputs, {.outputs = outputs})[0].data() == y.data());
    CHECK(equal(y, expected));
  }
  CHECK(equal(runner.run(x)[0], expected));
}

TEST_CASE("exec/bands/nothing_is_allocated_in_a_run") {
  const Model model = make_model(inverted_residuals());
  const std::array<Tensor, 1> x{random_tensor({1, 5, 421, 31}, 3)};
  Runner runner(model, on_cpu(1, 2));
  REQUIRE(!runner.plan().bands.empty());
  (void)runner.run(x);
  const AllocationCount allocations;
  (void)runner.run(x);
  CHECK(allocations.count() == 0);
}

TEST_CASE("exec/bands/a_described_plan_and_all_values") {
  const Model model = make_model(inverted_residuals());
  const PlanInfo described = model.plan(on_cpu(1, 2));
  const Runner runner(model, on_cpu(1, 2));
  REQUIRE(described.bands.size() == runner.plan().bands.size());
  CHECK(described.memory.peak_bytes == runner.plan().memory.peak_bytes);
  for (std::size_t i = 0; i < described.bands.size(); ++i) {
    CHECK(described.bands[i].reason == runner.plan().bands[i].reason);
    CHECK(described.bands[i].first_step < described.bands[i].last_step);
  }
  // keep_all_values also keeps the values between the steps.
  PlanOptions keep = on_cpu(1, 2);
  keep.keep_all_values = true;
  CHECK(model.plan(keep).bands.empty());
}

// Inputs of a band must outlive it, and its outputs must not overlap memory that its steps still read.
TEST_CASE("exec/bands/values_lie_apart") {
  const PlanInfo plan = make_model(inverted_residuals()).plan(on_cpu(1, 2));
  REQUIRE(!plan.bands.empty());
  for (const BandInfo& band : plan.bands) {
    const StepInfo &first = plan.steps[static_cast<std::size_t>(band.first_step)],
                   &last = plan.steps[static_cast<std::size_t>(band.last_step)];
    const PlacementInfo *read = nullptr, *made = nullptr;
    for (const PlacementInfo& place : plan.placements) {
      if (place.value == first.inputs[0]) read = &place;
      if (place.value == last.outputs[0]) made = &place;
    }
    if (read != nullptr) CHECK(read->last_step >= band.last_step);
    if (made != nullptr) CHECK(made->first_step <= band.first_step);
    if (read != nullptr && made != nullptr)
      CHECK((read->offset + read->bytes <= made->offset || made->offset + made->bytes <= read->offset));
  }
}

// The app's threads, its memory, and its requests to end a run.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "late_cases.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"
#include "tests/exec/embedder_cases.h"

namespace lenslet::test {
namespace {

// Batches of 64, since loops with a single piece are not distributed.

/// Runs tasks one after the other or in a thread each, or fewer than requested.
class TestExecutor final : public Executor {
 public:
  enum class Way { in_turn, threads, none, backwards };
  explicit TestExecutor(Way way) : way_(way) {}
  void run(int tasks, Task task) override {
    ++calls;
    most = std::max(most, tasks);
    if (way_ == Way::in_turn)
      for (int i = 0; i < tasks; ++i) task(i);
    if (way_ == Way::backwards)
      for (int i = tasks; i-- > 0;) task(i);
    if (way_ != Way::threads) return;
    std::vector<std::jthread> threads;
    for (int i = 0; i < tasks; ++i) threads.emplace_back([=] { task(i); });
  }
  int calls = 0, most = 0;

 private:
  Way way_;
};

TEST_CASE("exec/host/executor_does_all_work") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({64, 3, 17, 19}, 5);
  const Tensor expected = Runner(model, on_cpu(64, 3)).run(x)[0].clone();
  using Way = TestExecutor::Way;
  for (const Way way : {Way::in_turn, Way::threads, Way::none, Way::backwards}) {
    const auto executor = std::make_shared<TestExecutor>(way);
    PlanOptions options = on_cpu(64, 3);
    options.executor = executor;
    REQUIRE(comes_true(others_sleep));
    Runner runner(model, options);
    const int planned = executor->calls;
    CHECK(equal(runner.run(x)[0], expected));
    CHECK(executor->calls > planned);
    CHECK(executor->most == 3);
  }
}

TEST_CASE("exec/host/what_an_executor_throws_ends_the_run") {
  class Throws final : public Executor {
   public:
    void run(int tasks, Task task) override {
      if (!broken)
        for (int i = 0; i < tasks; ++i) task(i);
      else
        throw std::runtime_error("no threads today");
    }
    bool broken = false;
  };
  const auto executor = std::make_shared<Throws>();
  PlanOptions options = on_cpu(64, 2);
  options.executor = executor;
  Runner runner(make_model(small_net()), options);
  const Tensor x = random_tensor({64, 3, 17, 19}, 5);
  const Tensor expected = runner.run(x)[0].clone();
  executor->broken = true;
  CHECK_THROWS_WITH_AS(runner.run(x), "no threads today", std::runtime_error);
  executor->broken = false;
  CHECK(equal(runner.run(x)[0], expected));
}

class TestAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment, bool on_cuda) override {
    CHECK_FALSE(on_cuda);
    if (refuses) return nullptr;
    held += bytes;
    given = static_cast<std::byte*>(std::aligned_alloc(alignment, (bytes + 1 + alignment - 1) / alignment * alignment));
    return given + (misaligned ? 1 : 0);
  }
  void release(void* data, std::size_t bytes, std::size_t, bool) noexcept override {
    held -= bytes;
    std::free(static_cast<std::byte*>(data) - (misaligned ? 1 : 0));
  }
  std::byte* given = nullptr;
  std::size_t held = 0;
  bool refuses = false, misaligned = false;
};

TEST_CASE("exec/host/allocator_gives_the_arena") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 5);
  const Tensor expected = Runner(model, on_cpu(2, 1)).run(x)[0].clone();
  const auto allocator = std::make_shared<TestAllocator>();
  PlanOptions options = on_cpu(2, 1);
  options.allocator = allocator;
  {
    Runner runner(model, options);
    CHECK(allocator->held == runner.plan().memory.peak_bytes);
    const Tensor& y = runner.run(x)[0];
    CHECK(equal(y, expected));
    CHECK(static_cast<const std::byte*>(y.data()) >= allocator->given);
    CHECK(static_cast<const std::byte*>(y.data()) < allocator->given + allocator->held);
  }
  CHECK(allocator->held == 0);
  CHECK(allocator.use_count() == 2);  // and the options'
  allocator->refuses = true;
  CHECK(kind_of([&] { Runner(model, options); }) == ErrorKind::limit);
  allocator->refuses = false;
  allocator->misaligned = true;
  CHECK(kind_of([&] { Runner(model, options); }) == ErrorKind::invalid_argument);
  CHECK(allocator->held == 0);
}

TEST_CASE("exec/host/arenas_of_the_last_other_shapes_are_kept") {
  const Model model = make_model(small_net());
  const auto allocator = std::make_shared<TestAllocator>();
  PlanOptions options = on_cpu(1, 1);
  options.allocator = allocator;
  options.other_shapes = 2;
  Runner runner(model, options);
  std::vector<std::size_t> bytes{runner.plan().memory.peak_bytes};
  for (const std::int64_t batch : {2, 3, 4, 5, 6}) {
    runner.run(random_tensor({batch, 3, 17, 19}, 5));
    bytes.push_back(runner.plan().memory.peak_bytes);
    const auto last = bytes.end() - std::min<std::ptrdiff_t>(3, std::ssize(bytes));
    CHECK(allocator->held == std::accumulate(last, bytes.end(), std::size_t{0}));
  }
}

TEST_CASE("exec/host/arenas_of_the_last_four_late_shapes_are_kept") {
  const auto allocator = std::make_shared<TestAllocator>();
  PlanOptions options = on_cpu(1, 1);
  options.allocator = allocator;
  Runner runner(make_model(positive_net()), options);
  std::vector<std::size_t> held;
  for (std::int64_t positive = 1; positive <= 6; ++positive) {
    Tensor x(DType::f32, Shape{8});
    for (std::int64_t i = 0; i < 8; ++i) x.values<float>()[static_cast<std::size_t>(i)] = i < positive ? 1.0F : -1.0F;
    runner.run(x);
    held.push_back(allocator->held);
  }
  for (const std::size_t i : {1U, 2U, 3U}) CHECK(held[i] > held[i - 1]);
  for (const std::size_t i : {4U, 5U}) CHECK(held[i] == held[3]);
}

TEST_CASE("exec/host/cancelled_between_steps") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({1, 3, 17, 19}, 5);
  const std::array inputs{IoTensor{x}};
  Runner runner(model, on_cpu(1, 1));
  const Tensor expected = runner.run(x)[0].clone();

  std::stop_source before;
  before.request_stop();
  const Error at_once = error_of([&] { runner.run(inputs, {.stop = before.get_token()}); });
  CHECK(at_once.kind() == ErrorKind::cancelled);
  CHECK(std::string(at_once.what()).find("after 0 of") != std::string::npos);

  std::stop_source during;
  int last = -1;
  runner.set_observer([&](const LayerEvent& event) {
    last = event.step;
    if (event.step == 1) during.request_stop();
  });
  const Error ended = error_of([&] { runner.run(inputs, {.stop = during.get_token()}); });
  CHECK(ended.kind() == ErrorKind::cancelled);
  CHECK(std::string(ended.what()).find("after 2 of") != std::string::npos);
  CHECK(last == 1);
  runner.set_observer({});
  CHECK(equal(runner.run(x)[0], expected));  // the token belonged to that run only
  CHECK(equal(runner.run(inputs, {})[0], expected));
}

TEST_CASE("exec/host/cancelled_by_another_thread") {
  // Without an observer, so that the plain run checks between steps: stops from inside its own executor.
  class Stopping final : public Executor {
   public:
    void run(int tasks, Task task) override {
      for (int i = 0; i < tasks; ++i) task(i);
      if (armed) std::jthread([this] { source.request_stop(); }).join();
    }
    std::stop_source source;
    bool armed = false;
  };
  const auto executor = std::make_shared<Stopping>();
  PlanOptions options = on_cpu(64, 2);
  options.executor = executor;
  Runner runner(make_model(small_net()), options);
  const Tensor x = random_tensor({64, 3, 17, 19}, 5);
  const std::array inputs{IoTensor{x}};
  const Tensor expected = runner.run(x)[0].clone();
  executor->armed = true;
  const Error error = error_of([&] { runner.run(inputs, {.stop = executor->source.get_token()}); });
  CHECK(error.kind() == ErrorKind::cancelled);
  CHECK(std::string(error.what()).find("after 0 of") == std::string::npos);
  executor->armed = false;
  CHECK(equal(runner.run(x)[0], expected));
}

}  // namespace
}  // namespace lenslet::test

// Allowed and forbidden uses of a Runner by an app: each works or gives an Error.

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"
#include "tests/exec/embedder_cases.h"

namespace lenslet::test {
namespace {

TEST_CASE("exec/embedder/outputs_given_back_as_inputs") { check_outputs_given_back("cpu"); }
TEST_CASE("exec/embedder/outputs_belong_to_the_runner") { check_outputs_belong_to_the_runner("cpu"); }
TEST_CASE("exec/embedder/observers_that_reach_for_their_runner") { check_observers_that_reach_for_their_runner("cpu"); }

TEST_CASE("exec/embedder/moved_from") {
  Model model = make_model(small_net());
  Tensor x = random_tensor({1, 3, 17, 19}, 1);
  Runner runner(model, on_cpu(1, 2));
  const Tensor expected = runner.run(x)[0].clone();

  Tensor taken = std::move(x);
  CHECK(x.empty());  // NOLINT(bugprone-use-after-move): the subject of this test
  CHECK(x.elems() == 0);
  CHECK(x.data() == nullptr);
  CHECK(x.clone().empty());
  CHECK(kind_of([&] { runner.run(x); }) == ErrorKind::invalid_argument);
  x = std::move(taken);
  CHECK(taken.empty());
  Tensor& same = x;
  x = std::move(same);
  CHECK_FALSE(x.empty());

  Runner moved(std::move(runner));
  CHECK(kind_of([&] { runner.run(x); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { runner.run_loaded(); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { runner.load_image(0, {}, {}); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { runner.set_observer({}); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { runner.time_device(1); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { runner.plan(); }) == ErrorKind::invalid_argument);
  CHECK(equal(moved.run(x)[0], expected));
  runner = std::move(moved);
  CHECK(equal(runner.run(x)[0], expected));

  Model kept = std::move(model);
  for (const Model& none : {model, Model(nullptr)}) {
    CHECK(kind_of([&] { none.name(); }) == ErrorKind::invalid_argument);
    CHECK(kind_of([&] { none.inputs(); }) == ErrorKind::invalid_argument);
    CHECK(kind_of([&] { none.outputs(); }) == ErrorKind::invalid_argument);
    CHECK(kind_of([&] { none.parameter_elems(); }) == ErrorKind::invalid_argument);
    CHECK(kind_of([&] { none.plan(); }) == ErrorKind::invalid_argument);
    CHECK(kind_of([&] { none.memory(); }) == ErrorKind::invalid_argument);
    CHECK(kind_of([&] { none.dump("load"); }) == ErrorKind::invalid_argument);
    CHECK(kind_of([&] { Runner(none, on_cpu()); }) == ErrorKind::invalid_argument);
  }
  CHECK(equal(Runner(kept, on_cpu(1, 2)).run(x)[0], expected));
}

TEST_CASE("exec/embedder/tensors_at_null") {
  CHECK(kind_of([] { Tensor::view(DType::f32, {2, 3}, nullptr); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([] { Tensor::share(DType::f32, {}, nullptr, nullptr); }) == ErrorKind::invalid_argument);
  const Tensor none = Tensor::view(DType::f32, {2, 0}, nullptr);
  CHECK(none.elems() == 0);
  CHECK_FALSE(none.empty());
  CHECK(none.clone().shape() == Shape{2, 0});
}

TEST_CASE("exec/embedder/a_second_thread_is_refused") {
  Runner runner(make_model(small_net()), on_cpu(1, 2));
  const Tensor x = random_tensor({1, 3, 17, 19}, 1);
  const Tensor expected = runner.run(x)[0].clone();
  // The first stays in its observer as long as the second tries.
  std::atomic<bool> inside{false}, tried{false};
  runner.set_observer([&](const LayerEvent&) {
    inside = true;
    while (!tried) std::this_thread::yield();
  });
  std::thread second([&] {
    while (!inside) std::this_thread::yield();
    const std::vector<ErrorKind> kinds{kind_of([&] { runner.run(x); }), kind_of([&] { runner.run_loaded(); }),
                                       kind_of([&] { runner.load_image(0, {}, {}); }),
                                       kind_of([&] { runner.set_observer({}); }),
                                       kind_of([&] { runner.time_device(1); })};
    tried = true;
    for (const ErrorKind kind : kinds) CHECK(kind == ErrorKind::invalid_argument);
  });
  const Tensor got = runner.run(x)[0].clone();
  second.join();
  CHECK(equal(got, expected));
  runner.set_observer({});
  CHECK(equal(runner.run(x)[0], expected));
}

#if defined(__SANITIZE_THREAD__)
#define LENSLET_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LENSLET_TSAN 1
#endif
#endif
#ifndef LENSLET_TSAN  // which refuses threads in a child
int threads_of_this_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST_CASE("exec/embedder/fork") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({1, 3, 17, 19}, 1);
  auto runner = std::make_unique<Runner>(model, on_cpu(1, 3));
  const Tensor expected = runner->run(x)[0].clone();
  CHECK(holds_in_child([&] { return equal(Runner(model, on_cpu(1, 3)).run(x)[0], expected); }));
  CHECK(holds_in_child([&] {
    bool same = true;
    for (int i = 0; i < 100; ++i) same = same && equal(runner->run(x)[0], expected);
    return same && threads_of_this_process() == 3;  // two workers of its own
  }));
  CHECK(holds_in_child([&] {
    runner.reset();
    return true;
  }));
  CHECK(holds_in_child([&] {
    runner->run(x);
    runner.reset();
    return comes_true([] { return threads_of_this_process() == 1; });  // a joined thread stays listed for a moment
  }));
  // During a run: the child must not wait for the parent's turn.
  bool held = false;
  runner->set_observer([&, parent = ::getpid()](const LayerEvent& event) {
    if (event.step > 0 || ::getpid() != parent) return;
    held = holds_in_child([&] { return holds_in_child([&] { return equal(runner->run(x)[0], expected); }); });
  });
  runner->run(x);
  CHECK(held);
  CHECK(equal(runner->run(x)[0], expected));
}
#endif

// The masks of blocked signals of all threads except the first, bit 0 for signal 1.
std::vector<unsigned long long> blocked_signals() {
  std::vector<unsigned long long> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::getpid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigBlk:")) masks.push_back(std::stoull(line.substr(7), nullptr, 16));
  }
  return masks;
}

TEST_CASE("exec/embedder/workers_take_no_signals") {
  const Runner runner(make_model(small_net()), on_cpu(1, 3));
  sigset_t mine;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  CHECK(::sigismember(&mine, SIGUSR1) == 0);  // the caller's mask is unchanged
  const auto is_worker = [](unsigned long long mask) {
    const auto blocks = [&](int signal) { return (mask >> (signal - 1) & 1) != 0; };
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGHUP, SIGPIPE})
      if (!blocks(signal)) return false;
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
      if (blocks(fault)) return false;
    return true;
  };
  // A starting thread has all signals blocked for a moment; a sanitizer has threads of its own.
  std::ptrdiff_t workers = 0;
  for (int wait = 0; wait < 500 && workers < 2; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto masks = blocked_signals();
    workers = std::count_if(masks.begin(), masks.end(), is_worker);
  }
  CHECK(workers == 2);
}

TEST_CASE("exec/embedder/one_thread_is_the_callers") {
  Graph late;
  late.name = "late";
  const ValueId x = add_port(late, "x", DType::f32, {1, 3, 17, 19});
  add_output(late, add_node(late, "NonZero", {x}));
  const std::size_t others = blocked_signals().size();
  for (const Model& model : {make_model(small_net()), make_model(late)}) {
    Runner runner(model, on_cpu(1, 1));
    runner.run(random_tensor({1, 3, 17, 19}, 1));
    CHECK(blocked_signals().size() <= others);  // ended threads may be listed for a moment
  }
}

TEST_CASE("exec/embedder/rounding_modes_of_the_app") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({1, 3, 17, 19}, 1);
  const Tensor expected = Runner(model, on_cpu(1, 2)).run(x)[0].clone();
  Runner before(model, on_cpu(1, 2));
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    CAPTURE(mode);
    const Model fresh = make_model(small_net());
    REQUIRE(std::fesetround(mode) == 0);
    std::feclearexcept(FE_ALL_EXCEPT);
    const bool same_before = equal(before.run(x)[0], expected);
    const bool same_anew = equal(Runner(fresh, on_cpu(1, 2)).run(x)[0], expected);
    const int after = std::fegetround(), raised = std::fetestexcept(FE_ALL_EXCEPT);
    std::fesetround(FE_TONEAREST);
    CHECK(same_before);
    CHECK(same_anew);
    CHECK(after == mode);
    CHECK(raised == 0);
  }
}

TEST_CASE("exec/embedder/denormal_numbers") {
  // y = x + 0: keeps 1e-40 unless it is flushed.
  Graph graph;
  graph.name = "denormal";
  const ValueId x = add_input(graph, {40000});
  add_output(graph, add_node(graph, "Add", {x, graph.add_constant("zero", Tensor::of<float>(Shape{1}, {0.0F}))}));
  const Model model = make_model(std::move(graph));
  Tensor tiny(DType::f32, {1, 40000});
  for (float& value : tiny.values<float>()) value = 1e-40F;
  for (const int threads : {1, 3}) {
    PlanOptions options = on_cpu(1, threads);
    Runner kept(model, options);
    const Tensor all_kept = kept.run(tiny)[0];
    for (const float value : all_kept.values<float>()) REQUIRE(value == 1e-40F);
    options.flush_denormals = true;
    Runner flushed(model, options);
    const Tensor all_flushed = flushed.run(tiny)[0];
#if defined(__SSE__)
    for (const float value : all_flushed.values<float>()) REQUIRE(value == 0.0F);
#endif
    volatile float smallest = std::numeric_limits<float>::min();
    CHECK(smallest / 4 > 0);  // the caller's floating-point mode is unchanged
  }
}

}  // namespace
}  // namespace lenslet::test

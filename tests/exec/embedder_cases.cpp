#include "tests/exec/embedder_cases.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"

namespace lenslet::test {
namespace {

PlanOptions on(const std::string& device, std::int64_t batch = 1) {
  PlanOptions options = on_cpu(batch, 2);
  options.device = device;
  return options;
}

// c = a + b, d = a - b, with two inputs of [2].
Graph sum_and_difference() {
  Graph graph;
  graph.name = "sums";
  std::vector<ValueId> inputs;
  for (const char* name : {"a", "b"}) {
    PortInfo port;
    port.name = name;
    port.dims = {2};
    port.dim_names = {""};
    graph.input_ports.push_back(port);
    inputs.push_back(graph.add_value(name));
    graph.inputs.push_back(inputs.back());
  }
  add_output(graph, add_node(graph, "Add", inputs));
  add_output(graph, add_node(graph, "Sub", inputs));
  return graph;
}

}  // namespace

void check_outputs_given_back(const std::string& device) {
  Runner runner(make_model(sum_and_difference()), on(device));
  const std::vector<Tensor> x{Tensor::of<float>(Shape{2}, {3, 5}), Tensor::of<float>(Shape{2}, {1, 2})};
  const auto values = [](const Tensor& t) { return std::vector<float>{t.values<float>()[0], t.values<float>()[1]}; };
  auto outputs = runner.run(x);
  REQUIRE(values(outputs[0]) == std::vector<float>{4, 7});
  REQUIRE(values(outputs[1]) == std::vector<float>{2, 3});
  outputs = runner.run(outputs);
  CHECK(values(outputs[0]) == std::vector<float>{6, 10});
  CHECK(values(outputs[1]) == std::vector<float>{2, 4});
  outputs = runner.run(std::vector<Tensor>{outputs[1], outputs[0]});  // crossed
  CHECK(values(outputs[0]) == std::vector<float>{8, 14});
  CHECK(values(outputs[1]) == std::vector<float>{-4, -6});
  outputs = runner.run(std::vector<Tensor>{outputs[0], outputs[0]});  // twice the same
  CHECK(values(outputs[0]) == std::vector<float>{16, 28});
  CHECK(values(outputs[1]) == std::vector<float>{0, 0});
}

void check_outputs_belong_to_the_runner(const std::string& device) {
  const Model model = make_model(ports_net());
  Runner runner(model, on(device, 2)), other(model, on(device, 2));
  const Tensor x = random_tensor({2, 2, 3, 5}, 1);
  std::vector<Tensor> expected;
  for (const Tensor& output : other.run(x)) expected.push_back(output.clone());
  for (int round = 0; round < 3; ++round) {
    const auto outputs = runner.run(x);
    REQUIRE(outputs.size() == expected.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      CAPTURE(i);
      CHECK(equal(outputs[i], expected[i]));
    }
    for (Tensor output : outputs) std::memset(output.data(), 0xab, output.bytes());
  }
  const auto untouched = other.run(x);
  for (std::size_t i = 0; i < untouched.size(); ++i) CHECK(equal(untouched[i], expected[i]));
}

void check_observers_that_reach_for_their_runner(const std::string& device) {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({1, 3, 17, 19}, 1);
  auto runner = std::make_unique<Runner>(model, on(device));
  const Tensor expected = runner->run(x)[0].clone();

  std::vector<ErrorKind> kinds;
  runner->set_observer([&](const LayerEvent& event) {
    kinds.push_back(kind_of([&] { runner->run(x); }));
    kinds.push_back(kind_of([&] { runner->set_observer([](const LayerEvent&) {}); }));
    kinds.push_back(kind_of([&] { runner->run_loaded(); }));
    CHECK(runner->plan().steps.size() > static_cast<std::size_t>(event.step));
  });
  CHECK(equal(runner->run(x)[0], expected));
  CHECK(kinds.size() == 3 * runner->plan().steps.size());
  for (const ErrorKind kind : kinds) CHECK(kind == ErrorKind::invalid_argument);

  // An exception from it ends the run only.
  struct Stop {};
  runner->set_observer([](const LayerEvent&) { throw Stop(); });
  CHECK_THROWS_AS(runner->run(x), Stop);
  runner->set_observer({});
  CHECK(equal(runner->run(x)[0], expected));

  // It may destroy its Runner: the objects it owns stay until the run has ended.
  const auto big = std::make_shared<std::vector<int>>(1000, 7);
  int steps = 0;
  runner->set_observer([&, big](const LayerEvent& event) {
    runner.reset();
    steps += (*big)[static_cast<std::size_t>(event.step)] / 7;
    CHECK(event.info->name.size() < 1000);
    CHECK(std::isfinite(event.outputs[0].values<float>()[0]));
  });
  CHECK(big.use_count() == 2);
  Runner& dying = *runner;
  CHECK(kind_of([&] { dying.run(x); }) == ErrorKind::invalid_argument);
  CHECK(steps > 1);
  CHECK(big.use_count() == 1);
}

}  // namespace lenslet::test

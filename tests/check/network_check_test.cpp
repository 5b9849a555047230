#include "check/network_check.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/onnx_writer.h"

namespace lenslet::check {
namespace {

using test::bytes_of;
using test::node;
using test::port;
using test::raw_tensor;

std::vector<float> drawn(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.3F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Conv, Relu, Conv, and the ArgMax of the result.
Model small_network() {
  test::ModelText text;
  text.nodes = {node("Conv", {"x", "w"}, {"c"}, "first"), node("Relu", {"c"}, {"r"}, "relu"),
                node("Conv", {"r", "v"}, {"y"}, "second"), node("ArgMax", {"y"}, {"most"}, "most", [](auto& writer) {
                  test::attribute(writer, "axis", 2, [](auto& value) { value.add_int64(3, 1); });
                })};
  text.inputs = {port("x", test::f32, {1, 3, 24, 20})};
  text.outputs = {port("y", test::f32, {1, 4, 20, 16}), port("most", test::i64, {1, 1, 20, 16})};
  text.initializers = {raw_tensor("w", test::f32, {8, 3, 3, 3}, drawn(216, 1)),
                       raw_tensor("v", test::f32, {4, 8, 3, 3}, drawn(288, 2))};
  return Model::load_bytes(bytes_of(text.bytes()));
}

PlanOptions on_cpu() {
  PlanOptions options;
  options.device = "cpu";
  return options;
}

struct Run {
  Model model = small_network();
  Tensor x = Tensor(DType::f32, {1, 3, 24, 20});
  NetworkRun made;

  Run() {
    const std::vector<float> values = drawn(static_cast<std::size_t>(x.elems()), 3);
    std::copy(values.begin(), values.end(), x.values<float>().begin());
    Runner runner(model, on_cpu());
    for (const Tensor& output : runner.run(x)) made.outputs.push_back(output.clone());
    made.plan = runner.plan();
  }
  std::vector<LayerCheck> check(const NetworkRun& run) const {
    return NetworkReference(model, on_cpu(), {&x, 1}, {&made, 1}).check(run);
  }
};

}  // namespace

TEST_CASE("network_check/a_right_run") {
  const Run run;
  const std::vector<LayerCheck> checks = run.check(run.made);
  REQUIRE(checks.size() == 2);
  for (const LayerCheck& check : checks) {
    CHECK(check.skipped.empty());
    CHECK(check.passed());
  }
  CHECK(checks[0].name == "y");
  CHECK(checks[0].error > 0);
  CHECK(checks[0].tolerance < 1e-3);
  CHECK(checks[1].error == 0);
}

// A pass replaced the network by another one: every step is correct by itself.
TEST_CASE("network_check/outputs_of_another_network") {
  const Run run;
  const auto falsified = [&](const std::function<void(std::span<float>)>& change) {
    NetworkRun other = run.made;
    other.outputs[0] = run.made.outputs[0].clone();
    change(other.outputs[0].values<float>());
    return run.check(other).at(0);
  };
  const LayerCheck turned = falsified([](std::span<float> y) { std::reverse(y.begin(), y.end()); });
  CHECK_FALSE(turned.passed());
  CHECK(turned.error > 100 * turned.tolerance);
  CHECK_FALSE(falsified([](std::span<float> y) { std::swap(y[40], y[41]); }).passed());
  CHECK_FALSE(falsified([](std::span<float> y) { y[77] += 2e-3F; }).passed());
  CHECK_FALSE(falsified([](std::span<float> y) { y[5] = std::numeric_limits<float>::quiet_NaN(); }).passed());
  NetworkRun other = run.made;
  other.outputs[1] = run.made.outputs[1].clone();
  other.outputs[1].values<std::int64_t>()[3] ^= 1;
  CHECK(run.check(other).at(0).passed());
  CHECK_FALSE(run.check(other).at(1).passed());
  other.outputs[1] = Tensor(DType::i64, {1, 1, 16, 20});
  CHECK_FALSE(run.check(other).at(1).passed());
}

// A convolution in 8 bits rounds its bias to units of its sums: 0.2 to 0, of 0.5. That is 0.05 of a step of y, which
// moves 7.55 to 7.5, whose code is another one. A code that nothing moves over the middle may not differ.
TEST_CASE("network_check/codes_may_differ_by_what_the_steps_round") {
  test::ModelText text;
  text.nodes = {node("DequantizeLinear", {"x", "one"}, {"a"}, "a"), node("DequantizeLinear", {"w", "half"}, {"k"}, "k"),
                node("Conv", {"a", "k", "bias"}, {"c"}, "conv"), node("QuantizeLinear", {"c", "four"}, {"y"}, "q")};
  text.inputs = {port("x", test::u8, {1, 1, 8, 8})};
  text.outputs = {port("y", test::u8, {1, 1, 8, 8})};
  text.initializers = {raw_tensor("one", test::f32, {}, std::vector<float>{1}),
                       raw_tensor("half", test::f32, {}, std::vector<float>{0.5}),
                       raw_tensor("four", test::f32, {}, std::vector<float>{4}),
                       raw_tensor("w", test::i8, {1, 1, 1, 1}, std::vector<std::int8_t>{1}),
                       raw_tensor("bias", test::f32, {1}, std::vector<float>{0.2F})};
  const Model model = Model::load_bytes(bytes_of(text.bytes()));
  for (const int top : {60, 68}) {  // 60 * 0.5 / 4 = 7.5 becomes 8, as 7.55; 68 * 0.5 / 4 = 8.5 too, not 9
    Tensor x(DType::u8, {1, 1, 8, 8});
    for (std::size_t i = 0; i < 64; ++i) x.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 4 * 8);
    x.values<std::uint8_t>()[63] = static_cast<std::uint8_t>(top);
    Runner runner(model, on_cpu());
    NetworkRun made;
    made.outputs.push_back(runner.run(x)[0].clone());
    made.plan = runner.plan();
    const NetworkReference reference(model, on_cpu(), {&x, 1}, {&made, 1});
    const LayerCheck check = reference.check(made).at(0);
    CHECK(check.passed());
    CHECK(check.error == (top == 60 ? 0 : 1));
    made.outputs[0].values<std::uint8_t>()[0] += 1;
    CHECK_FALSE(reference.check(made).at(0).passed());
  }
}

}  // namespace lenslet::check

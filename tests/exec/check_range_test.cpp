// PlanOptions::calibration: finds values beyond float16's range, in float32 on the CPU.

#include "runtime/exec/check_range.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"

namespace lenslet::test {
namespace {

Tensor filled(Shape shape, float value) {
  Tensor tensor(DType::f32, shape);
  for (float& element : tensor.values<float>()) element = value;
  return tensor;
}

/// y = Relu(x * 3000 / 3000): only the value in between is large.
struct ScaledNet {
  Graph graph;
  std::string scaled;  ///< the name of x * 3000

  ScaledNet() {
    graph.name = "scaled";
    const ValueId x = add_port(graph, "x", DType::f32, {-1, 2, 3, 5});
    const ValueId by = graph.add_constant("by", filled({1}, 3000.0F));
    const ValueId large = add_node(graph, "Mul", {x, by});
    scaled = graph.value(large).name;
    add_output(graph, add_node(graph, "Relu", {add_node(graph, "Div", {large, by})}));
  }
};

PlanOptions calibrated(Tensor x) {
  PlanOptions options = on_cpu(1, 1);
  options.calibration = {std::move(x)};
  return options;
}

bool any(std::string_view) { return true; }

TEST_CASE("exec/check_range/finds_what_float16_does_not_hold") {
  const ScaledNet net;
  const Model model = make_model(net.graph);
  Tensor x = random_tensor({1, 2, 3, 5}, 1);
  CHECK(find_beyond_f16(model, calibrated(x.clone()), any).empty());
  // The largest number of float16, and the first beyond.
  x.values<float>()[7] = -21.834F;
  CHECK(find_beyond_f16(model, calibrated(x.clone()), any).empty());
  x.values<float>()[7] = -21.84F;
  const std::vector<BeyondRange> found = find_beyond_f16(model, calibrated(x.clone()), any);
  REQUIRE(found.size() == 1);
  CHECK(found[0].value == net.scaled);
  CHECK(found[0].step.ends_with("(Mul)"));
  CHECK(found[0].largest == doctest::Approx(65520));
  CHECK(
      find_beyond_f16(model, calibrated(x.clone()), [&](std::string_view name) { return name != net.scaled; }).empty());
}

TEST_CASE("exec/check_range/inputs_and_infinities") {
  const Model model = make_model(ScaledNet().graph);
  Tensor x = random_tensor({2, 2, 3, 5}, 2);
  x.values<float>()[0] = 1e6F;
  // x, x * 3000, and its successor.
  const std::vector<BeyondRange> found = find_beyond_f16(model, calibrated(x.clone()), any);
  REQUIRE(found.size() >= 3);
  CHECK(found[0].value == "x");
  CHECK(found[0].step.empty());
  CHECK(found[0].largest == 1e6);
  x.values<float>()[0] = 65504;
  const auto is_x = [](std::string_view name) { return name == "x"; };
  CHECK(find_beyond_f16(model, calibrated(x.clone()), is_x).empty());
  x.values<float>()[0] = std::nextafter(65504.0F, 1e6F);
  CHECK(find_beyond_f16(model, calibrated(x.clone()), is_x).size() == 1);
  // A value that is already infinite is not reported.
  x.values<float>()[0] = std::numeric_limits<float>::infinity();
  x.values<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK(find_beyond_f16(model, calibrated(x.clone()), any).empty());
}

TEST_CASE("exec/check_range/a_plan_that_stores_it_in_float16_is_refused") {
  const ScaledNet net;
  const Model model = make_model(net.graph);
  const PlanOptions options = calibrated(filled({1, 2, 3, 5}, 100.0F));
  Plan plan;
  plan.graph = net.graph;
  CHECK_NOTHROW(check_calibration(model, options, plan));  // the plan stores nothing in float16
  for (Value& value : plan.graph.values)
    if (value.name == net.scaled) value.dtype = DType::f16;
  const Error refused = error_of([&] { check_calibration(model, options, plan); });
  CHECK(refused.kind() == ErrorKind::unsupported);
  const std::string message = refused.what();
  CAPTURE(message);
  CHECK(message.find("(Mul) reaches 3e+05") != std::string::npos);
  CHECK(message.find("bf16") != std::string::npos);
  CHECK_NOTHROW(check_calibration(model, calibrated(filled({1, 2, 3, 5}, 2.0F)), plan));
  // A value's Cast counts as the value.
  for (Value& value : plan.graph.values)
    if (value.name == net.scaled) value.name += ":" + std::string(to_string(DType::f16));
  CHECK(error_of([&] { check_calibration(model, options, plan); }).kind() == ErrorKind::unsupported);
}

TEST_CASE("exec/check_range/inputs_that_do_not_fit_are_refused") {
  const Model model = make_model(ScaledNet().graph);
  PlanOptions options = calibrated(random_tensor({1, 2, 3, 5}, 3));
  options.calibration.push_back(random_tensor({1}, 4));
  CHECK(error_of([&] { find_beyond_f16(model, options, any); }).kind() == ErrorKind::invalid_argument);
  options.calibration = {random_tensor({1, 7, 3, 5}, 5)};
  CHECK(error_of([&] { find_beyond_f16(model, options, any); }).kind() == ErrorKind::invalid_argument);
}

TEST_CASE("exec/check_range/in_float32_nothing_is_checked") {
  const Model model = make_model(ScaledNet().graph);
  Runner runner(model, calibrated(filled({1, 2, 3, 5}, 1e6F)));
  CHECK(runner.run(filled({1, 2, 3, 5}, 4.0F))[0].values<float>()[0] == 4.0F);
}

}  // namespace
}  // namespace lenslet::test

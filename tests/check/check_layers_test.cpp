// check_layers: a whole network layer by layer, through the public header only.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/check.h"
#include "lenslet/error.h"
#include "oracle/oracle.h"
#include "tests/models/onnx_writer.h"
#include "tests/usable_device.h"

using namespace lenslet;

namespace {

using test::node;
using test::port;
using test::raw_tensor;

std::vector<float> drawn(const Shape& shape, std::uint64_t seed) {
  const Tensor tensor = random_tensor(DType::f32, shape, seed);
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

/// A network with layers of each kind: dense and depthwise convolutions, a pool, a product, copies and comparisons.
Model network() {
  test::ModelText text;
  const auto ints = [](const char* name, std::vector<std::int64_t> values) {
    return [=](auto& writer) {
      test::attribute(writer, name, 7, [&](auto& value) {
        for (const std::int64_t one : values) value.add_int64(8, one);
      });
    };
  };
  const auto depthwise = [&](auto& writer) {
    test::attribute(writer, "group", 2, [](auto& value) { value.add_int64(3, 8); });
  };
  text.nodes = {node("Conv", {"x", "w"}, {"c"}, "dense", ints("pads", {1, 1, 1, 1})),
                node("Relu", {"c"}, {"r"}, "relu"),
                node("Conv", {"r", "v"}, {"d"}, "depthwise", depthwise),
                node("MaxPool", {"d"}, {"p"}, "pool", ints("kernel_shape", {2, 2})),
                node("Sigmoid", {"p"}, {"s"}, "sigmoid"),
                node("Flatten", {"s"}, {"f"}, "flat"),
                node("Gemm", {"f", "g"}, {"y"}, "gemm"),
                node("Softmax", {"y"}, {"z"}, "softmax"),
                node("ArgMax", {"z"}, {"most"}, "most", [](auto& writer) {
                  test::attribute(writer, "axis", 2, [](auto& value) { value.add_int64(3, 1); });
                })};
  text.inputs = {port("x", test::f32, {1, 3, 14, 12})};
  text.outputs = {port("z", test::f32, {1, 10}), port("most", test::i64, {1, 1})};
  text.initializers = {raw_tensor("w", test::f32, {8, 3, 3, 3}, drawn({8, 3, 3, 3}, 1)),
                       raw_tensor("v", test::f32, {8, 1, 3, 3}, drawn({8, 1, 3, 3}, 2)),
                       raw_tensor("g", test::f32, {8 * 11 * 9, 10}, drawn({8 * 11 * 9, 10}, 3))};
  return Model::load_bytes(test::bytes_of(text.bytes()));
}

/// y = x * 1e30.
Model large_factor() {
  test::ModelText text;
  text.nodes = {node("Mul", {"x", "w"}, {"y"}, "times")};
  text.inputs = {port("x", test::f32, {1, 64})};
  text.outputs = {port("y", test::f32, {1, 64})};
  text.initializers = {raw_tensor("w", test::f32, {1, 64}, std::vector<float>(64, 1e30F))};
  return Model::load_bytes(test::bytes_of(text.bytes()));
}

}  // namespace

namespace {

void check_every_layer(const std::string& device) {
  const std::vector<LayerCheck> rows = check_layers(network(), {.device = device, .seconds = 1e-3});
  std::vector<std::string> ops, outputs;
  for (const LayerCheck& row : rows) {
    CAPTURE(row.str());
    CHECK(row.judged());
    CHECK(row.passed());
    if (row.kind == LayerCheck::Kind::layer) CHECK(row.runs >= 3);
    (row.kind == LayerCheck::Kind::output ? outputs : ops)
        .push_back(row.kind == LayerCheck::Kind::output ? row.name : row.op);
  }
  CHECK(outputs == std::vector<std::string>{"z", "most"});
  for (const char* op : {"Conv", "MaxPool", "Sigmoid", "Gemm", "Softmax", "ArgMax"})
    CHECK(std::ranges::count(ops, op) == (op == std::string("Conv") ? 2 : 1));
}

void check_each_algorithm(const std::string& device) {
  CheckOptions options{.device = device, .algorithm = "all"};
  options.outputs = false;
  const std::vector<LayerCheck> rows = check_layers(network(), options);
  const std::vector<std::string> names = conv_algorithm_names(device);
  for (const std::string layer : {"dense", "depthwise"}) {
    std::vector<std::string> seen;
    for (const LayerCheck& row : rows)
      if (row.name == layer) {
        CAPTURE(row.str());
        CHECK(row.passed());
        CHECK((row.kind == LayerCheck::Kind::refusal) == !row.refusal.empty());
        seen.push_back(row.algorithm);
      }
    for (const std::string& name : seen) CHECK(std::ranges::count(seen, name) == 1);
    CHECK(seen.size() >= 8);
    std::erase_if(seen, [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); });
    CHECK(seen.empty());
  }
  CHECK(std::ranges::count(rows, "gemm", &LayerCheck::name) == 1);
  CHECK(std::ranges::count(rows, LayerCheck::Kind::output, &LayerCheck::kind) == 0);
}

}  // namespace

TEST_CASE("check_layers/progress") {
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  check_layers(network(), {.device = "cpu",
                           .progress = [&](std::size_t done, std::size_t total) { seen.emplace_back(done, total); }});
  REQUIRE(!seen.empty());
  CHECK(seen.front().first == 0);
  CHECK(std::ranges::count_if(seen, [](const auto& each) { return each.first == 0; }) == 2);  // the run, the reference
  CHECK(std::ranges::count_if(seen, [](const auto& each) { return each.first == each.second; }) == 2);
  CHECK(std::ranges::all_of(seen, [](const auto& each) { return each.first <= each.second; }));
}

TEST_CASE("check_layers/every_layer_and_both_outputs") { check_every_layer("cpu"); }

TEST_CASE("check_layers/each_algorithm_in_turn") { check_each_algorithm("cpu"); }

TEST_CASE("check_layers/on_a_cuda_device") {
  if (!test::device_is_here("cuda")) return;
  check_every_layer("cuda");
  check_each_algorithm("cuda");
}

TEST_CASE("check_layers/own_inputs_and_what_makes_no_sense") {
  const Model model = network();
  const Tensor x = random_tensor(DType::f32, {1, 3, 14, 12}, 9);
  CheckOptions options{.device = "cpu", .inputs = {x}};
  options.outputs = false;
  const std::vector<LayerCheck> single = check_layers(model, options);
  options.inputs = {x.to_dtype(DType::f64)};
  const std::vector<LayerCheck> twice = check_layers(model, options);
  REQUIRE(single.size() == twice.size());
  for (std::size_t i = 0; i < single.size(); ++i) CHECK(single[i].error == twice[i].error);
  options.inputs.clear();
  const std::vector<LayerCheck> others = check_layers(model, options);
  CHECK(std::ranges::any_of(single, [&](const LayerCheck& row) {
    const auto other = std::ranges::find(others, row.name, &LayerCheck::name);
    return other != others.end() && other->error != row.error;
  }));
  const auto refused = [&](const CheckOptions& asked, ErrorKind kind, const std::string& part) {
    try {
      check_layers(model, asked);
      FAIL("nothing is refused: " << part);
    } catch (const Error& error) {
      CAPTURE(std::string(error.what()));
      CHECK(error.kind() == kind);
      CHECK(std::string(error.what()).find(part) != std::string::npos);
    }
  };
  refused({.device = "cpu", .inputs = {x, x}}, ErrorKind::invalid_argument, "2 inputs are given, the model has 1");
  refused({.device = "cpu", .inputs = {random_tensor(DType::f32, {1, 4, 14, 12})}}, ErrorKind::invalid_argument, "x");
  refused({.device = "cpu", .inputs = {random_tensor(DType::i32, {1, 3, 14, 12})}}, ErrorKind::invalid_argument, "x");
  refused({.device = "tpu"}, ErrorKind::invalid_argument, "'tpu'");
  refused({.device = "cpu", .precision = "fp17"}, ErrorKind::invalid_argument, "fp17");
  refused({.device = "cpu", .algorithm = "im3col"}, ErrorKind::invalid_argument, "im3col");
}

// The kernel flushes denormal numbers to zero, the reference does not.
TEST_CASE("check_layers/a_run_that_computes_wrongly_is_found") {
  Tensor x(DType::f32, {1, 64});
  for (std::size_t i = 0; i < 64; ++i) x.values<float>()[i] = static_cast<float>(i + 1) * 1e-40F;
  CheckOptions options{.device = "cpu", .inputs = {x}};
  const auto failed = [](const std::vector<LayerCheck>& rows) {
    return std::ranges::count_if(rows, [](const LayerCheck& row) { return !row.passed(); });
  };
  CHECK(failed(check_layers(large_factor(), options)) == 0);
  options.plan.flush_denormals = true;
  const std::vector<LayerCheck> rows = check_layers(large_factor(), options);
  REQUIRE(rows.size() == 2);
  CHECK(failed(rows) == 2);
  CHECK(rows[0].name == "times");
  CHECK(rows[0].error > 0.99);
  CHECK(rows[0].got == 0);
  CHECK(rows[0].str().find("EXCEEDED, worst at element") != std::string::npos);
}

// One element of each layer's result exceeds the kernel's tolerance slightly.
TEST_CASE("check_layers/a_fault_planted_behind_each_kernel") {
  const Model model = network();
  PlanOptions plan;
  plan.device = "cpu";
  plan.keep_all_values = true;
  Runner runner(model, plan);
  std::size_t planted = 0;
  runner.set_observer([&](const LayerEvent& event) {
    CAPTURE(event.info->op);
    REQUIRE(check_step(event).passed());
    std::vector<oracle::Array> inputs;
    for (const Tensor& input : event.inputs) inputs.push_back(oracle::from_tensor(input));
    const auto exact = oracle::run(event.info->op, event.info->attributes, inputs);
    REQUIRE(exact);
    const std::vector<double>& values = exact->at(0).values;
    for (const std::size_t at : {std::size_t{0}, values.size() / 3, values.size() - 1}) {
      const auto with = [&](double value) {
        oracle::Array off = exact->at(0);
        off.values[at] = value;
        const Tensor outputs[] = {oracle::to_tensor(off)};
        LayerEvent changed = event;
        changed.outputs = outputs;
        return check_step(changed);
      };
      const double tolerance = std::max(event.info->tolerance, 1e-7), scale = oracle::scale_at(exact->at(0), at);
      const LayerCheck wrong = with(values[at] + (event.outputs[0].dtype() == DType::f32 ? 3 * tolerance * scale : 1));
      CHECK_FALSE(wrong.passed());
      CHECK(wrong.worst_element == at);
      CHECK(wrong.str().find("EXCEEDED") != std::string::npos);
      ++planted;
      if (event.outputs[0].dtype() != DType::f32) continue;
      CHECK_FALSE(with(std::numeric_limits<double>::quiet_NaN()).passed());
      CHECK_FALSE(with(std::numeric_limits<double>::infinity()).passed());
    }
    const Tensor outputs[] = {Tensor(event.outputs[0].dtype(), {3})};
    LayerEvent changed = event;
    changed.outputs = outputs;
    CHECK_FALSE(check_step(changed).passed());
  });
  runner.run(random_tensor(DType::f32, {1, 3, 14, 12}, 4));
  CHECK(planted >= 3 * 7);
}

// What `lenslet layers` and `lenslet report` say to do: facts in, sentence out. And layers that a run plans.

#include "tools/verbs/advice.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"

namespace lenslet::tool {
namespace {

StepInfo step(const std::string& op, const std::string& algorithm = {}, const std::string& reason = {}) {
  StepInfo made;
  made.name = op + algorithm;
  made.op = op;
  made.algorithm = algorithm;
  made.reason = reason;
  made.estimated_us = 50;
  made.bytes = 1000;
  return made;
}

LayerTime timed(StepInfo of, double median = 100, double p10 = 100) {
  return {.step = std::move(of), .us = {.median = median, .p10 = p10, .p90 = median, .least = p10, .count = 9}};
}

Floor floor_of(double us, bool bytes) {
  return {bytes ? 0 : us, bytes ? us : 0, Peak{.flops_per_us = 1, .bytes_per_us = 1, .how = {}}};
}

/// What is said of `layer` among nine others that take twice their estimates.
std::string said(LayerTime layer, const RunFacts& run) {
  std::vector<LayerTime> layers(9, timed(step("Other")));
  layers.push_back(std::move(layer));
  advise(layers, run);
  for (std::size_t i = 0; i < 9; ++i) CHECK(layers[i].advice.empty());
  return layers.back().advice;
}

TEST_CASE("tools/advice/sentences") {
  const RunFacts plain{}, narrow{.bf16_products = true}, bf16{.float32 = false, .bf16_products = true},
      gpu{.on_cpu = false}, flushing{.flushes_denormals = true}, eight{.batch = 8};
  const auto with = [](LayerTime layer, const auto& change) {
    change(layer);
    return layer;
  };
  const LayerTime denormals = with(timed(step("MatMul"), 1000, 1000), [](LayerTime& one) { one.denormals = 0.1; });
  const LayerTime weights = with(timed(step("Gemm"), 300, 300), [](LayerTime& one) {
    one.weight_bytes = 950;
    one.floor = floor_of(100, true);
  });
  LayerTime forced = timed(step("Conv", "direct", "forced"));
  forced.step.candidates = {{.algorithm = "direct", .refusal = {}, .config = {}, .estimated_us = 50},
                            {.algorithm = "im2col", .refusal = {}, .config = {}, .estimated_us = 40}};
  const struct {
    LayerTime layer;
    RunFacts run;
    const char* says;  ///< a part; "": nothing is said
  } rows[] = {
      {denormals, plain, "--flush-denormals"},
      {denormals, flushing, ""},
      {denormals, gpu, ""},
      {with(denormals, [](LayerTime& one) { one.denormals = 0.001; }), plain, ""},
      {with(denormals, [](LayerTime& one) { one.us.p10 = 120; }), plain, ""},  // not slower than others
      {forced, narrow, "Forced by --conv-algorithm; without it im2col is likely faster"},
      {with(forced, [](LayerTime& one) { one.step.candidates[1].refusal = "too small"; }), narrow, ""},
      {with(forced, [](LayerTime& one) { one.step.candidates[1].neighbours_us = 20; }), narrow, ""},
      {timed(step("Conv", "im2col")), narrow, "--precision bf16, or int8 by `lenslet quantize`"},
      {timed(step("Conv", "im2col")), plain, "int8 is faster: `lenslet quantize`"},
      {timed(step("Conv", "bf16_amx")), bf16, ""},
      {timed(step("Conv", "int8_amx")), narrow, ""},
      {timed(step("Conv", "gemm_cute")), gpu, ""},
      {weights, plain, "a larger --batch"},
      {weights, eight, ""},
      {with(weights, [](LayerTime& one) { one.floor = floor_of(100, false); }), plain, ""},
      {with(weights, [](LayerTime& one) { one.weight_bytes = 500; }), plain, ""},
      {with(weights, [](LayerTime& one) { one.us.median = 90; }), plain, ""},  // a small share
      {timed(step("Transpose")), plain, "without this Transpose"},
      {timed(step("Transpose"), 9, 9), plain, ""},  // below 1%
      {with(timed(step("Conv", "bf16_amx")), [](LayerTime& one) { one.floor = floor_of(90, true); }), bf16,
       "nothing to win"},
      {with(timed(step("Conv", "bf16_amx")), [](LayerTime& one) { one.floor = floor_of(70, true); }), bf16, ""},
  };
  for (const auto& row : rows) {
    const std::string text = said(row.layer, row.run);
    CAPTURE(row.layer.step.name);
    CAPTURE(row.says);
    CAPTURE(text);
    CHECK((*row.says == '\0' ? text.empty() : test::contains(text, row.says)));
  }
}

TEST_CASE("tools/advice/groups") {
  std::vector<LayerRow> rows;
  const auto add = [&](const std::string& name, double median, double p10, const std::string& advice) {
    LayerTime layer = timed(step(name), median, p10);
    layer.advice = advice;
    layer.floor = floor_of(10, true);
    rows.push_back({std::move(layer), {}});
  };
  add("a", 20, 20, "first");
  add("b", 90, 90, "second");
  add("c", 30, 30, "first");
  add("d", 500, 500, "");
  std::vector<Advice> list = advice_on(rows);
  REQUIRE(list.size() == 2);
  CHECK(list[0].text == "second");
  CHECK(list[1].layers == std::vector<std::size_t>{2, 0});  // slowest first
  CHECK(list[1].us == 50);
  CHECK(list[1].lost_us == 30);
  add("e", 400, 10, "");  // the machine was busy
  list = advice_on(rows);
  REQUIRE(list.size() == 3);
  CHECK(list[0].layers.empty());
  CHECK(test::contains(list[0].text, "1.0 ms at their medians, but 0.7 ms at their p10"));
  CHECK(advice_on({}).empty());
}

// The plan lists the steps behind NonZero only after a run. Its output must not be lost, nor written beyond the list.
TEST_CASE("tools/layer_times/steps_that_the_first_run_plans") {
  test::ModelText text;
  text.nodes = {test::node("Relu", {"x"}, {"positive"}, "relu"),
                test::node("NonZero", {"positive"}, {"where"}, "nonzero"),
                test::node("Transpose", {"where"}, {"t"}, "transpose"),
                test::node("GatherND", {"x", "t"}, {"g"}, "gather"), test::node("Add", {"g", "g"}, {"y"}, "add")};
  text.inputs = {test::port("x", test::f32, {8})};
  text.outputs = {test::port("y", test::f32, {-1})};
  const std::string file = text.bytes();
  PlanOptions options;
  options.device = "cpu";
  options.threads = 1;
  Runner runner(Model::load_bytes(test::bytes_of(file)), options);
  Tensor x(DType::f32, {8});
  std::ranges::fill(x.values<float>(), 1.0F);
  std::vector<std::string> names;
  for (const LayerTime& layer : time_layers(runner, std::span(&x, 1), 0, {})) {
    names.push_back(layer.step.name);
    CHECK(layer.us.count == 5);
  }
  CHECK(fmt::format("{}", fmt::join(names, " ")) == "relu nonzero gather add");  // Transpose is an alias
}

}  // namespace
}  // namespace lenslet::tool

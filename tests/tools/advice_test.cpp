// What `lenslet layers` and `lenslet report` say to do: facts in, sentence out. And layers that a run plans.

#include "tools/verbs/advice.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"
#include "tools/verbs/slowness.h"

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
  const RunFacts plain{.run_us = 1e4}, narrow{.bf16_products = true}, bf16{.float32 = false, .bf16_products = true},
      gpu{.on_cpu = false}, flushing{.flushes_denormals = true}, eight{.batch = 8}, two{.threads = 2};
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
      {timed(step("Conv", "im2col")), narrow,
       "`lenslet report MODEL --precision fp32,bf16 -o report.html` compares; or int8: `lenslet quantize MODEL"},
      {timed(step("Conv", "im2col")), plain,
       "other networks took 0.4 to 0.9 of their time, here 4 ms to 9 ms instead of 10 ms: `lenslet quantize MODEL "
       "--photos FOLDER"},
      {with(timed(step("Conv", "depthwise")), [](LayerTime& one) { one.floor = floor_of(50, true); }), narrow,
       "took 0.4 to 0.9 of their time"},
      {timed(step("Conv", "im2col"), 30, 9), plain, ""},                                                // starts
      {with(timed(step("Conv", "im2col")), [](LayerTime& one) { one.threads_at_work = 1; }), two, ""},  // waits
      {timed(step("Conv", "bf16_amx")), bf16, ""},
      {timed(step("Conv", "int8_amx")), narrow, ""},
      {timed(step("Conv", "gemm_cute")), gpu, ""},
      {weights, plain, "`lenslet bench MODEL --batch 1,8`"},
      {weights, eight, ""},
      {with(weights, [](LayerTime& one) { one.floor = floor_of(100, false); }), plain, ""},
      {with(weights, [](LayerTime& one) { one.weight_bytes = 500; }), plain, ""},
      {with(weights, [](LayerTime& one) { one.us.median = 90; }), plain, ""},  // a small share
      {timed(step("Transpose")), plain, "without this Transpose"},
      {timed(step("Transpose"), 9, 9), plain, ""},  // below 1%
      {with(timed(step("Conv", "bf16_amx")), [](LayerTime& one) { one.floor = floor_of(90, true); }), bf16,
       "little to win"},
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
  std::vector<Advice> list = advice_on(rows, {}, {});
  REQUIRE(list.size() == 2);
  CHECK(list[0].text == "second");
  CHECK(list[1].layers == std::vector<std::size_t>{2, 0});  // slowest first
  CHECK(list[1].us == 50);
  CHECK(list[1].lost_us == 30);
  CHECK(advice_on({}, {}, {}).empty());

  Timeline timeline{.lanes = {"thread 1", "thread 2"}, .spans = {}, .run_us = 1000};
  timeline.spans = {{.lane = 0, .step = 0, .begin_us = 0, .end_us = 900}, {.lane = 1, .step = 0, .end_us = 100}};
  list = advice_on(rows, {.model = "net.onnx", .threads = 2}, timeline);
  REQUIRE(list.size() == 3);
  CHECK(list[0].layers.empty());
  CHECK(test::contains(list[0].text, "thread 2 waits 90 % of a run"));
  CHECK(test::contains(list[0].text, "`lenslet bench net.onnx --threads 1,2`"));
  timeline.spans[1].end_us = 600;
  CHECK(advice_on(rows, {.threads = 2}, timeline).size() == 2);
  timeline = {.lanes = {"thread 1", "thread 2"}, .spans = {}, .run_us = 90};
  CHECK(advice_on(rows, {.threads = 2}, timeline).size() == 2);
}

TEST_CASE("tools/slowness/why a layer takes its time") {
  const auto with = [](LayerTime layer, double floor_us, bool bytes) {
    layer.step.flops = 1e6 * floor_us;  // at 1 TFLOP/s
    layer.step.bytes = static_cast<std::size_t>(floor_us * 1e3);
    layer.floor = floor_of(floor_us, bytes);
    if (floor_us > layer.us.median) layer.above = "caches";
    return layer;
  };
  LayerTime one_thread = with(timed(step("Conv")), 40, false);
  one_thread.threads_at_work = 1;
  LayerTime few_terms = with(timed(step("Conv"), 200, 200), 54, false);
  few_terms.step.output_shapes = {Shape{1, 1000000}};
  const auto cached = [](LayerTime layer, double us) {
    layer.in_caches_us = us;
    return layer;
  };
  LayerTime in_band = few_terms;
  in_band.band = "a to b";
  in_band.in_band_us = 120;
  const struct {
    LayerTime layer;
    const char* says;
  } rows[] = {
      {timed(step("Conv")), ""},  // no limits
      {cached(with(timed(step("Conv")), 60, false), 75),
       "100 us = 75 us with its data in the caches + 25 us to fetch them from memory. Of the 75 us, 60 us go to "
       "arithmetic (60 MFLOP at this machine's 1 TFLOP/s), 15 us to overhead in its kernel (packing, loads from the "
       "caches)"},
      {cached(with(timed(step("Conv")), 60, false), 130),
       "100 us, and no less with its data in the caches. Of the 100 us, 60 us go to arithmetic"},
      {cached(with(timed(step("Conv")), 60, false), 50), "+ 50 us to fetch them from memory"},
      {cached(with(timed(step("Conv")), 60, true), 20),
       "moving 60 KB takes 60 us at this machine's 1 GB/s; 40 us more go to waiting for data that are not in the "
       "caches"},
      {cached(with(timed(step("Conv")), 60, true), 75),
       "25 us more go to waiting for data that are not in the caches; 15 us to overhead in its kernel (packing, loads"},
      {cached(few_terms, 150),
       "96 us to overhead in its kernel (packing, loads from the caches); each output sums only 27 products, too few "
       "to hide it"},
      {in_band,
       "each output sums only 27 products, too few to hide it. In a run, computed row by row with its neighbours, it "
       "takes 120 us"},
      {cached(one_thread, 50), "likely go to threads that wait"},
      {cached(with(timed(step("Conv"), 8, 8), 2, false), 5), "likely go to starting it"},
      {with(timed(step("Conv"), 300, 100), 20, false),
       "other work disturbed it: half of its runs took over 300 us, a tenth under 100 us; the limit is 20 us"},
      {with(timed(step("Conv")), 120, true), "faster than the limit counts: caches"},
      {with(timed(step("Conv")), 90, false),
       "near what this machine allows: 90 MFLOP take at least 90 us at this machine's 1 TFLOP/s"},
      {with(timed(step("Conv")), 60, false),
       "mostly arithmetic: 60 MFLOP take at least 60 us at this machine's 1 TFLOP/s; the other 40 us likely go to "
       "caches "
       "that are slower than its estimate, 50 us, counts on"},
      {with(timed(step("Add")), 60, true),
       "mostly memory: 60 KB take at least 60 us at this machine's 1 GB/s; the other 40 us likely go to"},
      {one_thread, "1 TFLOP/s; the other 60 us likely go to threads that wait: only 1.0 of 2 are at work"},
      {with(timed(step("Conv"), 8, 8), 2, false), "the other 6 us likely go to starting it"},
      {with(timed(step("Conv"), 40, 40), 10, false), "the other 30 us likely go to starting and joining 2 threads"},
      {few_terms, "loading and storing; each output sums only 27 products, too few to hide it"},
      {with(timed(step("MatMul"), 100, 100), 30, false),
       "30 MFLOP take at least 30 us at this machine's 1 TFLOP/s; the other 70 us likely go to tiles that "
       "are not full"},
      {with(timed(step("MatMul"), 8000, 8000), 2000, false),
       "likely go to caches that are slower than its estimate, 50 us, counts on"},
  };
  for (const auto& row : rows) {
    const std::string text = time_because(row.layer, 2);
    CAPTURE(row.says);
    CAPTURE(text);
    CHECK((*row.says == '\0' ? text.empty() : test::contains(text, row.says)));
  }
  const LayerTime brief = with(timed(step("Conv"), 40, 40), 10, false);
  CHECK(!test::contains(time_because(brief, 1), "threads"));  // a GPU's
}

TEST_CASE("tools/slowness/threads at work") {
  std::vector<LayerTime> layers{timed(step("a")), timed(step("b")), timed(step("c")), timed(step("d"))};
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].number = static_cast<int>(i) + 1;
  layers[2].band = "c to d";
  Timeline timeline{.lanes = {"thread 1", "thread 2"}, .spans = {}, .run_us = 100};
  timeline.spans = {{.lane = 0, .step = 1, .begin_us = 0, .end_us = 10},
                    {.lane = 0, .step = 2, .begin_us = 10, .end_us = 30},
                    {.lane = 0, .step = 3, .begin_us = 30, .end_us = 90},
                    {.lane = 1, .step = 1, .begin_us = 2, .end_us = 7}};
  count_threads(layers, timeline);
  CHECK(layers[0].threads_at_work == 1.5);
  CHECK(layers[1].threads_at_work == 1);
  CHECK(layers[2].threads_at_work == 0);  // steps of a band run side by side
  CHECK(layers[2].in_band_us == 30);
  CHECK(layers[0].in_band_us == 0);
  CHECK(layers[3].threads_at_work == 0);  // not seen
}

TEST_CASE("tools/slowness/a machine with other work") {
  const auto rows_of = [](double median, double p10) {
    return std::vector<LayerRow>(4, {timed(step("Conv"), median, p10), {}});
  };
  const auto run_of = [](double median, double p10, double p90) {
    return Quantiles{.median = median, .p10 = p10, .p90 = p90, .least = p10, .count = 20};
  };
  std::vector<LayerRow> above = rows_of(1000, 1000);
  for (LayerRow& row : above) {
    row.time.floor = floor_of(1500, false);
    row.time.above = limit_was_low;
  }
  CHECK(disturbance(rows_of(1000, 1000), run_of(4200, 4100, 4500), true).empty());
  CHECK(disturbance(rows_of(1000, 1000), {}, true).empty());
  CHECK(disturbance({}, {}, true).empty());
  CHECK(test::contains(disturbance(rows_of(1000, 500), {}, true),
                       "the layers take 4 ms at their medians, but 2 ms at their best tenth"));
  CHECK(test::contains(disturbance(rows_of(1000, 1000), run_of(9000, 8900, 9100), true),
                       "whole runs took 9 ms, but the layers one by one 4 ms"));
  CHECK(disturbance(rows_of(1000, 1000), run_of(9000, 8900, 9100), false).empty());  // copies from and to a GPU
  CHECK(disturbance(rows_of(10, 10), run_of(90, 80, 120), true).empty());            // what a run takes by itself
  CHECK(test::contains(disturbance(rows_of(1000, 1000), run_of(4200, 4000, 9000), true),
                       "whole runs took from 4 ms to 9 ms"));
  CHECK(test::contains(disturbance(above, {}, true), "faster than the limits"));
  for (LayerRow& row : above) row.time.above = "caches";
  CHECK(disturbance(above, {}, true).empty());
}

TEST_CASE("tools/slowness/the slowest layer") {
  CHECK(slowest({}, false).empty());
  std::vector<LayerRow> rows(3, {timed(step("Conv", "direct"), 1000, 1000), {}});
  rows[1].time = timed(step("Gemm"), 2000, 2000);
  CHECK(slowest(rows, false) ==
        std::vector<std::string>{"Slowest: Gemm (Gemm), 2 ms, 50.0 % of all layers; next Convdirect, 1 ms",
                                 "Most time: Conv by direct, 2 ms in 2 of 3 layers, 50.0 %"});
  rows[1].time.floor = floor_of(500, true);
  rows[1].time.time_because = "memory";
  rows[1].time.advice = "Do.";
  CHECK(slowest(rows, false) ==
        std::vector<std::string>{
            "Slowest: Gemm (Gemm), 2 ms, 50.0 % of all layers; the machine's limit is 500 us; next Convdirect, 1 ms",
            "Why so long: memory", "What to do: Do.", "Most time: Conv by direct, 2 ms in 2 of 3 layers, 50.0 %"});
  CHECK(slowest(rows, true)[2] == "What to do: first measure again. Do.");
  rows[0].time.us.median = 3000;
  CHECK(test::contains(slowest(rows, false)[0], "Convdirect (Conv by direct), 3 ms, 50.0 %"));
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
  for (const LayerTime& layer : time_layers(runner, std::span(&x, 1), 0)) {
    names.push_back(layer.step.name);
    CHECK(layer.us.count == 5);
  }
  CHECK(fmt::format("{}", fmt::join(names, " ")) == "relu nonzero gather add");  // Transpose is an alias
}

}  // namespace
}  // namespace lenslet::tool

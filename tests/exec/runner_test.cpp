// Promises of a Runner: the same bits however it is planned, clear refusals.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "small_net.h"
#include "tests/exec/load_image_cases.h"

namespace lenslet::test {
namespace {

PlanOptions options(std::int64_t batch, int threads) { return on_cpu(batch, threads); }

std::vector<float> bits(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("exec/runner/repeats_bit_for_bit") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 42);
  Runner first(model, options(2, 1));
  const std::vector<float> expected = bits(first.run(x)[0]);
  REQUIRE(expected.size() == 10);
  CHECK(same_bits(bits(first.run(x)[0]), expected));
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    // Equal options give an equal plan and equal bits; the number of threads changes no value.
    Runner runner(model, options(2, threads));
    CHECK(same_bits(bits(runner.run(x)[0]), bits(runner.run(x)[0])));
    Runner again(model, options(2, threads));
    CHECK(same_bits(bits(runner.run(x)[0]), bits(again.run(x)[0])));
  }
}

// Values in bfloat16 between the convolutions, whose results are a few units of it from float32's.
TEST_CASE("exec/threads/bf16_has_the_same_bits_with_any_number") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 42);
  Runner exact(model, options(2, 1));
  const std::vector<float> single = bits(exact.run(x)[0]);
  std::vector<float> expected;
  for (const int threads : {1, 2, 3}) {
    PlanOptions plan = options(2, threads);
    plan.numerics = parse_numerics("bf16");
    plan.conv_algorithm = "bf16_packed";
    Runner runner(model, plan);
    CHECK(to_string(runner.plan().numerics) == "bf16");
    const std::vector<float> got = bits(runner.run(x)[0]);
    CHECK(same_bits(bits(runner.run(x)[0]), got));
    if (expected.empty()) expected = got;
    CHECK(same_bits(got, expected));
  }
  REQUIRE(expected.size() == single.size());
  CHECK_FALSE(same_bits(expected, single));
  for (std::size_t i = 0; i < single.size(); ++i) CHECK(std::abs(expected[i] - single[i]) < 0x1p-5F);
}

TEST_CASE("exec/runner/keeping_all_values_changes_no_bit") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({3, 3, 17, 19}, 7);
  PlanOptions kept = options(3, 1);
  kept.keep_all_values = true;
  Runner reuse(model, options(3, 1)), keep(model, kept);
  CHECK(same_bits(bits(reuse.run(x)[0]), bits(keep.run(x)[0])));
  CHECK(reuse.plan().memory.peak_bytes <= keep.plan().memory.peak_bytes);
}

TEST_CASE("exec/runner/images_of_a_batch_do_not_touch_each_other") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({4, 3, 17, 19}, 11);
  // Bit by bit: no kernel's order of summation depends on an image's position in the batch. The algorithm is forced,
  // since another batch may select another one.
  for (const std::string& name : conv_algorithm_names("cpu")) {
    if (name.starts_with("gather")) continue;                              // SparseConv's: not forced here
    if (name.starts_with("int8_") || name.starts_with("bf16_")) continue;  // of other types
    CAPTURE(name);
    PlanOptions of_four = options(4, 2), of_one = options(1, 2);
    for (PlanOptions* plan : {&of_four, &of_one}) {
      plan->conv_algorithm = name;
      plan->conv_algorithm_where_accepted = true;
    }
    Runner four(model, of_four), one(model, of_one);
    const std::vector<float> together = bits(four.run(x)[0]);
    const std::size_t image = 3 * 17 * 19;
    for (std::size_t n = 0; n < 4; ++n) {
      Tensor single(DType::f32, {1, 3, 17, 19});
      std::memcpy(single.data(), x.values<float>().data() + n * image, image * sizeof(float));
      const std::vector<float> alone = bits(one.run(single)[0]);
      if (name == "depthwise") {  // refuses both convolutions: the rule's choice for each batch
        for (std::size_t k = 0; k < 5; ++k) CHECK(together[n * 5 + k] == doctest::Approx(alone[k]).epsilon(1e-4));
      } else {
        for (std::size_t k = 0; k < 5; ++k) CHECK(together[n * 5 + k] == alone[k]);
      }
    }
  }
}

// The thread that computes an output does not matter, even where a NaN spreads to more outputs than defined (Winograd).
TEST_CASE("exec/threads/a_nan_spoils_the_same_outputs_with_any_number") {
  using Integers = std::vector<std::int64_t>;
  Graph graph;
  graph.name = "nan";
  const ValueId x = add_input(graph, {16, 33, 35});
  const ValueId w = add_weights(graph, "w", {24, 16, 3, 3}, 0.3F, 1);
  add_output(graph, add_node(graph, "Relu", {add_node(graph, "Conv", {x, w}, {{"pads", Integers{1, 1, 1, 1}}})}));
  const Model model = make_model(std::move(graph));
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Tensor image = random_tensor({1, 16, 33, 35}, 5);
    image.values<float>()[7 * 33 * 35 + 16 * 35 + 17] = value;
    for (const std::string& name : conv_algorithm_names("cpu")) {
      if (name.starts_with("gather")) continue;                              // SparseConv's
      if (name.starts_with("int8_") || name.starts_with("bf16_")) continue;  // of other types
      CAPTURE(name);
      std::vector<float> expected;
      for (const int threads : {1, 2, 3}) {
        PlanOptions plan = options(1, threads);
        plan.conv_algorithm = name;
        if (name == "depthwise" || name == "im2col_nchw" || name == "planes") {
          CHECK(error_of([&] { Runner(model, plan); }).kind() == ErrorKind::unsupported);
          break;
        }
        Runner runner(model, plan);
        const std::vector<float> got = bits(runner.run(image)[0]);
        if (expected.empty()) expected = got;
        CHECK(same_bits(got, expected));
      }
      if (!std::isnan(value) || expected.empty()) continue;
      const auto spoiled = std::ranges::count_if(expected, [](float y) { return std::isnan(y); });
      if (name == "winograd_f4" || name == "winograd_f6")
        CHECK(spoiled > 9 * 24);
      else
        CHECK(spoiled == 9 * 24);
    }
  }
}

TEST_CASE("exec/threads/many_runners_share_one_model") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({1, 3, 17, 19}, 3);
  Runner reference(model, options(1, 1));
  const std::vector<float> expected = bits(reference.run(x)[0]);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      // Plans are made concurrently, too: they share the packed weights. Odd ones have workers of their own.
      Runner runner(model, options(1, 1 + t % 2));
      const std::vector<float> mine = bits(runner.run(x)[0]);
      for (int round = 0; round < 20; ++round)
        if (!same_bits(bits(runner.run(x)[0]), mine)) ++wrong;
      if (t % 2 == 0 && !same_bits(mine, expected)) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("exec/runner/observer_sees_every_step_in_order") {
  const Model model = make_model(small_net());
  Runner runner(model, options(1, 1));
  std::vector<std::string> names;
  runner.set_observer([&](const LayerEvent& event) {
    CHECK(event.step == static_cast<int>(names.size()));
    CHECK(event.inputs.size() == event.info->inputs.size());
    CHECK(event.outputs.size() == event.info->outputs.size());
    CHECK(event.ms >= 0);
    names.push_back(event.info->name);
  });
  const Tensor x = random_tensor({1, 3, 17, 19}, 3);
  runner.run(x);
  CHECK(names.size() == runner.plan().steps.size());
  runner.set_observer({});
  runner.run(x);
  CHECK(names.size() == runner.plan().steps.size());
}

TEST_CASE("exec/runner/refuses_inputs_that_were_not_planned") {
  const Model model = make_model(small_net());
  Runner runner(model, options(2, 1));
  const auto kind_of = [&](std::span<const Tensor> inputs) { return error_of([&] { runner.run(inputs); }).kind(); };
  const Tensor good = random_tensor({2, 3, 17, 19}, 1);
  CHECK(kind_of({}) == ErrorKind::invalid_argument);
  CHECK(kind_of(std::vector<Tensor>{good, good}) == ErrorKind::invalid_argument);
  CHECK(kind_of(std::vector<Tensor>{Tensor()}) == ErrorKind::invalid_argument);
  CHECK(kind_of(std::vector<Tensor>{random_tensor({1, 3, 17, 19}, 1)}) == ErrorKind::invalid_argument);
  CHECK(kind_of(std::vector<Tensor>{Tensor(DType::f64, {2, 3, 17, 19})}) == ErrorKind::invalid_argument);
  CHECK(kind_of(std::vector<Tensor>{good.to_format(formats::nhwc)}) == ErrorKind::invalid_argument);
  const std::string message = error_of([&] { runner.run(random_tensor({1, 3, 17, 19}, 1)); }).what();
  CHECK(message.find("'x'") != std::string::npos);
  CHECK(message.find("[2,3,17,19]") != std::string::npos);
  CHECK_NOTHROW(runner.run(good));
}

// [N,H,W,C] -> [N,C,H,W], so that the values arrive in nhwc; then a Split of C with the named outputs as the graph's.
Graph split_net(const std::vector<std::size_t>& wanted, bool omit_others = false) {
  Graph graph;
  graph.name = "split";
  const ValueId x = add_input(graph, {5, 7, 6});
  const ValueId first = add_node(graph, "Transpose", {x}, {{"perm", std::vector<std::int64_t>{0, 3, 1, 2}}});
  Node node;
  node.name = "split";
  node.op = make_op("Split", "", {{"axis", std::int64_t{1}}}, 2, 2);
  node.inputs = {first, graph.add_constant("sizes", Tensor::of<std::int64_t>(Shape{2}, {2, 4}))};
  node.outputs = {graph.add_value("two"), graph.add_value("four")};
  for (const std::size_t i : wanted) add_output(graph, node.outputs[i]);
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (omit_others && std::find(wanted.begin(), wanted.end(), i) == wanted.end()) node.outputs[i] = no_id;
  graph.nodes.push_back(std::move(node));
  return graph;
}

TEST_CASE("exec/runner/outputs_that_nobody_reads") {
  const Tensor x = random_tensor({2, 5, 7, 6}, 5);
  Runner both(make_model(split_net({0, 1})), options(2, 1));
  const auto expected = both.run(x);
  REQUIRE(expected[1].shape() == Shape{2, 4, 5, 7});
  for (const bool omitted : {false, true})
    for (const std::size_t wanted : {0U, 1U}) {
      CAPTURE(omitted);
      CAPTURE(wanted);
      Runner one(make_model(split_net({wanted}, omitted)), options(2, 1));
      const auto outputs = one.run(x);
      REQUIRE(outputs.size() == 1);
      REQUIRE(outputs[0].dtype() == expected[wanted].dtype());
      REQUIRE(outputs[0].shape() == expected[wanted].shape());
      CHECK(std::memcmp(outputs[0].data(), expected[wanted].data(), outputs[0].bytes()) == 0);
    }
}

TEST_CASE("exec/runner/outputs_that_no_kernel_makes") {
  Runner runner(make_model(ports_net()), options(2, 1));
  for (const std::uint64_t seed : {1U, 2U}) {
    const Tensor given = random_tensor({2, 2, 3, 5}, seed);
    const auto outputs = runner.run(given);
    REQUIRE(outputs.size() == 4);
    CHECK(same_bits(bits(outputs[0]), bits(given)));
    CHECK(outputs[1].shape() == Shape{2, 30});
    CHECK(same_bits(bits(outputs[1]), bits(given)));
    CHECK(bits(outputs[2]) == std::vector<float>{1, 2, 3});
    for (std::size_t i = 0; i < 60; ++i)
      CHECK(outputs[3].values<float>()[i] == std::max(0.0F, given.values<float>()[i]));
  }
  Runner renames(make_model(renaming_net()), options(4, 1));
  CHECK(renames.run(Tensor(DType::f32, {4, 0, 3}))[0].shape() == Shape{4, 0});
}

TEST_CASE("exec/runner/loaded_photos") { check_loaded_photos("cpu"); }
TEST_CASE("exec/runner/loaded_photos_of_other_types") { check_loaded_types("cpu"); }
TEST_CASE("exec/runner/partly_loaded_batches") { check_partly_loaded_batches("cpu"); }
TEST_CASE("exec/runner/refused_loads") { check_refused_loads("cpu"); }

TEST_CASE("exec/runner/the_cpu_has_no_device_time") {
  Runner runner(make_model(small_net()), options(1, 1));
  CHECK(runner.time_device(3).empty());
  CHECK(error_of([&] { runner.time_device(0); }).kind() == ErrorKind::invalid_argument);
}

TEST_CASE("exec/plan/refuses_options_that_make_no_sense") {
  const Model model = make_model(small_net());
  const auto kind_with = [&](auto&& change) {
    PlanOptions plan = on_cpu();
    change(plan);
    return error_of([&] { (void)model.plan(plan); }).kind();
  };
  CHECK(kind_with([](PlanOptions& o) { o.device = "tpu"; }) == ErrorKind::invalid_argument);
  CHECK(kind_with([](PlanOptions& o) { o.device = "cuda:99999"; }) == ErrorKind::device);
  CHECK(error_of([] { (void)parse_numerics("fp8"); }).kind() == ErrorKind::invalid_argument);
  for (const char* const precision : {"tf32", "fp16"})
    CHECK(kind_with([&](PlanOptions& o) { o.numerics = parse_numerics(precision); }) == ErrorKind::unsupported);
  CHECK(kind_with([](PlanOptions& o) { o.numerics = Numerics{.storage = DType::f64}; }) == ErrorKind::unsupported);
  CHECK(kind_with([](PlanOptions& o) { o.numerics = Numerics{.storage = DType::f16}; }) == ErrorKind::unsupported);
  CHECK(kind_with([](PlanOptions& o) { o.numerics = Numerics{.accumulate = DType::f16}; }) == ErrorKind::unsupported);
  CHECK(kind_with([](PlanOptions& o) { o.threads = -1; }) == ErrorKind::invalid_argument);
  CHECK(kind_with([](PlanOptions& o) { o.threads = 100000; }) == ErrorKind::invalid_argument);
  CHECK(kind_with([](PlanOptions& o) { o.batch = 0; }) == ErrorKind::invalid_argument);
  CHECK(kind_with([](PlanOptions& o) { o.disabled_passes = {"fold_everything"}; }) == ErrorKind::invalid_argument);
  CHECK(kind_with([](PlanOptions& o) { o.disabled_passes = {"assign_formats"}; }) == ErrorKind::invalid_argument);
  CHECK(kind_with([](PlanOptions& o) { o.conv_algorithm = "magic"; }) == ErrorKind::invalid_argument);
  CHECK(kind_with([](PlanOptions& o) { o.input_shapes = {{"y", Shape{1}}}; }) == ErrorKind::invalid_argument);
  CHECK(error_of([&] { (void)model.dump("after_lunch"); }).kind() == ErrorKind::invalid_argument);
}

TEST_CASE("exec/plan/every_algorithm_and_every_pass_left_out_agrees") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({2, 3, 17, 19}, 21);
  Runner reference(model, options(2, 1));
  const std::vector<float> expected = bits(reference.run(x)[0]);
  const auto agrees = [&](const PlanOptions& plan) {
    Runner runner(model, plan);
    const std::vector<float> got = bits(runner.run(x)[0]);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-4));
  };
  for (const std::string& algorithm : conv_algorithm_names("cpu")) {
    CAPTURE(algorithm);
    PlanOptions plan = options(2, 2);
    plan.conv_algorithm = algorithm;
    plan.conv_algorithm_where_accepted = true;
    agrees(plan);
  }
  for (const std::string& pass : pass_names()) {
    CAPTURE(pass);
    PlanOptions plan = options(2, 1);
    plan.disabled_passes = {pass};
    try {
      (void)model.plan(plan);
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find("cannot be left out") != std::string::npos);
      continue;
    }
    agrees(plan);
  }
}

TEST_CASE("exec/plan/says_which_branches_are_one_convolution") {
  Graph graph;
  const ValueId x = add_input(graph, {4, 9, 9});
  const ValueId dense = add_node(graph, "Conv", {x, add_weights(graph, "w3", {4, 4, 3, 3}, 0.3F, 1)},
                                 {{"pads", std::vector<std::int64_t>(4, 1)}});
  const ValueId point = add_node(graph, "Conv", {x, add_weights(graph, "w1", {4, 4, 1, 1}, 0.3F, 2)});
  add_output(graph, add_node(graph, "Sum", {dense, point, x}));
  const std::vector<StepInfo> steps = make_model(graph).plan(on_cpu()).steps;
  const auto conv = std::ranges::find(steps, "Conv", &StepInfo::op);
  REQUIRE(conv != steps.end());
  CHECK(conv->name == "Conv_0");
  CHECK(conv->reason.ends_with("; the sum of 3 branches: Conv_0, Conv_1, x"));
}

TEST_CASE("exec/runner/algorithms_of_single_layers") {
  const Model model = make_model(small_net());
  const auto algorithms_of = [&](const PlanOptions& plan) {
    std::map<std::string, StepInfo> convolutions;
    for (const StepInfo& step : model.plan(plan).steps)
      if (step.op == "Conv") convolutions[step.name] = step;
    return convolutions;
  };
  const auto by_rule = algorithms_of(options(2, 2));
  REQUIRE(by_rule.size() == 2);
  const std::string first = by_rule.begin()->first, second = by_rule.rbegin()->first;

  PlanOptions plan = options(2, 2);
  plan.layer_algorithms = {{first, "direct"}};
  auto chosen = algorithms_of(plan);
  CHECK(chosen[first].algorithm == "direct");
  CHECK(chosen[first].reason == "forced");
  CHECK(chosen[second].algorithm == by_rule.at(second).algorithm);
  CHECK(chosen[second].reason == by_rule.at(second).reason);

  // A layer's own algorithm overrides the general one; "" is the rule.
  plan.conv_algorithm = "im2col";
  plan.layer_algorithms = {{first, "direct"}, {second, ""}};
  chosen = algorithms_of(plan);
  CHECK(chosen[first].algorithm == "direct");
  CHECK(chosen[second].reason == by_rule.at(second).reason);
  plan.layer_algorithms.pop_back();
  CHECK(algorithms_of(plan)[second].algorithm == "im2col");

  const auto refused = [&](const std::string& layer, const std::string& algorithm, bool where_accepted = false) {
    PlanOptions wrong = options(2, 2);
    wrong.layer_algorithms = {{layer, algorithm}};
    wrong.conv_algorithm_where_accepted = where_accepted;
    return error_of([&] { (void)model.plan(wrong); });
  };
  CHECK(refused(first, "depthwise").kind() == ErrorKind::unsupported);  // groups are 1
  CHECK(refused(first, "nonsense").kind() == ErrorKind::invalid_argument);
  CHECK(refused(first, "nonsense", true).kind() == ErrorKind::invalid_argument);
  CHECK(std::string(refused("nobody", "direct").what()).find("no step that has algorithms is called 'nobody'") !=
        std::string::npos);
  plan = options(2, 2);
  plan.layer_algorithms = {{first, "depthwise"}};
  plan.conv_algorithm_where_accepted = true;
  chosen = algorithms_of(plan);
  CHECK(chosen[first].algorithm == by_rule.at(first).algorithm);
  CHECK(chosen[first].reason.find("depthwise refuses: ") != std::string::npos);
}

}  // namespace
}  // namespace lenslet::test

#include "late_cases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <stop_token>
#include <utility>
#include <vector>

#include "embedder_cases.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "runtime/graph/if_op.h"
#include "small_net.h"

namespace lenslet::test {
namespace {

PlanOptions on(const std::string& device) {
  PlanOptions options = on_cpu(1, 2);
  options.device = device;
  return options;
}

ValueId int64s(Graph& graph, std::initializer_list<std::int64_t> values) {
  return graph.add_constant("ints" + std::to_string(graph.values.size()),
                            Tensor::of<std::int64_t>(Shape{static_cast<std::int64_t>(values.size())}, values));
}

Tensor row(std::initializer_list<float> values) {
  return Tensor::of<float>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

template <typename T>
std::vector<T> held(const Tensor& tensor) {
  const auto values = tensor.values<T>();
  return {values.begin(), values.end()};
}

}  // namespace

Graph positive_net() {
  Graph graph;
  graph.name = "positive";
  const ValueId x = add_port(graph, "x", DType::f32, {8});
  const ValueId relu = add_node(graph, "Relu", {x});
  const ValueId where = add_node(graph, "Transpose", {add_node(graph, "NonZero", {relu})});
  const ValueId y = add_node(graph, "GatherND", {x, where});
  add_output(graph, y);
  add_output(graph, relu);
  add_output(graph, add_node(graph, "Add", {y, y}));
  return graph;
}

namespace {

// The images [8, 16, 14, 14] whose x [8] is positive, through convolutions of all kinds: -> [n, 5].
Graph selected_images_net() {
  using Integers = std::vector<std::int64_t>;
  const std::int64_t c = 16;
  Graph graph;
  graph.name = "selected_images";
  const ValueId x = add_port(graph, "x", DType::f32, {8}),
                images = add_port(graph, "images", DType::f32, {8, c, 14, 14});
  const ValueId where = add_node(graph, "Transpose", {add_node(graph, "NonZero", {add_node(graph, "Relu", {x})})});
  ValueId y = add_node(graph, "GatherND", {images, where});
  const auto conv = [&](const std::string& op, Shape w, std::int64_t pad, std::int64_t groups, std::int64_t stride) {
    const std::string name = op + std::to_string(graph.nodes.size());
    y = add_node(graph, op, {y, add_weights(graph, name, w, 0.2F, graph.nodes.size())},
                 {{"pads", Integers(4, pad)}, {"strides", Integers(2, stride)}, {"group", groups}});
    y = add_node(graph, "Relu", {y});
  };
  conv("Conv", {c, c, 3, 3}, 1, 1, 1);
  conv("Conv", {c, 1, 3, 3}, 1, c, 1);
  conv("Conv", {c, 4, 3, 3}, 1, 4, 1);
  conv("Conv", {c, c, 1, 1}, 0, 1, 1);
  conv("ConvTranspose", {c, c, 3, 3}, 0, 1, 2);
  conv("Conv", {c, c, 7, 7}, 3, 1, 2);
  y = add_node(graph, "MaxPool", {y}, {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}});
  y = add_node(graph, "Flatten", {add_node(graph, "GlobalAveragePool", {y})});
  add_output(graph, add_node(graph, "Gemm", {y, add_weights(graph, "fc", {c, 5}, 0.5F, 99)}));
  return graph;
}

}  // namespace

void check_as_many_images_as_selected(const std::string& device) {
  const Model model = make_model(selected_images_net());
  const Tensor images = random_tensor({8, 16, 14, 14}, 1);
  Runner runner(model, on(device));
  const auto run = [&](std::initializer_list<float> positive) {
    const std::vector<Tensor> inputs{row(positive), images.clone()};
    return runner.run(inputs)[0].clone();
  };
  const Tensor all = run({1, 1, 1, 1, 1, 1, 1, 1});
  REQUIRE(all.shape() == Shape{8, 5});
  CHECK(run({0, 0, 0, 0, 0, 0, 0, 0}).shape() == Shape{0, 5});
  const Tensor some = run({0, 0, 1, 0, 0, 0, 0, 1});
  REQUIRE(some.shape() == Shape{2, 5});
  const auto expected = held<float>(all), got = held<float>(some);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(got[i] == doctest::Approx(expected[2 * 5 + i]).epsilon(1e-3));
    CHECK(got[5 + i] == doctest::Approx(expected[7 * 5 + i]).epsilon(1e-3));
  }
}

void check_boxes_selected_in_the_run(const std::string& device) {
  const Model model = make_model(positive_net());
  Runner runner(model, on(device));
  REQUIRE(runner.plan().late.size() == 4);
  CHECK(runner.plan().late[0].op == "NonZero");
  CHECK(runner.plan().late[0].at_most == std::vector<Shape>{{1, 8}});
  CHECK(runner.plan().late[1].at_most.empty());
  CHECK(runner.plan().late_outputs == std::vector<std::size_t>{0, 2});
  CHECK(runner.plan().late_copies == 0);  // Relu's values are an output, which is copied in any case
  CHECK(runner.plan().outputs[1].second == Shape{8});
  std::vector<std::string> seen;
  for (const bool observed : {false, true}) {
    if (observed)
      runner.set_observer([&](const LayerEvent& event) {
        CHECK(event.step == static_cast<int>(seen.size()));
        seen.push_back(event.info->op);
        if (event.info->config == "on the host") CHECK(event.ms > 0);
        CHECK(event.info->inputs.size() == event.inputs.size());
        REQUIRE(event.outputs.size() == event.info->output_shapes.size());
        for (std::size_t i = 0; i < event.outputs.size(); ++i)
          CHECK(event.outputs[i].shape() == event.info->output_shapes[i]);
        REQUIRE(event.outputs.size() == event.info->output_formats.size());
        for (std::size_t i = 0; i < event.outputs.size(); ++i)
          CHECK(event.outputs[i].format() == event.info->output_formats[i]);
      });
    // More different counts than plans are kept, some repeated.
    for (const int count : {3, 0, 8, 1, 3, 2, 5, 8, 3}) {
      Tensor x(DType::f32, Shape{8});
      std::vector<float> positive;
      for (int i = 0; i < 8; ++i) {
        x.values<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i < count ? i + 1 : -i);
        if (i < count) positive.push_back(static_cast<float>(i + 1));
      }
      seen.clear();
      const auto outputs = runner.run(x);
      REQUIRE(outputs.size() == 3);
      CHECK(held<float>(outputs[0]) == positive);
      for (float& value : positive) value *= 2;
      CHECK(held<float>(outputs[2]) == positive);
      CHECK(outputs[1].values<float>()[7] == (count == 8 ? 8 : 0));
      CHECK(runner.plan().outputs[0].second == Shape{count});
      if (observed) CHECK(seen.size() == runner.plan().steps.size());
      const auto on_host = std::ranges::find(runner.plan().steps, "on the host", &StepInfo::config);
      REQUIRE(on_host != runner.plan().steps.end());
      CHECK(on_host->name == "NonZero_1");
      CHECK(on_host->op == "NonZero");
      CHECK(on_host->inputs == std::vector<std::string>{"Relu_0:0"});
      CHECK(on_host->outputs == std::vector<std::string>{"NonZero_1:0"});
      CHECK(on_host->bytes == 8 * sizeof(float) + static_cast<std::size_t>(count) * sizeof(std::int64_t));
    }
  }
  CHECK(std::find(seen.begin(), seen.end(), "NonZero") != seen.end());
  CHECK(seen.back() == "Add");
  runner.set_observer({});
  // Errors before a run stay errors, and the Runner continues.
  CHECK(kind_of([&] { runner.run(Tensor(DType::f32, Shape{7})); }) == ErrorKind::invalid_argument);
  CHECK(runner.run(row({-1, 5, -1, -1, -1, -1, -1, -1}))[0].values<float>()[0] == 5);
}

void check_reshape_to_what_is_computed(const std::string& device) {
  Graph graph;
  graph.name = "reshape";
  const ValueId x = add_port(graph, "x", DType::f32, {2, 6});
  const ValueId rows = add_port(graph, "rows", DType::i64, {3});
  const ValueId most = add_node(graph, "ReduceMax", {rows});
  const ValueId target =
      add_node(graph, "Concat", {add_node(graph, "Reshape", {most, int64s(graph, {1})}), int64s(graph, {-1})},
               {{"axis", std::int64_t{0}}});
  add_output(graph, add_node(graph, "Relu", {add_node(graph, "Reshape", {x, target})}));
  Runner runner(make_model(graph), on(device));
  REQUIRE(!runner.plan().late.empty());
  CHECK(runner.plan().late[0].reason == "shape is computed from data: shapes must be known before the run");
  const Tensor data = random_tensor({2, 6}, 1);
  for (const std::int64_t asked : {3, 4, 3, 12, 1}) {
    const Tensor inputs[] = {data, Tensor::of<std::int64_t>(Shape{3}, {1, asked, 1})};
    const Tensor& y = runner.run(inputs)[0];
    REQUIRE(y.shape() == Shape{asked, 12 / asked});
    for (std::size_t i = 0; i < 12; ++i) CHECK(y.values<float>()[i] == std::max(0.0F, data.values<float>()[i]));
  }
  // 5 rows of 12 elements: an error of this run only.
  const Tensor wrong[] = {data, Tensor::of<std::int64_t>(Shape{3}, {1, 5, 1})};
  const Error refused = error_of([&] { runner.run(wrong); });
  CHECK(refused.kind() == ErrorKind::invalid_model);
  CHECK(std::string(refused.what()).find("Reshape") != std::string::npos);
  const Tensor right[] = {data, Tensor::of<std::int64_t>(Shape{3}, {1, 2, 1})};
  CHECK(runner.run(right)[0].shape() == Shape{2, 6});
}

// The number of positive elements selects where a second NonZero looks.
void check_shapes_decided_one_after_another(const std::string& device) {
  Graph graph;
  graph.name = "twice";
  const ValueId x = add_port(graph, "x", DType::f32, {8});
  const ValueId where = add_node(graph, "Transpose", {add_node(graph, "NonZero", {add_node(graph, "Relu", {x})})});
  const ValueId y = add_node(graph, "GatherND", {x, where});
  const ValueId low = add_node(graph, "Sub", {y, graph.add_constant("three", row({3}))});
  add_output(graph, add_node(graph, "NonZero", {add_node(graph, "Relu", {low})}));
  Runner runner(make_model(graph), on(device));
  CHECK(held<std::int64_t>(runner.run(row({1, -1, 5, 2, -7, 4, 0, 9}))[0]) == std::vector<std::int64_t>{1, 3, 4});
  CHECK(held<std::int64_t>(runner.run(row({-1, -1, -1, -1, -1, -1, -1, -1}))[0]).empty());
  CHECK(held<std::int64_t>(runner.run(row({9, -1, 5, 2, -7, 4, 0, 9}))[0]) == std::vector<std::int64_t>{0, 1, 3, 4});
  CHECK(runner.run(row({9, -1, 5, 2, -7, 4, 0, 9}))[0].shape() == Shape{1, 4});
}

// If (any x > 0) Add(x, c) else the first two of x; c comes from outside and inside.
void check_branch_taken_in_the_run(const std::string& device) {
  Graph positive, other;
  for (Graph* branch : {&positive, &other}) {
    branch->name = "branch";
    for (const char* name : {"x", "c"}) {
      branch->inputs.push_back(branch->add_value(name));
      branch->input_ports.emplace_back().name = name;
    }
  }
  add_output(positive, add_node(positive, "Add", {positive.inputs[0], positive.inputs[1]}));
  add_output(other, add_node(other, "Slice", {other.inputs[0], int64s(other, {0}), int64s(other, {2})}));

  Graph graph;
  graph.name = "if";
  const ValueId x = add_port(graph, "x", DType::f32, {4});
  const ValueId c = graph.add_constant("c", row({10, 20, 30, 40}));
  const ValueId most = add_node(graph, "ReduceMax", {x}, {{"keepdims", std::int64_t{0}}});
  const ValueId any = add_node(graph, "Greater", {most, graph.add_constant("zero", Tensor::of<float>(Shape{}, {0}))});
  const auto op = std::make_shared<IfOp>(IfOp::Branch{std::make_shared<const Graph>(positive)},
                                         IfOp::Branch{std::make_shared<const Graph>(other)});
  add_output(graph, add_node(graph, op, "choice", {any, x, c}));
  add_output(graph, add_node(graph, "Neg", {graph.outputs[0]}));
  Runner runner(make_model(graph), on(device));
  for (int round = 0; round < 2; ++round) {
    CHECK(held<float>(runner.run(row({1, -2, 3, -4}))[0]) == std::vector<float>{11, 18, 33, 36});
    CHECK(held<float>(runner.run(row({-1, -2, -3, -4}))[1]) == std::vector<float>{1, 2});
  }
}

void check_wrong_indices_are_reported(const std::string& device) {
  Graph graph;
  graph.name = "picks";
  const ValueId x = add_port(graph, "x", DType::f32, {3, 2});
  const ValueId at = add_port(graph, "at", DType::i64, {2});
  const ValueId divisor = add_port(graph, "divisor", DType::i64, {2});
  add_output(graph, add_node(graph, "Gather", {x, at}));
  add_output(graph, add_node(graph, "Div", {at, divisor}));
  Runner runner(make_model(graph), on(device));
  const Tensor data = random_tensor({3, 2}, 1);
  const auto run = [&](std::int64_t first, std::int64_t by) {
    const Tensor inputs[] = {data, Tensor::of<std::int64_t>(Shape{2}, {first, -1}),
                             Tensor::of<std::int64_t>(Shape{2}, {by, 1})};
    return runner.run(inputs)[0].values<float>()[0];
  };
  for (int round = 0; round < 2; ++round) {
    CHECK(run(1, 1) == data.values<float>()[2]);
    Error refused = error_of([&] { run(3, 1); });
    CHECK(refused.kind() == ErrorKind::invalid_argument);
    CHECK(std::string(refused.what()).find("Gather") != std::string::npos);
    CHECK(std::string(refused.what()).find("outside axis 0 of [3,2]") != std::string::npos);
    refused = error_of([&] { run(-3, 0); });
    CHECK(refused.kind() == ErrorKind::invalid_argument);
    CHECK(std::string(refused.what()).find("division by zero") != std::string::npos);
    CHECK(run(-3, 2) == data.values<float>()[0]);
  }
}

void check_late_on_memory_of_the_apps(const std::string& device) {
  Runner runner(make_model(positive_net()), on(device));
  const Tensor x = row({-1, 2, -3, 4, 5, -6, -7, -8});
  const Tensor expected = runner.run(x)[0].clone();
  REQUIRE(expected.shape() == Shape{3});
  const std::array inputs{IoTensor{x}};
  Tensor y(DType::f32, {3}), relu(DType::f32, {8}), too_many(DType::f32, {4});
  const auto run = [&](const Tensor& wanted, std::stop_token stop = {}) {
    const std::array outputs{IoTensor{wanted}, IoTensor{relu}, IoTensor{}};
    RunOptions options;
    options.outputs = outputs;
    options.stop = std::move(stop);
    return runner.run(inputs, options);
  };
  for (int round = 0; round < 2; ++round) {
    const std::span<const Tensor> given = run(y);
    CHECK(given[0].data() == y.data());
    CHECK(given[1].data() == relu.data());
    CHECK(equal(y, expected));
    CHECK(held<float>(relu) == std::vector<float>{0, 2, 0, 4, 5, 0, 0, 0});
    CHECK(held<float>(given[2]) == std::vector<float>{4, 8, 10});
    const Error refused = error_of([&] { run(too_many); });
    CHECK(refused.kind() == ErrorKind::invalid_argument);
    CHECK(std::string(refused.what()).find("is wanted as float32[4] and comes as float32[3]") != std::string::npos);
  }
  std::stop_source stop;
  runner.set_observer([&](const LayerEvent& event) {
    if (event.info->op == "NonZero") stop.request_stop();  // on the host, between the segments
  });
  CHECK(kind_of([&] { run(y, stop.get_token()); }) == ErrorKind::cancelled);
  runner.set_observer({});
  CHECK(equal(runner.run(x)[0], expected));
}

void check_other_shapes_are_planned_anew(const std::string& device) {
  Graph graph;
  graph.name = "sizes";
  const ValueId x = add_port(graph, "x", DType::f32, {-1, 3, -1, -1});
  const ValueId w = add_weights(graph, "w", {8, 3, 3, 3}, 0.3F, 1);
  add_output(graph, add_node(graph, "Relu", {add_node(graph, "Conv", {x, w})}));
  const Model model = make_model(graph);
  const auto options = [&](const Shape& shape, std::size_t others) {
    PlanOptions chosen = on(device);
    chosen.input_shapes = {{"x", shape}};
    chosen.other_shapes = others;
    return chosen;
  };
  const Shape first{1, 3, 12, 10};
  Runner runner(model, options(first, 2));
  int steps = 0;
  runner.set_observer([&](const LayerEvent&) { ++steps; });
  std::size_t prepared = 0;
  for (int round = 0; round < 2; ++round) {
    for (const Shape& shape : {first, Shape{1, 3, 9, 17}, Shape{2, 3, 12, 10}, Shape{1, 3, 30, 8}, first}) {
      const Tensor image = random_tensor(shape, 5);
      steps = 0;
      const Tensor& y = runner.run(image)[0];
      CHECK(y.shape() == Shape{shape[0], 8, shape[2] - 2, shape[3] - 2});
      CHECK(runner.plan().inputs[0].second == shape);
      CHECK(steps == static_cast<int>(runner.plan().steps.size()));
      Runner alone(model, options(shape, 0));
      CHECK(equal(y, alone.run(image)[0]));
      Tensor there(DType::f32, y.shape());
      const std::array inputs{IoTensor{image}}, outputs{IoTensor{there}};
      RunOptions options_of_run;
      options_of_run.outputs = outputs;
      CHECK(runner.run(inputs, options_of_run)[0].data() == there.data());
      CHECK(equal(there, alone.run(image)[0]));
    }
    if (round == 0) prepared = model.impl()->prepared->bytes();
  }
  CHECK(model.impl()->prepared->bytes() == prepared);  // once a Model

  // Invalid inputs are refused, and the Runner continues.
  CHECK(kind_of([&] { runner.run(Tensor(DType::f32, {1, 4, 12, 10})); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { runner.run(Tensor(DType::f32, {1, 3, 2, 10})); }) == ErrorKind::invalid_model);
  CHECK(kind_of([&] { runner.run(Tensor(DType::i64, {1, 3, 12, 10})); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { runner.run(std::span<const Tensor>()); }) == ErrorKind::invalid_argument);
  CHECK(runner.run(random_tensor(first, 5))[0].shape() == Shape{1, 8, 10, 8});
  Runner strict(model, options(first, 0));
  CHECK(kind_of([&] { strict.run(Tensor(DType::f32, {1, 3, 9, 17})); }) == ErrorKind::invalid_argument);
}

}  // namespace lenslet::test

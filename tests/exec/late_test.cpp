#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "late_cases.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "runtime/graph/infer_shapes.h"
#include "runtime/graph/late.h"
#include "small_net.h"

namespace lenslet::test {

TEST_CASE("exec/late/boxes_selected_in_the_run") { check_boxes_selected_in_the_run("cpu"); }
TEST_CASE("exec/late/as_many_images_as_selected") { check_as_many_images_as_selected("cpu"); }
TEST_CASE("exec/late/reshape_to_what_is_computed") { check_reshape_to_what_is_computed("cpu"); }
TEST_CASE("exec/late/shapes_decided_one_after_another") { check_shapes_decided_one_after_another("cpu"); }
TEST_CASE("exec/late/branch_taken_in_the_run") { check_branch_taken_in_the_run("cpu"); }
TEST_CASE("exec/late/memory_of_the_apps") { check_late_on_memory_of_the_apps("cpu"); }
TEST_CASE("exec/late/wrong_indices_are_reported") { check_wrong_indices_are_reported("cpu"); }
TEST_CASE("exec/late/other_shapes_are_planned_anew") { check_other_shapes_are_planned_anew("cpu"); }

TEST_CASE("exec/late/a_dump_shows_both_parts") {
  const std::string late = make_model(positive_net()).dump("plan", on_cpu(1, 1));
  CAPTURE(late);
  const auto at = [&](const char* text) { return late.find(text); };
  REQUIRE(at("on the host, in between:") != std::string::npos);
  CHECK(at("= Relu(") < at("on the host, in between:"));
  CHECK(at("= NonZero(") > at("on the host, in between:"));
  CHECK(at("= NonZero(") < at("planned in the run, when shapes are known:"));
  CHECK(at("= Add(") > at("planned in the run, when shapes are known:"));
  CHECK(make_model(small_net()).dump("plan", on_cpu(1, 1)).find("planned in the run") == std::string::npos);
}

TEST_CASE("exec/late/attributes_of_what_the_host_computes") {
  Graph graph;
  graph.name = "boxes";
  const ValueId boxes = add_port(graph, "boxes", DType::f32, {1, 2, 4});
  const ValueId scores = graph.add_constant("scores", Tensor::of<float>(Shape{1, 1, 2}, {0.5F, 0.75F}));
  const ValueId most = graph.add_constant("most", Tensor::of<std::int64_t>(Shape{1}, {2}));
  add_output(graph,
             add_node(graph, "NonMaxSuppression", {boxes, scores, most}, {{"center_point_box", std::int64_t{1}}}));
  Runner runner(make_model(std::move(graph)), on_cpu());
  int steps = 0;
  runner.set_observer([&](const LayerEvent& event) {
    ++steps;
    REQUIRE(event.info->attributes.size() == 1);
    CHECK(event.info->attributes[0].first == "center_point_box");
    CHECK(event.info->inputs == std::vector<std::string>{"boxes", "scores", "most"});
  });
  // Centres and sizes: read as corners the second box would be empty.
  const Tensor y = runner.run(Tensor::of<float>(Shape{1, 2, 4}, {1, 1, 2, 2, 9, 9, 2, 2}))[0].clone();
  CHECK(y.shape() == Shape{2, 3});
  CHECK(y.values<std::int64_t>()[2] == 1);
  CHECK(steps == 1);
}

namespace {

// y [n] of x [batch, 4]: its positive elements.
Graph positive_rows() {
  Graph graph;
  graph.name = "rows";
  const ValueId x = add_input(graph, {4});
  const ValueId where = add_node(graph, "Transpose", {add_node(graph, "NonZero", {add_node(graph, "Relu", {x})})});
  add_output(graph, add_node(graph, "GatherND", {x, where}));
  return graph;
}

}  // namespace

TEST_CASE("exec/late/only_what_decides_shapes_is_planned_for_its_value") {
  Graph graph;
  graph.name = "halves";
  const ValueId of_early = add_weights(graph, "early", {6}, 1, 1), of_late = add_weights(graph, "late", {1}, 1, 2);
  const ValueId x = add_node(graph, "Mul", {add_port(graph, "x", DType::f32, {4, 6}), of_early});
  const ValueId target = add_node(graph, "Cast", {add_node(graph, "Abs", {add_port(graph, "t", DType::f32, {2})})},
                                  {{"to", std::int64_t{7}}});
  const ValueId relu = add_node(graph, "Relu", {x});
  add_output(graph, add_node(graph, "Add", {add_node(graph, "Reshape", {relu, target}), of_late}));
  add_output(graph, relu);
  const Model model = make_model(std::move(graph));
  Graph typed = model.impl()->typed;
  bind_inputs(typed, 1, {});
  const LatePart late = split_late(typed, infer_known_shapes(typed));
  REQUIRE(late.graph.inputs.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) CHECK(late.planned_for_value[i] == (late.graph.inputs[i] == target));
  CHECK(late.graph.nodes.size() == 2);
  CHECK(typed.nodes.size() == 4);
  // Each segment keeps its own constants.
  CHECK(late.graph.value(of_early).constant.empty());
  CHECK(!late.graph.value(of_late).constant.empty());
  REQUIRE(typed.output_ports.size() == 2);
  CHECK(typed.output_ports[1].name == typed.value(target).name);
  CHECK(typed.output_ports[1].dims == std::vector<std::int64_t>{2});
  CHECK(typed.output_ports[1].dim_names.size() == 1);
  CHECK(late.outputs[0].late);
  CHECK(!late.outputs[1].late);
  CHECK(late.outputs[1].index == 0);
  CHECK(late.early_outputs == std::vector<ValueId>{relu, target});
  CHECK(typed.outputs == late.early_outputs);
}

TEST_CASE("exec/late/a_batch_is_asked_of_the_first_part_alone") {
  Runner runner(make_model(positive_rows()), on_cpu(3));  // NonZero's [2,n] is not a batch of 2
  const Tensor& y = runner.run(Tensor::of<float>(Shape{3, 4}, {-1, 2, 0, 3, -4, -5, -6, -7, 8, 0, -9, 10}))[0];
  const auto values = y.values<float>();
  CHECK(std::vector<float>(values.begin(), values.end()) == std::vector<float>{2, 3, 8, 10});
}

// Shapes, values and algorithms that are set for the first segment do not apply to the second.
TEST_CASE("exec/late/options_for_the_first_part") {
  Graph graph;
  graph.name = "parts";
  const ValueId x = add_input(graph, {4}), fixed = add_port(graph, "fixed", DType::f32, {4, 4});
  const ValueId y = add_node(graph, "MatMul", {x, fixed});
  const std::string name = graph.nodes.back().name;
  const ValueId where = add_node(graph, "Transpose", {add_node(graph, "NonZero", {add_node(graph, "Relu", {y})})});
  add_output(graph, add_node(graph, "GatherND", {y, where}));
  PlanOptions options = on_cpu();
  options.input_shapes = {{"x", Shape{2, 4}}};
  options.input_values = {{"fixed", Tensor::of<float>(Shape{4, 4}, {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4})}};
  options.layer_algorithms = {{name, "packed"}};
  Runner runner(make_model(std::move(graph)), options);
  const std::array given{Tensor::of<float>(Shape{2, 4}, {1, -1, 1, -1, -1, 1, -1, 1}), options.input_values[0].second};
  const Tensor& found = runner.run(given)[0];
  const auto values = found.values<float>();
  CHECK(std::vector<float>(values.begin(), values.end()) == std::vector<float>{1, 3, 2, 4});
}

TEST_CASE("exec/late/time_device_before_a_run_and_after") {
  Runner runner(make_model(positive_rows()), on_cpu());
  CHECK(runner.time_device(1).empty());  // the CPU's; the rest is not planned yet
  static_cast<void>(runner.run(random_tensor({1, 4}, 1)));
  CHECK(runner.time_device(2).empty());
}

}  // namespace lenslet::test

// NodeInference: limits on the size of values computed before the run.
#include "runtime/graph/infer_node.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "graph_builder.h"
#include "runtime/graph/if_op.h"
#include "runtime/graph/infer_shapes.h"
#include "tests/expect_error.h"

using namespace lenslet;
using namespace lenslet::test;

// Eight bytes can request any number of floats.
TEST_CASE("infer_node/results_up_to_a_limit_or_of_four_times_their_inputs_are_computed") {
  struct Row {
    std::int64_t floats;
    std::size_t limit;
    bool computed;
  };
  const Row rows[] = {{16, 64, true}, {17, 64, false}, {8, 16, true}, {9, 16, false}};
  for (const Row& row : rows) {
    CAPTURE(row.floats);
    GraphBuilder b;
    const ValueId y = b.node("ConstantOfShape", {b.int64s({row.floats})});
    b.output(y);
    Graph graph = b.source();
    NodeInference inference(graph, row.limit);
    inference.infer(graph.node(0));
    CHECK(graph.value(y).shape == Shape{row.floats});
    CHECK(inference.evaluate(graph.node(0)) == row.computed);
    CHECK(graph.value(y).is_constant() == row.computed);
  }
}

TEST_CASE("infer_node/results_of_all_nodes_up_to_a_limit_are_computed") {
  GraphBuilder b;
  for (const std::int64_t floats : {16, 9, 8, 1}) b.output(b.node("ConstantOfShape", {b.int64s({floats})}));
  Graph graph = b.source();
  NodeInference inference(graph, 64, 96);
  std::vector<bool> computed;
  for (const Node& node : graph.nodes) {
    inference.infer(node);
    computed.push_back(inference.evaluate(node));
  }
  CHECK((computed == std::vector<bool>{true, false, true, false}));
}

// Slice asks for its starts, Range for its start, OneHot for its depth. Other unknown inputs that are shape arithmetic
// of that type are waited for as well.
TEST_CASE("infer_shapes/values_that_are_waited_for_together") {
  struct Input {
    DType dtype;
    std::vector<std::int64_t> dims;
    enum { absent, computed, known } is = computed;
  };
  const Input number{DType::i64, {}}, list{DType::i64, {1}}, data{DType::f32, {8, 8}},
      none{DType::i64, {}, Input::absent};
  struct Row {
    const char* op;
    std::vector<Input> inputs;
    InputMask waits;
  };
  const Row rows[] = {{"Slice", {data, list, list, list}, 0b1110},
                      {"Slice", {data, list, list, none, list}, 0b10110},
                      {"Slice", {data, list, list, {DType::i64, {1}, Input::known}}, 0b0110},
                      {"Slice", {{DType::i64, {8}}, list, list}, 0b0111},
                      {"Slice", {{DType::i64, {8, 8}}, list, list}, 0b0110},
                      {"Slice", {{DType::i32, {8}}, list, list}, 0b0110},
                      {"Range", {number, number, number}, 0b111},
                      {"OneHot", {{DType::i64, {3}}, number, {DType::f32, {2}}}, 0b011}};
  for (const Row& row : rows) {
    CAPTURE(row.op);
    GraphBuilder b;
    std::vector<ValueId> inputs;
    for (const Input& input : row.inputs) {
      const std::string name = "x" + std::to_string(inputs.size());
      inputs.push_back(input.is == Input::absent  ? no_id
                       : input.is == Input::known ? b.int64s({0})
                                                  : b.node("Identity", {b.input(name, input.dims, input.dtype)}));
    }
    b.output(b.node(row.op, inputs));
    Graph graph = b.source();
    bind_inputs(graph, 1, {});
    const std::vector<WaitingNode> waiting = infer_known_shapes(graph);
    REQUIRE(waiting.size() == 1);
    CHECK(waiting[0].values == row.waits);
    CHECK(!graph.value(graph.outputs[0]).typed);
  }
}

TEST_CASE("infer_shapes/a_branch_by_a_condition_alone") {
  GraphBuilder inner;
  inner.output(inner.node("Neg", {inner.scalar(2)}));
  const auto branch = std::make_shared<const Graph>(inner.source());
  const auto graph_with = [&](std::int64_t conditions) {
    GraphBuilder b;
    Tensor condition(DType::boolean, Shape{conditions});
    for (bool& value : condition.values<bool>()) value = true;
    b.output(b.node("Relu", {b.node_of(std::make_shared<IfOp>(IfOp::Branch{branch}, IfOp::Branch{branch}),
                                       {b.constant(condition)})}));
    return b.source();
  };
  Graph graph = graph_with(1);
  infer_shapes(graph);
  CHECK(graph.value(graph.outputs[0]).constant.values<float>()[0] == 0);
  Graph two = graph_with(2);
  const Error error = error_of([&] { infer_shapes(two); });
  CHECK(error.context().find("If") != std::string::npos);
  CHECK(!two.value(two.outputs[0]).typed);
}

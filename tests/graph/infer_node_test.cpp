// NodeInference: what is computed before the run, by its size.
#include "runtime/graph/infer_node.h"

#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

// Eight bytes say how many floats are to be made.
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

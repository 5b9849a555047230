// fold_constants, drop_identity, drop_dead, and the graph's own invariants.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>

#include "graph_builder.h"
#include "tests/expect_error.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {
using Ints = std::vector<std::int64_t>;
}

TEST_CASE("drop_identity/goes") {
  GraphBuilder b;
  ValueId x = b.input("x", {2, 3, 4, 1});
  x = b.node("Identity", {b.node("Relu", {x})});
  x = b.node("Dropout", {x});
  x = b.node("Reshape", {x, b.int64s({2, 3, 4, 1})});
  x = b.node("Cast", {x}, {{"to", std::int64_t{1}}});
  x = b.node("Pad", {x, b.int64s({0, 0, 0, 0, 0, 0, 0, 0})});
  x = b.node("Transpose", {x}, {{"perm", Ints{0, 1, 2, 3}}});
  x = b.node("Concat", {x}, {{"axis", std::int64_t{1}}});
  x = b.node("Concat", {x, b.constant(Tensor(DType::f32, {2, 0, 4, 1}))}, {{"axis", std::int64_t{1}}});
  x = b.node("Slice", {x, b.int64s({0, -9}), b.int64s({3, 99}), b.int64s({1, 2})});
  x = b.node("Split", {x}, {{"axis", std::int64_t{1}}});
  x = b.node("Expand", {x, b.int64s({4, 1})});
  x = b.node("Tile", {x, b.int64s({1, 1, 1, 1})});
  x = b.node("Gather", {x, b.int64s({0, -2, 2})}, {{"axis", std::int64_t{1}}});
  x = b.node("Compress", {x, b.constant(Tensor::of<std::int64_t>({2}, {1, 1}).to_dtype(DType::boolean))},
             {{"axis", std::int64_t{0}}});
  x = b.node("DepthToSpace", {x}, {{"blocksize", std::int64_t{1}}});
  b.output(x);
  const Graph before = b.build(), clean = after(before, "drop_identity");
  INFO(clean.dump());
  CHECK(clean.nodes.size() == 1);
  CHECK(clean.value(clean.outputs[0]).name == before.value(before.outputs[0]).name);
  CHECK(worst_difference(before, clean) == 0);
}

TEST_CASE("drop_identity/pools_of_one_element") {
  GraphBuilder b;
  ValueId x = b.node("Relu", {b.input("x", {2, 3, 4, 1})});
  const AttributeList plain{{"kernel_shape", Ints{1, 1}}};
  x = b.node("AveragePool", {x}, plain);
  x = b.node("MaxPool", {x}, plain, 13, 2);
  x = b.node("AveragePool", {x},
             {{"kernel_shape", Ints{1, 1}}, {"strides", Ints{1, 3}}, {"ceil_mode", std::int64_t{1}}}, 19);
  x = b.node("MaxPool", {x}, {{"kernel_shape", Ints{1, 1}}, {"auto_pad", std::string("SAME_UPPER")}});
  b.output(x);
  const Graph before = b.build(), clean = after(before, "drop_identity");
  INFO(clean.dump());
  CHECK(clean.nodes.size() == 1);
  CHECK(worst_difference(before, clean) == 0);
}

TEST_CASE("drop_identity/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 4, 4});
  SUBCASE("slice backwards") {
    b.output(b.node("Slice", {x, b.int64s({-1}), b.int64s({-9}), b.int64s({1}), b.int64s({-1})}));
  }
  SUBCASE("part of a slice") { b.output(b.node("Slice", {x, b.int64s({1}), b.int64s({4}), b.int64s({3})})); }
  SUBCASE("picked in another order") {
    b.output(b.node("Gather", {x, b.int64s({0, 2, 1})}, {{"axis", std::int64_t{1}}}));
  }
  SUBCASE("split in two") { b.output(b.node("Split", {x}, {{"axis", std::int64_t{1}}, {"split", Ints{1, 2}}}, 11, 2)); }
  SUBCASE("square transpose") { b.output(b.node("Transpose", {x}, {{"perm", Ints{0, 1, 3, 2}}})); }
  SUBCASE("pad that shifts") { b.output(b.node("Pad", {x, b.int64s({0, 0, 1, 0, 0, 0, -1, 0})})); }
  SUBCASE("pool that leaves out") {
    b.output(b.node("MaxPool", {x}, {{"kernel_shape", Ints{1, 1}}, {"strides", Ints{1, 2}}}));
  }
  SUBCASE("wider pool") { b.output(b.node("MaxPool", {x}, {{"kernel_shape", Ints{1, 2}}})); }
  SUBCASE("norm") { b.output(b.node("LpPool", {x}, {{"kernel_shape", Ints{1, 1}}})); }
  SUBCASE("output of an input") { b.output(b.node("Identity", {x})); }
  const Graph before = b.build(), clean = after(before, "drop_identity");
  CHECK(clean.nodes.size() == 1);
  CHECK(worst_difference(before, clean) == 0);
}

TEST_CASE("drop_identity/two_outputs_stay_apart") {
  GraphBuilder b;
  const ValueId y = b.node("Relu", {b.input("x", {2, 3})});
  b.output(y);
  b.output(b.node("Identity", {y}));
  const Graph before = b.build(), clean = after(before, "drop_identity");
  CHECK(clean.outputs[0] != clean.outputs[1]);
  CHECK(worst_difference(before, clean) == 0);
}

TEST_CASE("fold_constants/weights_computed_from_weights") {
  GraphBuilder b;
  const ValueId w = b.node("Mul", {b.weights({5, 4}), b.scalar(2)});
  const ValueId t = b.node("Transpose", {w}, {{"perm", Ints{1, 0}}});
  b.output(b.node("Gemm", {b.input("x", {3, 4}), t}));
  const Graph graph = b.build();
  CHECK(graph.nodes.size() == 1);  // infer_shapes did it
  CHECK(graph.value(graph.nodes[0].inputs[1]).is_constant());
}

TEST_CASE("fold_constants/large_fill") {
  // 80 MiB from 16 bytes: too large for shape inference, but not for the pass.
  GraphBuilder b;
  const ValueId w = b.node("ConstantOfShape", {b.int64s({4, 5 << 20})});
  b.output(b.node("ReduceSum", {b.node("Add", {b.input("x", {4, 1}), w})}));
  const Graph before = b.build();
  CHECK(count(before, "ConstantOfShape") == 1);
  CHECK(count(after(before, "fold_constants"), "ConstantOfShape") == 0);
}

TEST_CASE("drop_identity/two_outputs_of_one_value") {
  GraphBuilder b;
  const ValueId y = b.node("Relu", {b.input("x", {1, 4})});
  for (int i = 0; i < 2; ++i) b.output(b.node("Identity", {y}));
  const Graph before = b.build(), clean = after(before, "drop_identity");
  CHECK(clean.outputs[0] != clean.outputs[1]);
  for (const std::size_t i : {0U, 1U})
    CHECK(clean.value(clean.outputs[i]).name == before.value(before.outputs[i]).name);
  CHECK(worst_difference(before, clean) == 0);
}

TEST_CASE("drop_dead/unread_nodes_and_constants") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6});
  b.conv(b.node("Relu", {x}), 4, 4, 3);
  b.output(b.node("Sigmoid", {x}));
  const Graph before = b.build(), clean = after(before, "drop_dead");
  CHECK(clean.nodes.size() == 1);
  for (const Value& value : clean.values) CHECK(!value.is_constant());
  CHECK(worst_difference(before, clean) == 0);
}

TEST_CASE("drop_dead/outputs_that_nobody_reads_have_no_value") {
  GraphBuilder b;
  const ValueId first = b.node("Split", {b.input("x", {2, 6})}, {{"axis", std::int64_t{1}}}, 13, 2);
  b.output(first + 1);
  const Graph before = b.build(), clean = after(before, "drop_dead");
  CHECK((clean.node(0).outputs == std::vector<ValueId>{no_id, first + 1}));
  CHECK(worst_difference(before, clean) == 0);
}

TEST_CASE("graph_builder/a_nan_on_either_side_is_no_small_difference") {
  GraphBuilder numbers, not_numbers;
  numbers.output(numbers.node("Abs", {numbers.input("x", {1, 4})}));
  const ValueId x = not_numbers.input("x", {1, 4});
  not_numbers.output(not_numbers.node("Sqrt", {not_numbers.node("Neg", {not_numbers.node("Abs", {x})})}));
  const Graph a = numbers.build(), b = not_numbers.build();
  CHECK(std::isinf(worst_difference(a, b)));
  CHECK(std::isinf(worst_difference(b, a)));
}

TEST_CASE("graph/check_names_the_invariant_that_is_broken") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 2}), c = b.scalar(1), y = b.node("Relu", {x});
  b.output(b.node("Add", {y, c}));
  const Graph good = b.build();
  const ValueId end = static_cast<ValueId>(good.values.size());
  struct Row {
    const char* says;
    std::function<void(Graph&)> breaks;
  };
  const Row rows[] = {
      {"ports do not match", [](Graph& g) { g.input_ports.clear(); }},
      {"ports do not match", [](Graph& g) { g.output_ports.clear(); }},
      {"of rank 2 has a layout", [&](Graph& g) { g.value(y).format = formats::nhwc; }},
      {"constant c0 disagrees", [&](Graph& g) { g.value(c).typed = false; }},
      {"constant c0 disagrees", [&](Graph& g) { g.value(c).dtype = DType::i32; }},
      {"constant c0 disagrees", [&](Graph& g) { g.value(c).shape = Shape{1}; }},
      {"constant c0 disagrees",
       [&](Graph& g) {
         g.value(c).constant = Tensor(DType::f32, {1, 2, 2, 2}, formats::nhwc);
         g.value(c).shape = {1, 2, 2, 2};
       }},
      {"an input id is out of range", [&](Graph& g) { g.inputs[0] = end; }},
      {"an input id is out of range", [](Graph& g) { g.inputs[0] = no_id; }},
      {"input c0 is a constant or occurs twice", [&](Graph& g) { g.inputs[0] = c; }},
      {"has no operator", [](Graph& g) { g.nodes[0].op = nullptr; }},
      {"a node has no name", [](Graph& g) { g.nodes[0].name.clear(); }},
      {"has an input id out of range", [&](Graph& g) { g.nodes[0].inputs[0] = end; }},
      {"before it is made", [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }},
      {"before it is made", [&](Graph& g) { g.nodes[0].outputs[0] = no_id; }},
      {"has an output id out of range", [&](Graph& g) { g.nodes[1].outputs[0] = end; }},
      {"which exists already", [](Graph& g) { g.nodes[1].outputs = g.nodes[0].outputs; }},
      {"which exists already", [&](Graph& g) { g.nodes[1].outputs = {c}; }},
      {"an output id is out of range", [&](Graph& g) { g.outputs[0] = end; }},
      {"is never made", [](Graph& g) { g.outputs[0] = g.add_value("z"); }},
  };
  for (const Row& row : rows) {
    Graph graph = good;
    row.breaks(graph);
    CHECK_ERROR(graph.check(), internal, row.says);
  }
}

TEST_CASE("graph/dump") {
  GraphBuilder b;
  const ValueId target = b.int64s({1, -1}), other = b.int64s({8});  // the first value, and an unread one
  REQUIRE(target == 0);
  const ValueId flat = b.node("Reshape", {b.input("x", {1, 2, 2, 2}), target});
  b.output(b.node("Clip", {flat, no_id, b.scalar(6)}));
  b.node("Split", {flat}, {{"axis", std::int64_t{1}}}, 13, 2);
  Graph graph = b.source();
  graph.name = "g";
  graph.nodes.back().outputs[0] = no_id;
  CHECK(graph.value(other).name == "c1");
  CHECK(graph.dump() ==
        "graph g: 3 nodes\n"
        "input x: ?\n"
        "constant c0: int64 [2] {1,-1}\n"
        "constant c3: float32 [] {6}\n"
        "Reshape_2:0: ? = Reshape(x, c0) allowzero=0  # Reshape_2\n"
        "Clip_4:0: ? = Clip(Reshape_2:0, _, c3)  # Clip_4\n"
        "_, Split_5:1: ? = Split(Reshape_2:0) axis=1 num_outputs=2  # Split_5\n"
        "output Clip_4:0: ?\n");
  CHECK(b.build().dump().find("float32 [1,8] = Reshape(x, ") != std::string::npos);
  graph.value(target).constant = Tensor::of<std::int64_t>(Shape{8}, {1, 2, 3, 4, 5, 6, 7, 8});  // the longest allowed
  CHECK(graph.dump().find("{1,2,3,4,5,6,7,8}") != std::string::npos);
  graph.value(target).constant = Tensor::of<std::int64_t>(Shape{9}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(graph.dump().find("{1,2") == std::string::npos);
}

// The loader refuses a node without any result; of several the first may be left out.
TEST_CASE("passes/a_first_result_that_nobody_reads") {
  for (const char* const op : {"Split", "TopK", "MaxPool"}) {
    CAPTURE(op);
    const std::string_view type = op;
    GraphBuilder b;
    std::vector<ValueId> inputs{b.conv(b.input("x", {2, 4, 6, 6}), 4, 4, 1)};
    AttributeList attributes;
    if (type == "Split") attributes = {{"axis", std::int64_t{1}}};
    if (type == "TopK") inputs.push_back(b.int64s({3}));
    if (type == "MaxPool") attributes = {{"kernel_shape", std::vector<std::int64_t>{2, 2}}};
    const ValueId first = b.node(type, inputs, attributes, 15, 2);
    b.output(first + 1);
    Graph graph = b.build(2);
    for (Node& node : graph.nodes)
      if (node.outputs[0] == first) node.outputs[0] = no_id;
    CHECK(after_all(graph).nodes.size() >= 2);
  }
}

#include "runtime/graph/output_op.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "graph_builder.h"
#include "runtime/graph/if_op.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Build = std::function<ValueId(GraphBuilder&, ValueId)>;

std::string op_of(const Build& build) {
  GraphBuilder b;
  b.output(build(b, b.input("x", {-1, 6, 1, 1})));
  return output_op(b.source(), 0);
}

ValueId softmax(GraphBuilder& b, ValueId x) { return b.node("Softmax", {x}, {{"axis", std::int64_t{1}}}); }

}  // namespace

TEST_CASE("output_op/behind what moves, converts or averages") {
  using Ints = std::vector<std::int64_t>;
  const std::pair<const char*, Build> kept[] = {
      {"nothing", [](GraphBuilder&, ValueId y) { return y; }},
      {"Identity", [](GraphBuilder& b, ValueId y) { return b.node("Identity", {y}); }},
      {"Reshape",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Reshape", {y, b.int64s({0, -1})});
       }},
      {"Flatten", [](GraphBuilder& b, ValueId y) { return b.node("Flatten", {y}); }},
      {"Squeeze",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Squeeze", {y, b.int64s({2, 3})});
       }},
      {"Unsqueeze",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Unsqueeze", {y, b.int64s({0})});
       }},
      {"Transpose",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Transpose", {y}, {{"perm", Ints{0, 2, 3, 1}}});
       }},
      {"Cast and back",
       [](GraphBuilder& b, ValueId y) {
         const ValueId half = b.node("Cast", {y}, {{"to", std::int64_t{10}}});
         return b.node("Cast", {half}, {{"to", std::int64_t{1}}});
       }},
      {"Q and DQ",
       [](GraphBuilder& b, ValueId y) {
         const ValueId zero = b.constant(Tensor::of<std::uint8_t>(Shape{}, {0})), scale = b.scalar(1.0F / 256);
         return b.node("DequantizeLinear", {b.node("QuantizeLinear", {y, scale, zero}), scale, zero});
       }},
      {"Slice",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Slice", {y, b.int64s({1}), b.int64s({9}), b.int64s({1})});
       }},
      {"Gather",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Gather", {y, b.int64s({2, 0})}, {{"axis", std::int64_t{1}}});
       }},
      {"Split",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Split", {y, b.int64s({2, 4})}, {{"axis", std::int64_t{1}}}, 13, 2) + 1;
       }},
      {"Clip",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Clip", {y, b.scalar(1e-7F), b.scalar(1)});
       }},
      {"Max with a constant",
       [](GraphBuilder& b, ValueId y) {
         return b.node("Max", {b.scalar(1e-7F), y});
       }},
      {"GlobalAveragePool", [](GraphBuilder& b, ValueId y) { return b.node("GlobalAveragePool", {y}); }},
      {"ReduceMean",
       [](GraphBuilder& b, ValueId y) {
         return b.node("ReduceMean", {y}, {{"axes", Ints{2, 3}}});
       }},
      {"Concat and Mean",
       [](GraphBuilder& b, ValueId y) {
         const ValueId two = b.node("Concat", {y, y}, {{"axis", std::int64_t{1}}});
         return b.node("Mean", {two, b.node("Identity", {two})});
       }},
  };
  for (const auto& one : kept) {
    const auto& name = one.first;  // clang 14 does not capture structured bindings
    const auto& after = one.second;
    CAPTURE(name);
    CHECK(op_of([&](GraphBuilder& b, ValueId x) { return after(b, softmax(b, x)); }) == "Softmax");
    CHECK(op_of([&](GraphBuilder& b, ValueId x) { return after(b, b.node("Sigmoid", {x})); }) == "Sigmoid");
    CHECK(op_of([&](GraphBuilder& b, ValueId x) { return after(b, b.node("Add", {x, b.scalar(1)})); }) == "Add");
    CHECK(op_of([&](GraphBuilder& b, ValueId x) { return after(b, x); }) == "");
  }
}

TEST_CASE("output_op/what is nearly a Sigmoid, or a mean of shares") {
  const std::pair<const char*, Build> rows[] = {
      {"Div",
       [](GraphBuilder& b, ValueId x) {
         return b.node("Div", {x, b.node("Add", {b.node("Exp", {x}), b.scalar(1)})});
       }},
      {"Reciprocal", [](GraphBuilder& b, ValueId x) { return b.node("Reciprocal", {x}); }},
      {"Reciprocal", [](GraphBuilder& b, ValueId x) { return b.node("Reciprocal", {b.node("Neg", {x})}); }},
      {"Reciprocal",
       [](GraphBuilder& b, ValueId x) {
         return b.node("Reciprocal", {b.node("Mul", {b.node("Exp", {x}), b.scalar(1)})});
       }},
      {"Reciprocal",
       [](GraphBuilder& b, ValueId x) {
         return b.node("Reciprocal", {b.node("Add", {x, b.scalar(1)})});
       }},
      {"Reciprocal",
       [](GraphBuilder& b, ValueId x) {
         return b.node("Reciprocal", {b.node("Add", {b.node("Exp", {x}), b.scalar(2)})});
       }},
      {"Mul",
       [](GraphBuilder& b, ValueId x) {
         return b.node("Mul", {b.node("Sum", {softmax(b, x)}), b.scalar(0.5F)});
       }},
      {"Mul", [](GraphBuilder& b, ValueId x) {
         return b.node("Mul", {softmax(b, x), softmax(b, x)});
       }}};
  for (const auto& row : rows) CHECK(op_of(row.second) == row.first);
}

TEST_CASE("output_op/what makes other numbers of a Softmax") {
  CHECK(op_of([](GraphBuilder& b, ValueId x) { return b.node("Mul", {softmax(b, x), x}); }) == "Mul");
  CHECK(op_of([](GraphBuilder& b, ValueId x) { return b.node("Log", {softmax(b, x)}); }) == "LogSoftmax");
  CHECK(op_of([](GraphBuilder& b, ValueId x) {
          return b.node("Concat", {softmax(b, x), x}, {{"axis", std::int64_t{1}}});
        }) == "");
  CHECK(op_of([](GraphBuilder& b, ValueId x) {  // Swish
          return b.node("Mul", {x, b.node("Sigmoid", {x})});
        }) == "Mul");
  CHECK(op_of([](GraphBuilder& b, ValueId) { return b.node("Identity", {b.scalar(1)}); }) == "");
}

TEST_CASE("output_op/a Softmax spelled out") {
  const auto spelled = [](const char* sum, bool of_other) {
    return op_of([&](GraphBuilder& b, ValueId x) {
      const std::vector<std::int64_t> axes{1};
      const ValueId most = b.node("ReduceMax", {x}, {{"axes", axes}});
      const ValueId power = b.node("Exp", {b.node("Sub", {x, most})});
      const ValueId over = of_other ? b.node("Exp", {x}) : power;
      const ValueId total =
          sum == std::string("ReduceSum") ? b.node(sum, {over, b.int64s({1})}) : b.node(sum, {over}, {{"axes", axes}});
      return b.node("Flatten", {b.node("Div", {power, total})});
    });
  };
  CHECK(spelled("ReduceSum", false) == "Softmax");
  CHECK(spelled("ReduceL1", false) == "Softmax");
  CHECK(spelled("ReduceMax", false) == "Div");
  CHECK(spelled("ReduceSum", true) == "Div");
  CHECK(op_of([](GraphBuilder& b, ValueId x) {
          return b.node("Exp", {b.node("LogSoftmax", {x}, {{"axis", std::int64_t{1}}})});
        }) == "Softmax");
}

TEST_CASE("output_op/probabilities that exporters write otherwise") {
  using B = GraphBuilder;
  const auto sigmoid = [](B& b, ValueId x) { return b.node("Sigmoid", {x}); };
  const auto sum = [](B& b, ValueId x) { return b.node("ReduceSum", {x, b.int64s({1})}); };
  // A head with one class.
  CHECK(op_of([&](B& b, ValueId x) {
          const ValueId p = sigmoid(b, x);
          return b.node("Concat", {b.node("Sub", {b.scalar(1), p}), p}, {{"axis", std::int64_t{1}}});
        }) == "Sigmoid");
  // The mean of several networks.
  for (const char* op : {"Add", "Sum"}) {
    CHECK(op_of([&](B& b, ValueId x) {
            return b.node("Mul", {b.scalar(0.5F), b.node(op, {softmax(b, x), softmax(b, b.node("Neg", {x}))})});
          }) == "Softmax");
    CHECK(op_of([&](B& b, ValueId x) {
            return b.node("Div", {b.node(op, {softmax(b, x), softmax(b, b.node("Neg", {x}))}), b.scalar(2)});
          }) == "Softmax");
    CHECK(op_of([&](B& b, ValueId x) { return b.node(op, {softmax(b, x), x}); }) == op);
  }
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Add", {softmax(b, x), sigmoid(b, x)}); }) == "Sum");
  // Divided by its own sum again, in another shape, with an epsilon, or multiplied by its inverse.
  CHECK(op_of([&](B& b, ValueId x) {
          const ValueId y = b.node("Softplus", {x});
          return b.node("Div", {y, b.node("Add", {b.node("Unsqueeze", {sum(b, y), b.int64s({1})}), b.scalar(1e-7F)})});
        }) == "Softmax");
  const std::pair<const char*, std::function<ValueId(B&, ValueId)>> on_the_way[] = {
      {"Softmax",
       [](B& b, ValueId s) {
         return b.node("Expand", {s, b.int64s({1, 6, 1, 1})});
       }},
      {"Softmax",
       [](B& b, ValueId s) {
         return b.node("Clip", {s, b.scalar(1e-7F), b.scalar(9)});
       }},
      {"Softmax",
       [](B& b, ValueId s) {
         return b.node("Max", {b.scalar(1e-7F), s});
       }},
      {"Div",
       [](B& b, ValueId s) {
         return b.node("Mul", {s, b.scalar(3)});
       }},
      {"Div", [](B& b, ValueId s) { return b.node("Sqrt", {s}); }},
      {"Softmax", [](B& b, ValueId s) { return b.node("Identity", {b.node("Identity", {b.node("Identity", {s})})}); }},
      {"Div",  // no further than four steps
       [](B& b, ValueId s) {
         for (int i = 0; i < 4; ++i) s = b.node("Identity", {s});
         return s;
       }}};
  for (const auto& [is, build] : on_the_way)
    CHECK(op_of([&, &way = build](B& b, ValueId x) {
            const ValueId y = b.node("Exp", {x});
            return b.node("Div", {y, way(b, sum(b, y))});
          }) == is);
  for (const bool first : {true, false})
    CHECK(op_of([&](B& b, ValueId x) {
            const ValueId y = b.node("Exp", {x}), inverse = b.node("Reciprocal", {sum(b, y)});
            return first ? b.node("Mul", {inverse, y}) : b.node("Mul", {y, inverse});
          }) == "Softmax");
  // Divided by another sum, or values that may be negative.
  CHECK(op_of([&](B& b, ValueId x) {
          return b.node("Mul", {b.node("Reciprocal", {sum(b, b.node("Exp", {x}))}), b.node("Softplus", {x})});
        }) == "Mul");
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Mul", {b.node("Reciprocal", {sum(b, x)}), x}); }) == "Mul");
  CHECK(op_of([&](B& b, ValueId x) {
          return b.node("LpNormalization", {x}, {{"p", std::int64_t{1}}});
        }) == "LpNormalization");
  CHECK(op_of([&](B& b, ValueId x) {
          return b.node("LpNormalization", {sigmoid(b, x)}, {{"p", std::int64_t{2}}});
        }) == "LpNormalization");
  CHECK(op_of([&](B& b, ValueId x) {
          return b.node("LpNormalization", {sigmoid(b, x)}, {{"p", std::int64_t{1}}, {"axis", std::int64_t{1}}});
        }) == "Softmax");
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Div", {x, sum(b, x)}); }) == "Div");
  // Spelled with other functions.
  CHECK(op_of([&](B& b, ValueId x) {
          const ValueId log = b.node("ReduceLogSumExp", {x}, {{"axes", std::vector<std::int64_t>{1}}});
          return b.node("Exp", {b.node("Sub", {x, log})});
        }) == "Softmax");
  for (const char* op : {"Div", "Reciprocal"})
    CHECK(op_of([&](B& b, ValueId x) {
            const ValueId y = b.node("Add", {b.node("Exp", {b.node("Neg", {x})}), b.scalar(1)});
            return op == std::string("Div") ? b.node(op, {b.scalar(1), y}) : b.node(op, {y});
          }) == "Sigmoid");
  // Operators that change nothing.
  CHECK(op_of([&](B& b, ValueId x) {
          const ValueId y = b.node("Add", {b.node("Mul", {softmax(b, x), b.scalar(1)}), b.scalar(1e-9F)});
          return b.node("Sub", {b.node("Div", {y, b.scalar(1)}), b.scalar(0)});
        }) == "Softmax");
  const std::pair<const char*, float> near[] = {{"Add", 0}, {"Sum", 0}, {"Sub", 0}, {"Mul", 1}, {"Div", 1}};
  for (const auto& [op, nothing] : near)
    for (const float off : {0.0F, 9e-4F, -9e-4F, 1.2e-3F, -1.2e-3F})
      CHECK(op_of([&, type = op, value = nothing + off](B& b, ValueId x) {
              return b.node(type, {softmax(b, x), b.scalar(value)});
            }) == (std::abs(off) < 1e-3F ? "Softmax" : op));
  // Only 1 - p is a probability again; 1 / p, 0 - p and p - 1 are not.
  for (const std::string op : {"Softmax", "Sigmoid", "HardSigmoid", "Hardmax"})
    CHECK(op_of([&](B& b, ValueId x) { return b.node("Sub", {b.scalar(1), b.node(op, {x})}); }) == op);
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Sub", {b.scalar(1), b.node("Exp", {x})}); }) == "Sub");
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Sub", {b.scalar(0), softmax(b, x)}); }) == "Sub");
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Sub", {softmax(b, x), b.scalar(1)}); }) == "Sub");
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Sum", {softmax(b, x), x, b.scalar(0)}); }) == "Sum");
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Div", {b.scalar(1), softmax(b, x)}); }) == "Div");
  CHECK(op_of([&](B& b, ValueId x) { return b.node("Mul", {softmax(b, x), b.scalar(3)}); }) == "Mul");
  // Where: a constant in one branch, or the same op in both.
  const auto where = [&](auto yes, auto no) {
    return op_of([&](B& b, ValueId x) {
      return b.node("Where", {b.node("Greater", {x, b.scalar(0)}), yes(b, x), no(b, x)});
    });
  };
  const auto zero = [](B& b, ValueId) { return b.scalar(0); };
  CHECK(where(softmax, zero) == "Softmax");
  CHECK(where(zero, softmax) == "Softmax");
  CHECK(where(softmax, softmax) == "Softmax");
  CHECK(where(softmax, sigmoid) == "");
}

TEST_CASE("output_op/branches of an If") {
  const auto branch = [](std::string_view op) {
    GraphBuilder b;
    const ValueId x = b.input("x", {-1, 6, 1, 1});
    b.output(op.empty() ? x : b.node(op, {x}));
    return IfOp::Branch{std::make_shared<const Graph>(b.source())};
  };
  const auto of = [&](IfOp::Branch then, IfOp::Branch other, const Tensor& condition = Tensor()) {
    GraphBuilder b;
    const ValueId x = b.input("x", {-1, 6, 1, 1});
    b.output(b.node("Identity", {softmax(b, x)}));
    const ValueId known = condition.empty() ? x : b.constant(condition);
    Graph graph = b.source();
    Node& node = graph.nodes.back();
    node.op = std::make_shared<IfOp>(std::move(then), std::move(other));
    node.inputs = {known, node.inputs[0]};
    return output_op(graph, 0);
  };
  CHECK(of(branch("Flatten"), branch("")) == "Softmax");
  CHECK(of(branch("Flatten"), branch("Sigmoid")) == "");
  CHECK(of(branch("Sigmoid"), branch("Sigmoid")) == "Sigmoid");
  // A known condition selects its branch if it is a single bool.
  const auto bools = [](const Shape& shape, bool value) {
    Tensor tensor(DType::boolean, shape);
    std::ranges::fill(tensor.values<bool>(), value);
    return tensor;
  };
  CHECK(of(branch("Flatten"), branch("Sigmoid"), bools(Shape{}, true)) == "Softmax");
  CHECK(of(branch("Flatten"), branch("Sigmoid"), bools(Shape{1}, false)) == "Sigmoid");
  CHECK(of(branch("Flatten"), branch("Sigmoid"), bools(Shape{2}, true)) == "");
  CHECK(of(branch("Flatten"), branch("Sigmoid"), Tensor::of<std::int64_t>(Shape{}, {1})) == "");
  CHECK(of(branch("Flatten"), {nullptr, Error(ErrorKind::unsupported, "no")}) == "Softmax");
}

TEST_CASE("output_op/a chain and a doubling chain of any length") {
  CHECK(op_of([](GraphBuilder& b, ValueId x) {
          ValueId y = softmax(b, x);
          for (int i = 0; i < 5000; ++i) y = b.node("Mean", {y, y});
          return y;
        }) == "Softmax");
}

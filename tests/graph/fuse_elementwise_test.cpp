// fuse_elementwise: elementwise nodes that follow each other become one step with the same bits; others stay.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph_builder.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// The functions of the graph's only chain.
std::string functions(const Graph& graph) {
  return attribute<std::string>(*only(graph, "ElementwiseChain").op, "functions").value_or("");
}

}  // namespace

TEST_CASE("fuse_elementwise/forms") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 7, 5}), z = b.input("z", {2, 6, 7, 5});
  std::string expected;
  std::size_t inputs = 1;
  SUBCASE("StarReLU") {
    const ValueId square = b.node("Pow", {b.node("Relu", {x}), b.scalar(2)});
    b.output(b.node("Add", {b.node("Mul", {b.scalar(0.9F), square}), b.scalar(-0.4F)}));
    expected = "relu+Square+Mul+Add";
  }
  SUBCASE("the end of GlobalResponseNorm") {
    const ValueId scaled = b.node("Mul", {b.weights({6, 1, 1}), b.node("Mul", {x, b.input("norm", {2, 6, 1, 1})})});
    b.output(b.node("Add", {x, b.node("Add", {b.weights({6, 1, 1}), scaled})}));
    expected = "Mul+Mul+Add+Add";
    inputs = 5;
  }
  SUBCASE("a gate, the residual and an activation") {
    const ValueId gated = b.node("Mul", {x, b.node("Sigmoid", {b.input("gate", {2, 6, 1, 1})})});
    b.output(b.node("Relu", {b.node("Add", {z, gated})}));
    expected = "Mul+Add+relu";
    inputs = 3;
  }
  SUBCASE("a gate that is expanded") {
    const ValueId wide = b.node("Expand", {b.input("gate", {2, 6, 1, 1}), b.int64s({2, 6, 7, 5})});
    b.output(b.node("Mul", {b.node("Mul", {wide, x}), b.scalar(2)}));
    expected = "Mul+Mul";
    inputs = 2;
  }
  SUBCASE("sums") {
    b.output(b.node("Relu", {b.node("Sum", {b.node("Add", {x, z}), b.input("w", {2, 6, 7, 5})})}));
    expected = "Add+Add+relu";
    inputs = 3;
  }
  SUBCASE("BatchNormalization before a sum") {
    b.output(b.node("Add", {x, b.batch_norm(z, 6)}));
    expected = "ScaleShift+Add";
    inputs = 4;
  }
  SUBCASE("BatchNormalization with an activation, and another") {
    Graph fused = after(
        [&] {
          b.output(b.batch_norm(b.node("LeakyRelu", {b.batch_norm(x, 6)}, {{"alpha", 0.2}}), 6));
          return b.build();
        }(),
        "fuse_activation");
    fused = after(fused, "fuse_elementwise");
    CHECK(functions(fused) == "ScaleShift+leaky_relu+ScaleShift");
    CHECK(worst_difference(after(b.build(), "fuse_activation"), fused) == 0);
    return;
  }
  SUBCASE("operands on the left") {
    const ValueId ratio = b.node("Div", {b.weights({7, 1}, 3, 0.1), b.node("Exp", {x})});
    b.output(b.node("Sub", {b.input("row", {5}), b.node("Max", {b.scalar(0.1F), ratio})}));
    expected = "Exp+Div+Max+Sub";
    inputs = 3;
  }
  SUBCASE("bounds that are constant") {
    const ValueId clipped = b.node("Clip", {x, b.scalar(-0.5F), b.scalar(0.5F)});
    b.output(b.node("PRelu", {b.node("Neg", {clipped}), b.weights({6, 1, 1})}));
    expected = "clip+Neg+PRelu";
    inputs = 2;
  }
  SUBCASE("the longer of two, which reads the other") {
    const ValueId first = b.node("Abs", {b.node("Tanh", {x})}), second = b.node("Sigmoid", {z});
    b.output(b.node("Mul", {second, first}));
    expected = "Tanh+Abs+Mul";
    inputs = 2;
  }
  const Graph before = b.build(), fused = after(before, "fuse_elementwise");
  CHECK(functions(fused) == expected);
  CHECK(only(fused, "ElementwiseChain").inputs.size() == inputs);
  CHECK(worst_difference(before, fused) == 0);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("fuse_elementwise/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 7, 5}), z = b.input("z", {2, 6, 7, 5});
  SUBCASE("one alone") { b.output(b.node("Mul", {x, z})); }
  SUBCASE("what others read") {
    const ValueId y = b.node("Tanh", {x});
    b.output(b.node("Mul", {y, z}));
    b.output(b.node("Transpose", {y}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}}));
  }
  SUBCASE("an output of the network") {
    const ValueId y = b.node("Tanh", {x});
    b.output(y);
    b.output(b.node("Mul", {y, z}));
  }
  SUBCASE("read twice") {
    const ValueId y = b.node("Tanh", {x});
    b.output(b.node("Mul", {y, y}));
  }
  SUBCASE("a value that broadcasts") { b.output(b.node("Mul", {x, b.node("Tanh", {b.input("gate", {2, 6, 1, 1})})})); }
  SUBCASE("both broadcast") {
    b.output(b.node("Relu", {b.node("Add", {b.input("column", {7, 1}), b.input("row", {1, 5})})}));
  }
  SUBCASE("an activation without a kernel here, and a power") {
    b.output(b.node("Pow", {b.node("Elu", {x}), b.scalar(3)}));
  }
  SUBCASE("computed bounds") { b.output(b.node("Clip", {b.node("Tanh", {x}), b.input("low", {})})); }
  SUBCASE("other types") {
    const ValueId whole = b.input("whole", {2, 3}, DType::i64);
    b.output(b.node("Cast", {b.node("Abs", {b.node("Neg", {whole})})}, {{"to", std::int64_t{1}}}));
  }
  SUBCASE("statistics that are computed") {
    const ValueId c = b.input("c", {6});
    b.output(b.node("Add", {b.node("BatchNormalization", {x, c, c, c, b.weights({6}, 4, 0.5)}), z}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_elementwise");
  CHECK(count(fused, "ElementwiseChain") == 0);
  CHECK(fused.nodes.size() == before.nodes.size());
}

TEST_CASE("fuse_elementwise/limits") {
  GraphBuilder b;
  ValueId y = b.input("x", {1, 4, 3, 3});
  SUBCASE("eight functions") {
    for (int i = 0; i < 17; ++i) y = b.node(i % 2 == 0 ? "Tanh" : "Neg", {y});
  }
  SUBCASE("four operands") {
    for (int i = 0; i < 9; ++i) y = b.node("Add", {y, b.weights({4, 1, 1})});
  }
  b.output(y);
  const Graph before = b.build(), fused = after(before, "fuse_elementwise");
  CHECK(count(fused, "ElementwiseChain") == 2);
  CHECK(fused.nodes.size() == 3);
  CHECK(worst_difference(before, fused) == 0);
}

// Steps of an Expand's own shape read what it read.
TEST_CASE("fuse_elementwise/expanded_operands") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 7, 5}), gate = b.input("gate", {2, 6, 1, 1});
  const ValueId wide = b.node("Expand", {gate, b.int64s({2, 6, 7, 5})});
  std::size_t expands = 0;
  SUBCASE("of one step") { b.output(b.node("Div", {x, wide})); }
  SUBCASE("on the left") { b.output(b.node("Sub", {wide, x})); }
  SUBCASE("which others read") {
    expands = 1;
    b.output(b.node("Sub", {wide, x}));
    b.output(b.node("Softmax", {wide}));
  }
  SUBCASE("beside a smaller value") {
    expands = 1;
    b.output(b.node("Mul", {wide, gate}));
  }
  SUBCASE("beside another") {
    expands = 2;
    b.output(b.node("Mul", {wide, b.node("Expand", {b.input("row", {5}), b.int64s({2, 6, 7, 5})})}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_elementwise");
  CHECK(count(fused, "Expand") == static_cast<int>(expands));
  CHECK(worst_difference(before, fused) == 0);
}

TEST_CASE("fuse_elementwise/batch_norm_stays_alone_on_cuda") {
  const PassContext cuda{.target = {reference_gpu(), parse_numerics("fp16")}, .device = "cuda:0"};
  GraphBuilder b;
  const ValueId z = b.input("z", {2, 16, 7, 5}), gated = b.node("Mul", {b.input("x", {2, 16, 7, 5}), z});
  b.output(b.node("Relu", {b.node("Add", {gated, b.batch_norm(z, 16)})}));
  const Graph before = b.build(2), fused = after(before, "fuse_elementwise", cuda);
  CHECK(count(fused, "BatchNormalization") == 1);
  CHECK(functions(fused) == "Mul+Add+relu");
  CHECK(count(after(before, "fuse_elementwise"), "ElementwiseChain") == 1);
}

// An epsilon, in float32 beside values of 16 bits.
TEST_CASE("fuse_elementwise/numbers_that_16_bits_cannot_hold") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {2, 8, 5, 6}), 8, 8, 3, 1);
  bool alone = true;
  SUBCASE("a sum") { b.output(b.conv(b.node("Add", {x, b.scalar(1e-6F)}), 8, 8, 1)); }
  SUBCASE("a lower bound") { b.output(b.conv(b.node("Clip", {x, b.scalar(1e-12F)}), 8, 8, 1)); }
  SUBCASE("a factor") { b.output(b.conv(b.node("Mul", {b.scalar(1e6F), x}), 8, 8, 1)); }
  SUBCASE("one that they hold") {
    b.output(b.conv(b.node("Add", {x, b.scalar(0.3F)}), 8, 8, 1));
    alone = false;
  }
  SUBCASE("no upper bound") {
    b.output(b.conv(b.node("Clip", {x, b.scalar(-0.5F)}), 8, 8, 1));
    alone = false;
  }
  const Graph before = b.build(2);
  const auto chains = [&](const char* precision) {
    const PassContext cuda{.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"};
    const Graph fused = after(before, "fuse_elementwise", cuda);
    CHECK(worst_difference(before, fused) < 1e-6);
    return count(fused, "ElementwiseChain");
  };
  CHECK(chains("fp16") == (alone ? 1 : 0));
  CHECK(chains("bf16") == 0);
  CHECK(chains("fp32") == 0);
  CHECK(count(after(before, "fuse_elementwise"), "ElementwiseChain") == 0);
}

// Pixels with a padded pitch are not for operators with constants by channels.
TEST_CASE("fuse_elementwise/cuda_with_padded_pixels") {
  const PassContext cuda{.target = {reference_gpu(), parse_numerics("fp16")}, .device = "cuda:0"};
  for (const std::int64_t channels : {12, 16}) {
    GraphBuilder b;
    const ValueId x = b.conv(b.input("x", {1, 8, 9, 9}), 8, channels, 3, 1);
    const ValueId scaled = b.node("Mul", {x, b.input("gate", {1, channels, 1, 1})});
    b.output(b.conv(b.node("Relu", {b.node("Add", {scaled, b.weights({channels, 1, 1})})}), channels, 8, 1));
    b.output(b.conv(b.node("Relu", {b.node("Add", {x, b.input("z", {1, channels, 9, 9})})}), channels, 8, 1));
    const Graph before = b.build();
    const Graph fused = after(before, "fuse_elementwise", cuda);
    CHECK(count(fused, "ElementwiseChain") == (channels == 16 ? 2 : 1));
    CHECK(count(after(before, "fuse_elementwise"), "ElementwiseChain") == 2);
    for (const char* precision : {"fp32", "tf32", "fp16", "bf16"}) {
      const PassContext context{.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"};
      const Graph all = after_all(before, context), apart = after_all(before, context, {"fuse_elementwise"});
      for (const char* op : {"Cast", "LayoutConvert"}) CHECK(count(all, op) <= count(apart, op));
    }
  }
}

TEST_CASE("fuse_elementwise/drawn_graphs") {
  std::mt19937 generator(random_seed());
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(generator() % count); };
  const char* const alone[] = {"Relu", "Tanh", "Abs", "Neg", "Sigmoid", "Erf", "Softplus", "HardSwish", "Gelu", "Elu"};
  const char* const with_another[] = {"Add", "Sub", "Mul", "Max", "Min", "PRelu"};
  for (int round = 0; round < 60; ++round) {
    GraphBuilder b;
    const Shape image{2, 5, 4, 3};
    const Shape shapes[] = {image, {}, {5, 1, 1}, {2, 5, 1, 1}, {2, 1, 4, 3}, {3}, {4, 1}};
    std::vector<ValueId> values{b.input("x", {2, 5, 4, 3})};
    for (int i = 0; i < 14; ++i) {
      // Mostly the newest value, so that there are chains.
      const ValueId v = below(4) == 0 ? values[below(values.size())] : values.back();
      const std::size_t kind = below(8);
      if (kind == 0) {
        values.push_back(b.conv(v, 5, 5, 3, 1));
      } else if (kind == 1) {
        values.push_back(b.batch_norm(v, 5));
      } else if (kind < 4) {
        values.push_back(b.node(alone[below(std::size(alone))], {v}, {}, 20));
      } else {
        const Shape& shape = shapes[below(std::size(shapes))];
        const ValueId other = below(3) == 0 ? values[below(values.size())] : b.weights(shape);
        const char* const op = with_another[below(std::size(with_another))];
        const bool reversed = below(2) == 0 && std::string(op) != "PRelu";
        values.push_back(b.node(op, {reversed ? other : v, reversed ? v : other}));
      }
      if (below(10) == 0) b.output(values.back());
    }
    b.output(values.back());
    const Graph before = b.build(2), fused = after(before, "fuse_elementwise");
    CAPTURE(round);
    CHECK(worst_difference(before, fused) == 0);
    CHECK(worst_difference(before, after_all(before)) < 1e-4);
    CHECK(worst_difference(after_all(before, {"fuse_elementwise"}), after_all(before)) < 1e-4);
  }
}

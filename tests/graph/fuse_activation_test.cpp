#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Kind = Activation::Kind;
using Spelling = std::function<ValueId(GraphBuilder&, ValueId)>;

/// Clip(x + 3, 0, 6).
ValueId relu6_plus_three(GraphBuilder& b, ValueId x) {
  return b.node("Clip", {b.node("Add", {x, b.scalar(3)}), b.scalar(0), b.scalar(6)});
}

struct Case {
  std::string name;
  Kind kind;
  Spelling spell;
};

const Case cases[] = {
    {"Relu", Kind::relu, [](auto& b, auto x) { return b.node("Relu", {x}); }},
    {"Clip", Kind::clip,
     [](auto& b, auto x) {
       return b.node("Clip", {x, b.scalar(0), b.scalar(6)});
     }},
    {"Clip opset 6", Kind::clip,
     [](auto& b, auto x) {
       return b.node("Clip", {x}, {{"min", -1.0}, {"max", 1.0}}, 6);
     }},
    {"LeakyRelu", Kind::leaky_relu,
     [](auto& b, auto x) {
       return b.node("LeakyRelu", {x}, {{"alpha", 0.1}});
     }},
    {"Sigmoid", Kind::sigmoid, [](auto& b, auto x) { return b.node("Sigmoid", {x}); }},
    {"HardSigmoid", Kind::hard_sigmoid,
     [](auto& b, auto x) {
       return b.node("HardSigmoid", {x}, {{"alpha", 0.25}});
     }},
    {"Gelu", Kind::gelu, [](auto& b, auto x) { return b.node("Gelu", {x}, {}, 20); }},
    {"HardSwish", Kind::hard_swish, [](auto& b, auto x) { return b.node("HardSwish", {x}, {}, 14); }},
    {"x * Sigmoid(x)", Kind::silu,
     [](auto& b, auto x) {
       return b.node("Mul", {x, b.node("Sigmoid", {x})});
     }},
    {"Sigmoid(x) * x", Kind::silu,
     [](auto& b, auto x) {
       return b.node("Mul", {b.node("Sigmoid", {x}), x});
     }},
    {"x * HardSigmoid(x)", Kind::hard_swish,
     [](auto& b, auto x) {
       return b.node("Mul", {x, b.node("HardSigmoid", {x}, {{"alpha", 1.0 / 6}, {"beta", 0.5}})});
     }},
    {"x * (Clip / 6)", Kind::hard_swish,
     [](auto& b, auto x) {
       return b.node("Mul", {x, b.node("Div", {relu6_plus_three(b, x), b.scalar(6)})});
     }},
    {"(x * Clip) / 6", Kind::hard_swish,
     [](auto& b, auto x) {
       return b.node("Div", {b.node("Mul", {x, relu6_plus_three(b, x)}), b.scalar(6)});
     }},
    {"(x * Clip) * (1/6)", Kind::hard_swish,
     [](auto& b, auto x) {
       return b.node("Mul", {b.node("Mul", {relu6_plus_three(b, x), x}), b.scalar(0.16666667F)});
     }},
    {"(x / 6) * Clip", Kind::hard_swish,
     [](auto& b, auto x) {
       return b.node("Mul", {b.node("Div", {x, b.scalar(6)}), relu6_plus_three(b, x)});
     }},
    {"constants first", Kind::hard_swish,
     [](auto& b, auto x) {
       const ValueId sum = b.node("Add", {b.scalar(3), x});
       return b.node("Mul",
                     {b.scalar(0.16666667F), b.node("Mul", {x, b.node("Clip", {sum, b.scalar(0), b.scalar(6)})})});
     }},
    {"Gelu by tanh", Kind::gelu_tanh,
     [](auto& b, auto x) {
       return b.node("Gelu", {x}, {{"approximate", std::string("tanh")}}, 20);
     }},
    {"x * Sigmoid(1.702 x)", Kind::swish,
     [](auto& b, auto x) {
       return b.node("Mul", {x, b.node("Sigmoid", {b.node("Mul", {b.scalar(1.702F), x})})});
     }},
    {"a Relu(x) + b", Kind::affine_relu,
     [](auto& b, auto x) {
       return b.node("Add", {b.weights(Shape{1}), b.node("Mul", {b.node("Relu", {x}), b.weights(Shape{1})})});
     }},
    {"a Relu(x)^2 + b", Kind::star_relu,
     [](auto& b, auto x) {
       const ValueId square = b.node("Pow", {b.node("Relu", {x}), b.scalar(2)});
       return b.node("Add", {b.node("Mul", {b.weights(Shape{1}), square}), b.weights(Shape{1})});
     }},
    {"Relu(x)^2", Kind::star_relu,
     [](auto& b, auto x) {
       const ValueId root = b.node("Relu", {x});
       return b.node("Mul", {root, root});
     }},
    {"Clip / 6", Kind::hard_sigmoid,
     [](auto& b, auto x) {
       return b.node("Div", {relu6_plus_three(b, x), b.scalar(6)});
     }},
};

}  // namespace

TEST_CASE("fuse_activation/into_conv") {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    GraphBuilder b;
    b.output(c.spell(b, b.conv(b.input("x", {2, 4, 5, 7}), 4, 6, 3, 1)));
    const Graph before = b.build(), fused = after(before, "fuse_activation");
    CHECK(fused.nodes.size() == 1);
    CHECK(only(fused, "Conv").op->epilogue()->activation.kind == c.kind);
    CHECK(only(fused, "Conv").name == only(before, "Conv").name);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

// The products of their factors are no float32.
TEST_CASE("fuse_activation/factors_of_relu_that_do_not_meet") {
  for (const float factor : {1e20F, 1e-30F}) {
    GraphBuilder b;
    ValueId y = b.node("Relu", {b.input("x", {2, 4, 5, 7})});
    for (int i = 0; i < 2; ++i) y = b.node("Mul", {y, b.scalar(i == 0 ? factor : 0.5F * factor)});
    b.output(y);
    const Graph before = b.build(), fused = after(before, "fuse_activation");
    CHECK(fused.nodes.size() == 2);
  }
}

TEST_CASE("fuse_activation/through_moves_into_conv") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {2, 3, 5, 7}), 3, 6, 3);
  const ValueId turned = b.node("Transpose", {x}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}});
  const ValueId tokens = b.node("Reshape", {turned, b.int64s({2, 15, 6})});
  b.output(b.node("Mul", {tokens, b.node("Sigmoid", {tokens})}));
  int convs_alone = 0;
  SUBCASE("read once") {}
  SUBCASE("a move that others read") {
    b.output(b.node("Relu", {turned}));
    convs_alone = 1;
  }
  SUBCASE("a move that is an output") {
    b.output(tokens);
    convs_alone = 1;
  }
  const Graph before = b.build(), graph = after(before, "fuse_activation");
  CHECK(count(graph, "SiLU") == convs_alone);
  CHECK((only(graph, "Conv").op->epilogue()->activation.kind == Activation::Kind::silu) == (convs_alone == 0));
  CHECK(count(graph, "Transpose") == 1);
  CHECK(worst_difference(before, graph) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// Pre-activation: x is also read raw.
TEST_CASE("fuse_activation/into_batch_norm") {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    GraphBuilder b;
    const ValueId x = b.conv(b.input("x", {2, 4, 5, 7}), 4, 6, 3, 1);
    b.output(b.node("Add", {x, b.conv(c.spell(b, b.batch_norm(x, 6)), 6, 6, 1)}));
    const Graph before = b.build(), fused = after(before, "fuse_activation");
    CHECK(fused.nodes.size() == 4);
    CHECK(only(fused, "BatchNormalization").op->epilogue()->activation.kind == c.kind);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_activation/into_group_and_instance_norm") {
  for (const Case& c : cases)
    for (const bool group : {true, false}) {
      CAPTURE(c.name);
      GraphBuilder b;
      const ValueId x = b.input("x", {2, 6, 5, 7});
      const ValueId y = group ? b.node("GroupNormalization", {x, b.weights({6}), b.weights({6})},
                                       {{"num_groups", std::int64_t{3}}}, 21)
                              : b.node("InstanceNormalization", {x, b.weights({6}), b.weights({6})});
      b.output(b.conv(c.spell(b, y), 6, 4, 3, 1));
      const Graph before = b.build(), fused = after(before, "fuse_activation");
      CHECK(fused.nodes.size() == 2);
      CHECK(fused.nodes[0].op->epilogue()->activation.kind == c.kind);
      CHECK(worst_difference(before, fused) < 1e-5);
      CHECK(worst_difference(before, after_all(before)) < 1e-5);
    }
}

// It has an activation alone: no scale or residual goes into it.
TEST_CASE("fuse_activation/batch_norm_takes_nothing_else") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 5, 7});
  b.output(b.node("Mul", {b.batch_norm(x, 6), b.weights({6, 1, 1})}));
  b.output(b.node("Add", {x, b.batch_norm(x, 6)}));
  const Graph before = b.build();
  CHECK(after(after(before, "fold_scale"), "fuse_residual").nodes.size() == 4);
}

TEST_CASE("fuse_activation/into_gemm") {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    GraphBuilder b;
    b.output(c.spell(b, b.node("Gemm", {b.input("x", {3, 5}), b.weights({5, 7}), b.weights({7})})));
    const Graph before = b.build(), fused = after(before, "fuse_activation");
    CHECK(fused.nodes.size() == 1);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_activation/standalone_groups_become_one_node") {
  for (const Case& c : cases) {
    CAPTURE(c.name);
    GraphBuilder b;
    b.output(c.spell(b, b.input("x", {2, 4, 5, 7})));
    const Graph before = b.build(), fused = after(before, "fuse_activation");
    CHECK(fused.nodes.size() == 1);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_activation/stays") {
  GraphBuilder b;
  const ValueId y = b.conv(b.input("x", {1, 4, 6, 6}), 4, 4, 3, 1);
  SUBCASE("the sum is a graph output") {
    b.output(y);
    b.output(b.node("Relu", {y}));
  }
  SUBCASE("two readers") {
    b.output(b.node("Relu", {y}));
    b.output(b.node("Sigmoid", {y}));
  }
  SUBCASE("bounds computed by the network") {
    b.output(b.node("Clip", {y, b.node("Neg", {b.input("bound", {})}), no_id}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_activation");
  CHECK(fused.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, fused) == 0);
}

TEST_CASE("fuse_activation/near_misses_keep_their_value") {
  GraphBuilder b;
  const ValueId y = b.conv(b.input("x", {1, 4, 6, 6}), 4, 4, 3, 1);
  const ValueId other = b.input("z", {1, 4, 6, 6});
  const auto clip = [&](ValueId x, float add, float high) {
    return b.node("Clip", {b.node("Add", {x, b.scalar(add)}), b.scalar(0), b.scalar(high)});
  };
  SUBCASE("sigmoid of another") { b.output(b.node("Mul", {y, b.node("Sigmoid", {other})})); }
  SUBCASE("over its sigmoid") { b.output(b.node("Div", {y, b.node("Sigmoid", {y})})); }
  SUBCASE("its sigmoid over it") { b.output(b.node("Div", {b.node("Sigmoid", {y}), y})); }
  SUBCASE("a sixth times the clip of another") {
    b.output(b.node("Mul", {b.node("Div", {y, b.scalar(6)}), clip(other, 3, 6)}));
  }
  SUBCASE("of another over six") { b.output(b.node("Div", {b.node("Mul", {other, clip(y, 3, 6)}), b.scalar(6)})); }
  SUBCASE("plus four") { b.output(b.node("Mul", {y, b.node("Div", {clip(y, 4, 6), b.scalar(6)})})); }
  SUBCASE("up to five") { b.output(b.node("Mul", {y, b.node("Div", {clip(y, 3, 5), b.scalar(6)})})); }
  SUBCASE("over five") { b.output(b.node("Mul", {y, b.node("Div", {clip(y, 3, 6), b.scalar(5)})})); }
  SUBCASE("six over clip") { b.output(b.node("Div", {b.scalar(6), b.node("Add", {clip(y, 3, 6), b.scalar(1)})})); }
  SUBCASE("a sixth of an input") { b.output(b.node("Div", {other, b.scalar(6)})); }
  SUBCASE("a sixth of a product of others") { b.output(b.node("Div", {b.node("Mul", {y, other}), b.scalar(6)})); }
  SUBCASE("a sixth that widens") {
    const ValueId six = b.constant(Tensor::of<float>(Shape{1, 1, 1, 1, 1}, {6}));
    b.output(b.node("Mul", {y, b.node("Div", {clip(y, 3, 6), six})}));
  }
  SUBCASE("by channel") {
    const ValueId sixes = b.constant(Tensor::of<float>(Shape{4, 1, 1}, {6, 6, 6, 7}));
    b.output(b.node("Mul", {y, b.node("Div", {clip(y, 3, 6), sixes})}));
  }
  SUBCASE("another slope, another middle") {
    b.output(b.node("Mul", {y, b.node("HardSigmoid", {y}, {{"alpha", 0.2}, {"beta", 0.5}})}));
    b.output(b.node("Mul", {other, b.node("HardSigmoid", {other}, {{"alpha", 1.0 / 6}, {"beta", 0.4}})}));
  }
  SUBCASE("inside is a graph output") {
    const ValueId s = b.node("Sigmoid", {y});
    b.output(s);
    b.output(b.node("Mul", {y, s}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_activation");
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_activation/six_over_it_is_no_sixth_nor_what_is_near_one") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4});
  b.output(b.node("Div", {b.scalar(6), relu6_plus_three(b, x)}));
  b.output(b.node("Mul", {b.scalar(0.166668F), relu6_plus_three(b, x)}));
  CHECK(after(b.build(), "fuse_activation").nodes.size() == 6);
}

TEST_CASE("fuse_activation/a_quotient_is_no_product") {
  GraphBuilder b;
  const ValueId y = b.input("x", {1, 4});
  b.output(b.node("Div", {b.node("Div", {y, b.scalar(6)}), relu6_plus_three(b, y)}));
  CHECK(after(b.build(), "fuse_activation").nodes.size() == 4);
}

namespace {

/// A node of two inputs.
ValueId two(GraphBuilder& b, const char* type, ValueId x, ValueId y) { return b.node(type, {x, y}); }
ValueId one_plus(GraphBuilder& b, ValueId f) { return two(b, "Add", f, b.scalar(1)); }
ValueId erf_of(GraphBuilder& b, ValueId x) { return b.node("Erf", {two(b, "Div", x, b.scalar(1.41421356F))}); }
/// sqrt(2 / pi) * (x + 0.044715 * cube)
ValueId tanh_of(GraphBuilder& b, ValueId x, ValueId cube) {
  const ValueId sum = two(b, "Add", x, two(b, "Mul", b.scalar(0.044715F), cube));
  return b.node("Tanh", {two(b, "Mul", sum, b.scalar(0.79788456F))});
}
ValueId half(GraphBuilder& b, ValueId x) { return two(b, "Mul", x, b.scalar(0.5F)); }

struct Spelled {
  const char* name;
  const char* op;
  Spelling spell;
};

const Spelled spelled[] = {
    {"PyTorch's GELU", "Gelu", [](auto& b, auto x) { return half(b, two(b, "Mul", x, one_plus(b, erf_of(b, x)))); }},
    {"x / 2 first", "Gelu", [](auto& b, auto x) { return two(b, "Mul", one_plus(b, erf_of(b, x)), half(b, x)); }},
    {"the sum halved, 1 first", "Gelu",
     [](auto& b, auto x) {
       const ValueId argument = two(b, "Mul", b.scalar(0.70710678F), x);
       return two(b, "Mul", x, half(b, two(b, "Add", b.scalar(1), b.node("Erf", {argument}))));
     }},
    {"over two", "Gelu",
     [](auto& b, auto x) { return two(b, "Div", two(b, "Mul", x, one_plus(b, erf_of(b, x))), b.scalar(2)); }},
    {"multiplied out", "Gelu",
     [](auto& b, auto x) { return half(b, two(b, "Add", x, two(b, "Mul", x, erf_of(b, x)))); }},
    {"of a product", "Gelu",
     [](auto& b, auto x) {
       const ValueId y = two(b, "Mul", x, b.scalar(3));
       return half(b, two(b, "Mul", y, one_plus(b, erf_of(b, y))));
     }},
    {"tanh, Pow", "Gelu",
     [](auto& b, auto x) {
       return half(b, two(b, "Mul", x, one_plus(b, tanh_of(b, x, two(b, "Pow", x, b.scalar(3))))));
     }},
    {"tanh, products", "Gelu",
     [](auto& b, auto x) {
       const ValueId cube = two(b, "Mul", x, two(b, "Mul", x, x));
       return two(b, "Mul", half(b, x), one_plus(b, tanh_of(b, x, cube)));
     }},
    {"x * Sigmoid(1.702 x)", "Swish",
     [](auto& b, auto x) { return two(b, "Mul", x, b.node("Sigmoid", {two(b, "Mul", b.scalar(1.702F), x)})); }},
};

}  // namespace

TEST_CASE("fuse_activation/gelu_and_swish_become_one_node") {
  for (const Spelled& c : spelled) {
    CAPTURE(c.name);
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 4, 5, 7});
    b.output(c.spell(b, x));
    const Graph before = b.build(), fused = after(before, "fuse_activation");
    CHECK(only(fused, c.op).inputs.size() == 1);
    CHECK(fused.nodes.size() == (std::string(c.name) == "of a product" ? 2U : 1U));
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_activation/no_gelu") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, 5, 7}), z = b.input("z", {2, 4, 5, 7});
  SUBCASE("of another") { b.output(half(b, two(b, "Mul", z, one_plus(b, erf_of(b, x))))); }
  SUBCASE("not halved") { b.output(two(b, "Mul", x, one_plus(b, erf_of(b, x)))); }
  SUBCASE("a third") { b.output(two(b, "Div", two(b, "Mul", x, one_plus(b, erf_of(b, x))), b.scalar(3))); }
  SUBCASE("plus two") { b.output(half(b, two(b, "Mul", x, two(b, "Add", erf_of(b, x), b.scalar(2))))); }
  SUBCASE("another width") {
    b.output(half(b, two(b, "Mul", x, one_plus(b, b.node("Erf", {two(b, "Div", x, b.scalar(1.4142F))})))));
  }
  SUBCASE("the function squared") {
    const ValueId f = erf_of(b, x);
    b.output(half(b, two(b, "Mul", x, two(b, "Add", f, two(b, "Mul", f, f)))));
  }
  SUBCASE("by channel") {
    const ValueId halves = b.constant(Tensor::of<float>(Shape{4, 1, 1}, {0.5F, 0.5F, 0.5F, 0.25F}));
    b.output(two(b, "Mul", halves, two(b, "Mul", x, one_plus(b, erf_of(b, x)))));
  }
  SUBCASE("a constant that widens") {
    const ValueId wide = b.constant(Tensor::of<float>(Shape{1, 1, 1, 1, 1}, {0.5F}));
    b.output(two(b, "Mul", wide, two(b, "Mul", x, one_plus(b, erf_of(b, x)))));
  }
  SUBCASE("a fourth power") {
    const ValueId square = two(b, "Mul", x, x);
    b.output(half(b, two(b, "Mul", x, one_plus(b, tanh_of(b, x, two(b, "Mul", square, square))))));
  }
  SUBCASE("of a square root") {
    b.output(half(b, two(b, "Mul", x, one_plus(b, tanh_of(b, x, two(b, "Pow", x, b.scalar(0.5F)))))));
  }
  SUBCASE("the slope varies") { b.output(two(b, "Mul", x, b.node("Sigmoid", {two(b, "Mul", z, x)}))); }
  const Graph before = b.build(), fused = after(before, "fuse_activation");
  CHECK(fused.nodes.size() == before.nodes.size());
}

TEST_CASE("fuse_activation/a_file_of_halves_rounds_gelus_constants") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, 5, 7});
  const ValueId f = b.node("Erf", {two(b, "Div", x, b.scalar(1.4140625F))});  // sqrt(2) in float16
  b.output(half(b, two(b, "Mul", x, one_plus(b, f))));
  Graph graph = b.build();
  CHECK(after(graph, "fuse_activation").nodes.size() == 5);
  graph.value(graph.outputs[0]).file_type = DType::f16;
  CHECK(only(after(graph, "fuse_activation"), "Gelu").inputs.size() == 1);
}

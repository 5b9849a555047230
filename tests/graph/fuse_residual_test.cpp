#include <doctest/doctest.h>

#include <string_view>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("fuse_residual/block_with_relu") {
  for (const bool conv_first : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 8, 7, 5});
    const ValueId y = b.conv(b.node("Relu", {b.conv(x, 8, 8, 3, 1)}), 8, 8, 3, 1);
    b.output(b.node("Relu", {conv_first ? b.node("Add", {y, x}) : b.node("Add", {x, y})}));
    const Graph before = b.build(), fused = after(after(before, "fuse_activation"), "fuse_residual");
    CHECK(fused.nodes.size() == 2);
    CHECK(fused.nodes[1].inputs.size() == 4);
    CHECK(fused.nodes[1].op->epilogue()->activation.kind == Activation::Kind::relu);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_residual/the_later_of_two_convolutions") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 8, 8});
  const ValueId main = b.conv(b.conv(x, 8, 16, 3, 1, 2), 16, 16, 3, 1), shortcut = b.conv(x, 8, 16, 1, 0, 2);
  b.output(b.node("Relu", {b.node("Add", {main, shortcut})}));
  const Graph before = b.build(), fused = after(before, "fuse_residual");
  CHECK(fused.nodes.size() == 3);
  CHECK(fused.nodes[2].inputs[3] == main);
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_residual/operand_made_after_the_convolution") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6}), y = b.conv(x, 4, 4, 3, 1), z = b.node("Sigmoid", {x});
  b.output(b.node("Add", {y, z}));
  const Graph before = b.build(), fused = after(before, "fuse_residual");
  CHECK(fused.nodes.size() == 2);
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_residual/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6}), y = b.conv(x, 4, 4, 3, 1);
  SUBCASE("broadcast") { b.output(b.node("Add", {y, b.input("z", {1, 4, 1, 1})})); }
  SUBCASE("convolution broadcast") { b.output(b.node("Add", {y, b.input("z", {2, 4, 6, 6})})); }
  SUBCASE("used elsewhere") {
    b.output(b.node("Add", {y, x}));
    b.output(b.node("Sigmoid", {y}));
  }
  SUBCASE("graph output") {
    b.output(b.node("Add", {y, x}));
    b.output(y);
  }
  SUBCASE("constant") { b.output(b.node("Add", {b.weights({1, 4, 6, 6}), y})); }
  SUBCASE("other arithmetic") {
    b.output(b.node("Sub", {y, x}));
    b.output(b.node("Max", {b.conv(x, 4, 4, 1), x}));
  }
  SUBCASE("three") { b.output(b.node("Sum", {y, x, b.node("Neg", {x})})); }
  SUBCASE("to a product that adds nothing") {
    const ValueId rows = b.input("rows", {3, 5});
    b.output(b.node("Add", {b.node("Gemm", {rows, b.weights({5, 5}), b.weights({5})}), rows}));
    b.output(y);
  }
  SUBCASE("an activation alone") { b.output(b.node("Relu", {y})); }
  SUBCASE("twice itself") { b.output(b.node("Add", {y, y})); }
  const Graph before = b.build(), fused = after(before, "fuse_residual");
  CHECK(fused.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, fused) == 0);
}

TEST_CASE("fuse_residual/one_sum_a_convolution") {
  for (const bool bias : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {1, 4, 6, 6}), z = b.input("z", {1, 4, 6, 6}), w = b.weights({4, 4, 1, 1});
    const ValueId y = bias ? b.node("Conv", {x, w, b.weights({4})}) : b.node("Conv", {x, w});
    b.output(b.node("Relu", {b.node("Add", {b.node("Sum", {y, z}), x})}));
    const Graph before = b.build(), fused = after(before, "fuse_residual");
    INFO(fused.dump());
    REQUIRE(fused.nodes.size() == 3);
    CHECK(fused.nodes[0].inputs[3] == z);
    CHECK(fused.nodes[0].name == before.nodes[0].name);
    CHECK(fused.nodes[1].type() == "Add");
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_residual/not_after_an_activation") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6});
  b.output(b.node("Add", {b.node("Relu", {b.conv(x, 4, 4, 3, 1)}), x}));
  const Graph before = b.build(), fused = after(after(before, "fuse_activation"), "fuse_residual");
  CHECK(fused.nodes.size() == 2);
  CHECK(worst_difference(before, fused) < 1e-5);
}

// The last stages of TinyViT and GCViT: an image of [N,H,W,C] is one window of tokens for the product.
TEST_CASE("fuse_residual/behind_views_of_tokens") {
  constexpr std::int64_t n = 3;
  GraphBuilder b;
  const ValueId x = b.node("Relu", {b.input("x", {n, 3, 4, 8})});
  const ValueId tokens = b.node("Reshape", {x, b.int64s({n, 12, 8})});
  const ValueId product = b.node("Add", {b.node("MatMul", {tokens, b.weights(Shape{8, 8})}), b.weights(Shape{8})});
  ValueId seen = b.node("Reshape", {product, b.int64s({n, 3, 4, 8})});
  bool joined = true;
  SUBCASE("as it is") {}
  SUBCASE("through another view") {
    seen = b.node("Reshape", {b.node("Reshape", {seen, b.int64s({n, 1, 3, 4, 8})}), b.int64s({n, 3, 4, 8})});
  }
  SUBCASE("with another reader") {
    b.output(seen);
    joined = false;
  }
  b.output(b.node("Add", {x, seen}));
  const Graph before = b.build(n), all = after_all(before);
  CHECK(count(all, "Add") == (joined ? 0 : 1));
  CHECK(worst_difference(before, all) < 1e-5);
}

namespace {

/// Of [..,c]; with the other outputs where `outputs` is above 1.
ValueId normalised(GraphBuilder& b, ValueId x, std::int64_t c, bool rms = false, std::size_t outputs = 1) {
  if (rms) return b.node("RMSNormalization", {x, b.weights({c})}, {}, 23);
  return b.node("LayerNormalization", {x, b.weights({c}), b.weights({c})}, {}, 17, outputs);
}

}  // namespace

// Swin V2: the normalization is the end of a branch.
TEST_CASE("fuse_residual/into_a_layer_norm") {
  const auto check = [](std::string_view kind, bool rms, bool second) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 5, 8}), y = normalised(b, b.node("Sin", {x}), 8, rms);
    ValueId residual = x;
    if (kind == "made later") residual = b.node("Cos", {x});
    if (kind == "read again") b.output(b.node("Cos", {residual}));
    if (kind == "x itself") residual = b.node("Add", {normalised(b, x, 8, rms), x});
    if (kind == "another scale") {
      const ValueId scaled = b.node("LayerNormalization", {x, b.weights({5, 1}), b.weights({8})}, {}, 17);
      residual = b.node("Add", {x, scaled});
    }
    b.output(second ? b.node("Add", {residual, y}) : b.node("Add", {y, residual}));
    const Graph before = b.build(), fused = after(before, "fuse_residual");
    CAPTURE(kind);
    INFO(fused.dump());
    CHECK(count(fused, "Add") == 0);
    CHECK(fused.nodes.back().inputs.size() == 4);
    CHECK(worst_difference(before, fused) < 1e-6);
    CHECK(worst_difference(before, after_all(before)) < 1e-6);
  };
  for (const std::string_view kind : {"an input", "made later", "read again", "x itself", "another scale"})
    for (const bool rms : {false, true})
      for (const bool second : {false, true}) check(kind, rms, second);
}

TEST_CASE("fuse_residual/of_a_layer_norm_and_a_convolution_the_later_one") {
  for (const bool norm_last : {false, true}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {1, 8, 8, 8});
    const ValueId first = norm_last ? b.conv(x, 8, 8, 1) : normalised(b, x, 8);
    const ValueId last = norm_last ? normalised(b, x, 8) : b.conv(x, 8, 8, 1);
    b.output(b.node("Add", {first, last}));
    const Graph before = b.build(), fused = after(before, "fuse_residual");
    REQUIRE(fused.nodes.size() == 2);
    CHECK(fused.nodes[1].type() == (norm_last ? "LayerNormalization" : "Conv"));
    CHECK(fused.nodes[1].inputs[3] == first);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_residual/stays_behind_a_layer_norm") {
  GraphBuilder b;
  const ValueId x = b.input("x", {3, 8, 8});
  bool statistics = false;
  SUBCASE("read twice") {
    const ValueId y = normalised(b, x, 8);
    b.output(b.node("Add", {y, x}));
    b.output(b.node("Sigmoid", {y}));
  }
  SUBCASE("graph output") {
    const ValueId y = normalised(b, x, 8);
    b.output(b.node("Add", {y, x}));
    b.output(y);
  }
  SUBCASE("moved") {
    const AttributeList turned{{"perm", std::vector<std::int64_t>{0, 2, 1}}};
    b.output(b.node("Add", {b.node("Transpose", {normalised(b, x, 8)}, turned), x}));
  }
  SUBCASE("viewed") {
    b.output(b.node("Add", {b.node("Reshape", {normalised(b, x, 8), b.int64s({24, 8})}), b.input("z", {24, 8})}));
  }
  SUBCASE("broadcast") { b.output(b.node("Add", {normalised(b, x, 8), b.input("z", {8, 8})})); }
  SUBCASE("constant") { b.output(b.node("Add", {normalised(b, x, 8), b.weights({3, 8, 8})})); }
  SUBCASE("twice itself") {
    const ValueId y = normalised(b, x, 8);
    b.output(b.node("Add", {y, y}));
  }
  SUBCASE("with statistics") {
    b.output(b.node("Add", {normalised(b, x, 8, false, 3), x}));
    statistics = true;
  }
  const Graph before = b.build(), fused = after(before, "fuse_residual");
  CHECK(count(fused, "Add") == 1);
  CHECK(only(fused, "LayerNormalization").outputs.size() == (statistics ? 3 : 1));
  CHECK(worst_difference(before, fused) == 0);
}

// It takes no activation: none behind it, and none behind its sum.
TEST_CASE("fuse_residual/activations_stay_behind_a_layer_norm") {
  GraphBuilder b;
  const ValueId x = b.input("x", {3, 8, 8});
  b.output(b.node("Relu", {normalised(b, x, 8)}));
  b.output(b.node("Relu", {b.node("Add", {x, normalised(b, x, 8)})}));
  const ValueId image = b.input("image", {1, 8, 8, 8});
  const std::vector<ValueId> branches{normalised(b, image, 8), b.conv(image, 8, 8, 1)};
  b.output(b.node("Relu", {b.node("Concat", branches, {{"axis", std::int64_t{1}}})}));
  const Graph before = b.build(), fused = after(after(before, "fuse_activation"), "fuse_residual");
  INFO(fused.dump());
  CHECK(count(fused, "Relu") == 3);
  CHECK(count(fused, "Add") == 0);
  CHECK(worst_difference(before, fused) < 1e-6);
}

// fuse_attention: heads written as products and a softmax become one step, with equal results; others stay.
#include <doctest/doctest.h>

#include "attention_builder.h"

using namespace lenslet;
using namespace lenslet::test;
using namespace lenslet::test::attention;

TEST_CASE("fuse_attention/packed") {
  GraphBuilder b;
  Heads h = packed(b, packed_input(b));
  std::size_t inputs = 3;
  SUBCASE("q is scaled, the tokens come first") {
    h.q = times(b, h.q, 0.3F);
    b.output(joined(b, b.node("MatMul", {softmax(b, scores(b, h)), h.v})));
  }
  SUBCASE("the scores are divided") {
    const ValueId divided = b.node("Div", {scores(b, h), b.scalar(3)});
    b.output(joined(b, b.node("MatMul", {softmax(b, divided), h.v})));
  }
  SUBCASE("q and k are scaled, as scaled_dot_product_attention is") {
    const ValueId k = times(b, transpose(b, h.k, {0, 1, 3, 2}), 0.5F);
    b.output(joined(b, b.node("MatMul", {softmax(b, b.node("MatMul", {times(b, h.q, 0.5F), k})), h.v})));
  }
  SUBCASE("K is transposed with the heads of all problems on one axis, as torch.export has it") {
    const ValueId k = transpose(b, reshape(b, h.k, {n * heads, tokens, size}), {0, 2, 1});
    const ValueId s = b.node("MatMul", {h.q, reshape(b, k, {n, heads, size, tokens})});
    b.output(joined(b, b.node("MatMul", {softmax(b, s), h.v})));
  }
  SUBCASE("no Reshape behind") {
    b.output(transpose(b, b.node("MatMul", {softmax(b, scores(b, h)), h.v}), {0, 2, 1, 3}));
  }
  SUBCASE("heads come first") { b.output(b.node("MatMul", {softmax(b, scores(b, h)), h.v})); }
  SUBCASE("a bias") {
    inputs = 4;
    b.output(joined(
        b, b.node("MatMul", {softmax(b, b.node("Add", {b.weights({1, heads, tokens, tokens}), scores(b, h)})), h.v})));
  }
  Graph fused;
  const Node& node = check_fused(b, fused);
  REQUIRE(node.inputs.size() == inputs);
  CHECK((node.inputs[0] == fused.inputs[0] && node.inputs[1] == no_id && node.inputs[2] == no_id));
  const std::int64_t row = 3 * heads * size;
  CHECK(list(node, "k") == Ints{heads * size, tokens * row, size, row});
}

TEST_CASE("fuse_attention/where_the_operands_come_from") {
  GraphBuilder b;
  Heads h{};
  SUBCASE("Split of each head's channels, as EfficientFormer has it") {
    const ValueId all = reshape(b, packed_input(b), {n, tokens, heads, 3 * size});
    const ValueId first = b.node("Split", {all, b.int64s({4, 4, 7})}, {{"axis", std::int64_t{3}}}, 13, 3);
    ValueId split[3];
    for (int i = 0; i < 3; ++i) split[i] = transpose(b, first + i, {0, 2, 1, 3});
    h = {split[0], split[1], split[2]};
    const ValueId y = b.node("MatMul", {softmax(b, scores(b, h)), h.v});
    b.output(reshape(b, transpose(b, y, {0, 2, 1, 3}), {n, tokens, heads * 7}));
    Graph fused;
    const Node& node = check_fused(b, fused);
    CHECK(list(node, "sizes") == Ints{n, heads, tokens, tokens, 4, 7});
    CHECK(list(node, "v") == Ints{8, tokens * heads * 15, 15, heads * 15});
    return;
  }
  SUBCASE("Unsqueeze, Transpose, Squeeze and Gather, as MultiheadAttention has it") {
    const ValueId all = reshape(b, packed_input(b), {n, tokens, 3, heads * size});
    const ValueId front =
        b.node("Squeeze", {transpose(b, b.node("Unsqueeze", {all, b.int64s({0})}), {3, 1, 2, 0, 4}), b.int64s({3})});
    ValueId each[3];
    for (int i = 0; i < 3; ++i)
      each[i] = transpose(b, reshape(b, index(b, front, i), {n, tokens, heads, size}), {0, 2, 1, 3});
    h = {each[0], each[1], each[2]};
  }
  SUBCASE("three projections, K and V of another length") {
    const ValueId x = b.input("x", {n, tokens, heads * size}), z = b.input("z", {n, 9, heads * size});
    h.q = transpose(b, reshape(b, x, {n, tokens, heads, size}), {0, 2, 1, 3});
    h.k = transpose(b, reshape(b, z, {n, 9, heads, size}), {0, 2, 1, 3});
    h.v = transpose(b, reshape(b, b.input("v", {n, 9, heads * size}), {n, 9, heads, size}), {0, 2, 1, 3});
  }
  SUBCASE("K and V are one value") {
    h = packed(b, packed_input(b));
    h.v = h.k;
  }
  SUBCASE("V and Q are one value, K another") {
    h = apart(b);
    h.v = h.q;
  }
  SUBCASE("tokens before problems, as MultiheadAttention has it") {
    h = apart(b);
    const ValueId y = b.node("MatMul", {softmax(b, scores(b, h)), h.v});
    b.output(reshape(b, transpose(b, y, {2, 0, 1, 3}), {n * tokens, heads * size}));
    Graph fused;
    CHECK(list(check_fused(b, fused), "y") == Ints{0, heads * size, size, n * heads * size});
    return;
  }
  SUBCASE("K is transposed in one step") {
    const ValueId x = b.input("x", {n, tokens, heads * size});
    h = packed(b, packed_input(b));
    const ValueId k = transpose(b, reshape(b, x, {n, tokens, heads, size}), {0, 2, 3, 1});
    b.output(joined(b, b.node("MatMul", {softmax(b, b.node("MatMul", {h.q, k})), h.v})));
    Graph fused;
    check_fused(b, fused);
    return;
  }
  b.output(joined(b, b.node("MatMul", {softmax(b, scores(b, h)), h.v})));
  Graph fused;
  check_fused(b, fused);
}

TEST_CASE("fuse_attention/where_strides_cannot_say_it") {
  // Windows of an image: q starts at the value where the strides end.
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 6, heads * size});
  const auto windows = [&](ValueId image) {
    const ValueId cut = transpose(b, reshape(b, image, {1, 4, 2, 2, 3, heads * size}), {0, 1, 3, 2, 4, 5});
    return transpose(b, reshape(b, cut, {8, 6, heads, size}), {0, 2, 1, 3});
  };
  const ValueId k = windows(x);
  const ValueId y = b.node("MatMul", {softmax(b, b.node("MatMul", {windows(x), transpose(b, k, {0, 1, 3, 2})})), k});
  b.output(reshape(b, transpose(b, y, {0, 2, 1, 3}), {8, 6, heads * size}));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(count(fused, "Attention") == 1);
  CHECK(count(fused, "MatMul") == 0);
  CHECK(count(fused, "Transpose") == 2);  // the windows
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_attention/ranks") {
  GraphBuilder b;
  Ints sizes;
  SUBCASE("one head") {
    const ValueId x = b.input("x", {7, 4}), z = b.input("z", {9, 4});
    b.output(b.node("MatMul", {softmax(b, b.node("MatMul", {x, transpose(b, z, {1, 0})})), b.input("v", {9, 3})}));
    sizes = {1, 1, 7, 9, 4, 3};
  }
  SUBCASE("heads alone, tokens first") {  // as torch's multi_head_attention_forward has it: [L,N,E] to [N*H,L,d]
    const ValueId x = b.input("x", {7, 2, 12}), z = b.input("z", {9, 2, 12});
    const ValueId q = transpose(b, reshape(b, x, {7, 6, 4}), {1, 0, 2}),
                  k = transpose(b, reshape(b, z, {9, 6, 4}), {1, 2, 0}),
                  v = transpose(b, reshape(b, b.input("v", {9, 2, 12}), {9, 6, 4}), {1, 0, 2});
    const ValueId shares = softmax(b, b.node("Add", {b.node("MatMul", {q, k}), b.weights({6, 7, 9})}));
    b.output(reshape(b, transpose(b, b.node("MatMul", {shares, v}), {1, 0, 2}), {7, 2, 12}));
    sizes = {1, 6, 7, 9, 4, 4};
  }
  SUBCASE("five") {
    const ValueId x = b.input("x", {2, 5, 3, 7, 4});
    const ValueId y = b.node("MatMul", {softmax(b, b.node("MatMul", {x, transpose(b, x, {0, 1, 2, 4, 3})})), x});
    b.output(transpose(b, y, {0, 1, 3, 2, 4}));
    sizes = {10, 3, 7, 7, 4, 4};
  }
  Graph fused;
  CHECK(list(check_fused(b, fused), "sizes") == sizes);
}

TEST_CASE("fuse_attention/biases") {
  GraphBuilder b;
  const Heads h = apart(b);
  ValueId s = scores(b, h);
  Shape bias;
  SUBCASE("a value for each key") {
    s = b.node("Add", {s, b.weights({tokens})});
    bias = {1, 1, 1, tokens};
  }
  SUBCASE("for each head") {
    s = b.node("Add", {s, b.weights({heads, tokens, tokens})});
    bias = {1, heads, tokens, tokens};
  }
  SUBCASE("for each problem, without heads") {
    s = b.node("Add", {b.weights({n, 1, 1, tokens}), s});
    bias = {n, 1, 1, tokens};
  }
  SUBCASE("a column is added to all keys") {
    s = b.node("Add", {s, b.weights({heads, tokens, 1})});
    bias = {1, heads, tokens, tokens};
  }
  SUBCASE("scaled after the sum, twice") {
    s = times(b, b.node("Add", {times(b, b.node("Add", {s, b.weights({tokens, tokens})}), 0.5F), b.weights({tokens})}),
              3);
    bias = {1, 1, tokens, tokens};
  }
  SUBCASE("masks of windows") {
    s = b.node("Add", {times(b, s, 0.25F), b.weights({1, heads, tokens, tokens})});
    s = b.node("Add", {reshape(b, s, {2, 2, heads, tokens, tokens}), b.weights({1, 2, 1, tokens, tokens}, -50, 50)});
    s = reshape(b, s, {-1, heads, tokens, tokens});
    bias = {2, heads, tokens, tokens};
  }
  SUBCASE("masks of windows alone") {
    s = b.node("Add", {reshape(b, s, {2, 2, heads, tokens, tokens}), b.weights({2, 1, tokens, tokens})});
    s = reshape(b, s, {n, heads, tokens, tokens});
    bias = {2, 1, tokens, tokens};
  }
  SUBCASE("of images, not of windows") {
    s = b.node("Add", {reshape(b, s, {2, 2, heads, tokens, tokens}), b.weights({2, 1, 1, 1, tokens})});
    s = reshape(b, s, {n, heads, tokens, tokens});
    bias = {n, 1, 1, tokens};
  }
  SUBCASE("a computed one") {
    s = b.node("Add", {s, b.input("bias", {1, heads, 1, tokens})});
    bias = {1, heads, 1, tokens};
  }
  b.output(joined(b, b.node("MatMul", {softmax(b, s), h.v})));
  Graph fused;
  const Node& node = check_fused(b, fused);
  REQUIRE(node.inputs.size() == 4);
  CHECK(fused.value(node.inputs[3]).shape.dims().size() == bias.dims().size());
  if (fused.value(node.inputs[3]).is_constant()) CHECK(fused.value(node.inputs[3]).shape == bias);
}

TEST_CASE("fuse_attention/a_factor_for_each_head") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  const ValueId s = times(b, b.node("Mul", {b.weights({heads, 1, 1}), times(b, scores(b, h), 0.5F)}), 2);
  const ValueId biased = b.node("Add", {s, b.weights({heads, tokens, tokens})});
  b.output(joined(b, b.node("MatMul", {softmax(b, biased), h.v})));
  Graph fused;
  CHECK(attribute<std::vector<double>>(check_fused(b, fused), "head_scales").size() == heads);
}

// q takes the factors, by a Mul of its own.
TEST_CASE("fuse_attention/a_factor_for_each_row") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  ValueId s = scores(b, h);
  SUBCASE("of a head") { s = b.node("Mul", {b.weights({tokens, 1}), s}); }
  SUBCASE("and each head") { s = b.node("Mul", {b.weights({heads, tokens, 1}), s}); }
  SUBCASE("of a problem") { s = b.node("Mul", {b.weights({n, 1, 1, 1}), s}); }
  b.output(joined(b, b.node("MatMul", {softmax(b, s), h.v})));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(count(fused, "MatMul") == 0);
  CHECK(only(fused, "Attention").inputs[1] == fused.inputs[0]);
  CHECK(only(fused, "Mul").outputs[0] == only(fused, "Attention").inputs[0]);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("fuse_attention/reshapes_around_the_products") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  const ValueId q = reshape(b, h.q, {n * heads, tokens, size});
  const ValueId k = reshape(b, transpose(b, h.k, {0, 1, 3, 2}), {n * heads, size, tokens});
  const ValueId s = reshape(b, b.node("MatMul", {q, k}), {n, heads, tokens, tokens});
  const ValueId shares = softmax(b, b.node("Add", {s, b.weights({heads, tokens, tokens})}));
  const ValueId y =
      b.node("MatMul", {reshape(b, shares, {n * heads, tokens, tokens}), reshape(b, h.v, {n * heads, tokens, size})});
  b.output(joined(b, reshape(b, y, {n, heads, tokens, size})));
  Graph fused;
  CHECK(list(check_fused(b, fused), "sizes") == Ints{n, heads, tokens, tokens, size, size});
}

TEST_CASE("fuse_attention/nothing_to_attend_to") {
  GraphBuilder b;
  SUBCASE("no keys") {
    const ValueId q = b.input("q", {1, 1, 4, 8}), k = b.input("k", {1, 1, 8, 0}), v = b.input("v", {1, 1, 0, 8});
    b.output(b.node("MatMul", {softmax(b, b.node("MatMul", {q, k})), v}));
  }
  SUBCASE("a quotient of no elements") {
    const ValueId x = reshape(b, b.input("x", {0, 3}), {0, 1, 3}), z = b.input("z", {0, 1, 3});
    b.output(b.node("Div", {x, b.node("Add", {b.node("Relu", {z}), b.scalar(1e-6F)})}));
  }
  SUBCASE("a row of an empty value") {
    const ValueId x = reshape(b, b.input("x", {0, 4, 8}), {0, 32});
    const ValueId y = b.node("Slice", {x, b.int64s({0}), b.int64s({5}), b.int64s({0})});
    b.output(b.node("MatMul", {softmax(b, b.node("MatMul", {y, transpose(b, y, {1, 0})})), y}));
  }
  const Graph before = b.build();
  CHECK(count(after(before, "fuse_attention"), "Attention") == 0);
  after_all(before);
}

TEST_CASE("fuse_attention/stays") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  const ValueId s = scores(b, h);
  const auto finish = [&](ValueId shares) { b.output(joined(b, b.node("MatMul", {shares, h.v}))); };
  SUBCASE("another axis") { finish(b.node("Softmax", {s}, {{"axis", std::int64_t{2}}})); }
  SUBCASE("scores are an output") {
    b.output(s);
    finish(softmax(b, s));
  }
  SUBCASE("scores are read twice") {
    finish(softmax(b, s));
    b.output(b.node("Relu", {s}));
  }
  SUBCASE("shares are an output") {
    const ValueId shares = softmax(b, s);
    b.output(shares);
    finish(shares);
  }
  SUBCASE("an activation of the scores") { finish(softmax(b, b.node("Relu", {s}))); }
  SUBCASE("a factor for each key") { finish(softmax(b, b.node("Mul", {s, b.weights({tokens})}))); }
  SUBCASE("a factor for each head of scores with a bias") {
    const ValueId biased = b.node("Add", {s, b.weights({tokens})});
    finish(softmax(b, b.node("Mul", {biased, b.weights({heads, 1, 1})})));
  }
  SUBCASE("a computed factor") { finish(softmax(b, b.node("Mul", {s, b.input("factor", {heads, 1, 1})}))); }
  SUBCASE("a computed bias that is scaled") {
    finish(softmax(b, times(b, b.node("Add", {s, b.input("bias", {tokens})}), 2)));
  }
  SUBCASE("two biases, one computed") {
    finish(softmax(b, b.node("Add", {b.node("Add", {s, b.input("bias", {tokens})}), b.weights({tokens})})));
  }
  SUBCASE("a computed bias for all keys") {
    finish(softmax(b, b.node("Add", {s, b.input("bias", {heads, tokens, 1})})));
  }
  SUBCASE("K with adjacent tokens") {
    finish(softmax(b, b.node("MatMul", {h.q, b.input("k", {n, heads, size, tokens})})));
  }
  SUBCASE("K for all problems") { finish(softmax(b, b.node("MatMul", {h.q, b.input("k", {heads, size, tokens})}))); }
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(count(fused, "Attention") == 0);
  CHECK(fused.nodes.size() == before.nodes.size());
}

TEST_CASE("fuse_attention/what_others_read_stays_beside_it") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  const ValueId y = b.node("MatMul", {softmax(b, scores(b, h)), h.v});
  int attentions = 1;
  std::size_t nodes = 0;
  SUBCASE("q is an output") {
    b.output(h.q);
    b.output(joined(b, y));
    nodes = 4;  // Reshape, Transpose, Gather
  }
  SUBCASE("the product is an output") {
    b.output(y);
    b.output(joined(b, y));
    nodes = 3;  // Transpose and Reshape
  }
  SUBCASE("its Transpose is read twice") {
    const ValueId turned = transpose(b, y, {0, 2, 1, 3});
    b.output(b.node("Relu", {turned}));
    b.output(reshape(b, turned, {n, tokens, heads * size}));
    nodes = 3;
  }
  SUBCASE("one after another") {
    const ValueId next = joined(b, y);
    Heads again = packed(b, b.node("Concat", {next, next, next}, {{"axis", std::int64_t{2}}}));
    b.output(joined(b, b.node("MatMul", {softmax(b, scores(b, again)), again.v})));
    attentions = 2;
    nodes = 3;
  }
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(count(fused, "Attention") == attentions);
  CHECK(fused.nodes.size() == nodes);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("fuse_attention/one_head_for_all") {
  GraphBuilder b;
  const ValueId q = b.input("q", {n, heads, tokens, size});
  ValueId k = b.input("k", {n, 1, 9, size}), v = b.input("v", {n, 1, 9, size});
  SUBCASE("of K and V") {}
  SUBCASE("of V") { k = b.input("k_of_heads", {n, heads, 9, size}); }
  SUBCASE("of all problems") { v = b.input("v_of_all", {1, 1, 9, size}); }
  SUBCASE("of one problem for all") { k = b.input("k_of_all", {1, heads, 9, size}); }
  ValueId s = b.node("MatMul", {q, turned(b, k)});
  SUBCASE("with a bias") { s = b.node("Add", {s, b.weights({heads, tokens, 9})}); }
  b.output(joined(b, b.node("MatMul", {softmax(b, s), v})));
  Graph fused;
  check_fused(b, fused);
}

// The scores' heads are not those of the product.
TEST_CASE("fuse_attention/one_head_for_all_of_reshaped_scores") {
  GraphBuilder b;
  const ValueId q = b.input("q", {2, 6, tokens, size}), k = b.input("k", {2, 1, size, 9});
  const ValueId s = reshape(b, b.node("MatMul", {q, turned(b, turned(b, k))}), {4, 3, tokens, 9});
  b.output(b.node("MatMul", {softmax(b, s), b.input("v", {4, 3, 9, size})}));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(count(fused, "Attention") == 0);
  CHECK(worst_difference(before, fused) < 1e-5);
}

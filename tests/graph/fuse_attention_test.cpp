// fuse_attention: heads written as products and a softmax become one step, with equal results; others stay.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId reshape(GraphBuilder& b, ValueId x, std::initializer_list<std::int64_t> dims) {
  return b.node("Reshape", {x, b.int64s(dims)});
}
ValueId transpose(GraphBuilder& b, ValueId x, const Ints& perm) { return b.node("Transpose", {x}, {{"perm", perm}}); }
ValueId index(GraphBuilder& b, ValueId x, std::int64_t at, std::int64_t axis = 0) {
  return b.node("Gather", {x, b.constant(Tensor::of<std::int64_t>(Shape{}, {at}))}, {{"axis", axis}});
}
ValueId times(GraphBuilder& b, ValueId x, float factor) { return b.node("Mul", {x, b.scalar(factor)}); }
ValueId softmax(GraphBuilder& b, ValueId x) { return b.node("Softmax", {x}, {{"axis", std::int64_t{-1}}}); }

constexpr std::int64_t n = 4, heads = 3, tokens = 6, size = 5;

struct Heads {
  ValueId q, k, v;
};
/// [n,heads,tokens,size] each, of a packed [n,tokens,3*heads*size] as ViT and Swin write it.
Heads packed(GraphBuilder& b, ValueId qkv) {
  const ValueId all = transpose(b, reshape(b, qkv, {n, tokens, 3, heads, size}), {2, 0, 3, 1, 4});
  return {index(b, all, 0), index(b, all, 1), index(b, all, -1)};
}
ValueId packed_input(GraphBuilder& b) { return b.input("qkv", {n, tokens, 3 * heads * size}); }
Heads apart(GraphBuilder& b) {
  return {b.input("q", {n, heads, tokens, size}), b.input("k", {n, heads, tokens, size}),
          b.input("v", {n, heads, tokens, size})};
}
ValueId scores(GraphBuilder& b, const Heads& h) { return b.node("MatMul", {h.q, transpose(b, h.k, {0, 1, 3, 2})}); }
ValueId joined(GraphBuilder& b, ValueId y) {
  return reshape(b, transpose(b, y, {0, 2, 1, 3}), {n, tokens, heads * size});
}

/// One Attention is left, and the results are equal.
const Node& check_fused(GraphBuilder& b, Graph& fused) {
  const Graph before = b.build();
  fused = after(before, "fuse_attention");
  CHECK(fused.nodes.size() == 1);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
  return only(fused, "Attention");
}
Ints list(const Node& node, const char* name) { return integers_attribute(*node.op, name).value(); }
template <class T>
T attribute(const Node& node, std::string_view name) {
  const AttributeList all = node.op->attributes();
  const auto found = std::ranges::find(all, name, &AttributeList::value_type::first);
  REQUIRE(found != all.end());
  return std::get<T>(found->second);
}

}  // namespace

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

// Cosine attention (Swin V2).
namespace {

enum class Spelled { clip, without_expand, max, reciprocal, opset_18 };

/// torch.nn.functional.normalize of the rows of x [n,heads,tokens,size].
ValueId unit_rows(GraphBuilder& b, ValueId x, Spelled as = Spelled::clip, float epsilon = 1e-12F) {
  const ValueId norm = as == Spelled::opset_18
                           ? b.node("ReduceL2", {x, b.int64s({3})}, {}, 18)
                           : b.node("ReduceL2", {x}, {{"axes", Ints{-1}}, {"keepdims", std::int64_t{1}}});
  const ValueId bounded =
      as == Spelled::max ? b.node("Max", {b.scalar(epsilon), norm}) : b.node("Clip", {norm, b.scalar(epsilon)});
  if (as == Spelled::reciprocal) return b.node("Mul", {b.node("Reciprocal", {bounded}), x});
  if (as == Spelled::without_expand) return b.node("Div", {x, bounded});
  return b.node("Div", {x, b.node("Expand", {bounded, b.int64s({n, heads, tokens, size})})});
}
ValueId biased_shares(GraphBuilder& b, ValueId scores) {
  const ValueId scaled = b.node("Mul", {scores, b.weights({heads, 1, 1}, 8, 2)});
  return softmax(b, b.node("Add", {scaled, b.weights({1, heads, tokens, tokens})}));
}

}  // namespace

TEST_CASE("fuse_attention/unit_rows") {
  for (const Spelled as :
       {Spelled::clip, Spelled::without_expand, Spelled::max, Spelled::reciprocal, Spelled::opset_18}) {
    CAPTURE(static_cast<int>(as));
    GraphBuilder b;
    const Heads h = packed(b, packed_input(b));
    const ValueId s = scores(b, {unit_rows(b, h.q, as, 0.75F), unit_rows(b, h.k, as, 0.75F), h.v});
    b.output(joined(b, b.node("MatMul", {biased_shares(b, s), h.v})));
    Graph fused;
    const Node& node = check_fused(b, fused);
    CHECK(attribute<double>(node, "qk_norm_epsilon") == 0.75);
    CHECK((node.inputs[0] == fused.inputs[0] && node.inputs[1] == no_id && node.inputs[2] == no_id));
  }
}

TEST_CASE("fuse_attention/unit_rows_that_others_read") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  const ValueId q = unit_rows(b, h.q);
  b.output(q);
  b.output(joined(b, b.node("MatMul", {biased_shares(b, scores(b, {q, unit_rows(b, h.k), h.v})), h.v})));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(only(fused, "Attention").inputs[1] == no_id);
  CHECK(count(fused, "ReduceL2") == 1);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// Attention reads what the nodes write.
TEST_CASE("fuse_attention/unit_rows_that_stay") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  ValueId q = h.q, k = h.k, factor = b.weights({heads, 1, 1});
  int norms = 2;
  SUBCASE("of Q alone") { q = unit_rows(b, q), norms = 1; }
  SUBCASE("of K alone") { k = unit_rows(b, k), norms = 1; }
  SUBCASE("two epsilons") { q = unit_rows(b, q, Spelled::clip, 1), k = unit_rows(b, k, Spelled::clip, 2); }
  SUBCASE("an epsilon whose inverse is no float") {
    q = unit_rows(b, q, Spelled::clip, 1e-39F), k = unit_rows(b, k, Spelled::clip, 1e-39F);
  }
  SUBCASE("the norm of another value") {
    q = b.node("Div", {h.v, b.node("Clip", {b.node("ReduceL2", {h.q}, {{"axes", Ints{-1}}}), b.scalar(1)})});
    k = unit_rows(b, k);
  }
  SUBCASE("along another axis") {
    const ValueId norm = b.node("ReduceL2", {h.q}, {{"axes", Ints{2}}});
    q = b.node("Div", {h.q, b.node("Clip", {norm, b.scalar(1)})}), k = unit_rows(b, k);
  }
  SUBCASE("an upper bound") {
    const ValueId norm = b.node("ReduceL2", {h.q}, {{"axes", Ints{-1}}});
    q = b.node("Div", {h.q, b.node("Clip", {norm, b.scalar(1), b.scalar(2)})}), k = unit_rows(b, k);
  }
  SUBCASE("a factor for each row") { q = unit_rows(b, q), k = unit_rows(b, k), factor = b.weights({tokens, 1}); }
  const ValueId s = b.node("Mul", {scores(b, {q, k, h.v}), factor});
  b.output(joined(b, b.node("MatMul", {softmax(b, s), h.v})));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(only(fused, "Attention").inputs.size() == 3);
  CHECK(count(fused, "ReduceL2") == norms);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("fuse_attention/unit_rows_of_what_is_scaled") {
  GraphBuilder b;
  const Heads h = packed(b, packed_input(b));
  const ValueId q = unit_rows(b, times(b, h.q, 0.1F), Spelled::clip, 0.75F),
                k = unit_rows(b, h.k, Spelled::clip, 0.75F);
  b.output(joined(b, b.node("MatMul", {biased_shares(b, scores(b, {q, k, h.v})), h.v})));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(only(fused, "Mul").outputs[0] == only(fused, "Attention").inputs[0]);
  CHECK(count(fused, "ReduceL2") == 0);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// As expand_einsum leaves it: products of rank 3.
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

// Convolutions make Q, K and V: Attention reads their images [N,C,H,W] as [N,H,W,C], and writes one.
namespace {

constexpr std::int64_t height = 2, width = 3, channels = heads * size;
static_assert(height * width == tokens);

ValueId slice(GraphBuilder& b, ValueId x, std::int64_t from, std::int64_t to, std::int64_t axis) {
  return b.node("Slice", {x, b.int64s({from}), b.int64s({to}), b.int64s({axis})});
}
ValueId turned(GraphBuilder& b, ValueId x) { return transpose(b, x, {0, 1, 3, 2}); }
/// y [N,heads,tokens,size] as an image, which a convolution reads.
void finish_image(GraphBuilder& b, ValueId y, std::int64_t batch) {
  b.output(b.conv(reshape(b, turned(b, y), {batch, channels, height, width}), channels, 4, 1));
}
/// [N,heads,of each head's channels,tokens] of a convolution.
ValueId image(GraphBuilder& b, ValueId x, std::int64_t batch, std::int64_t kernels) {
  return reshape(b, b.conv(x, 4, kernels * size, 1), {batch, kernels, size, tokens});
}

/// For one image and three; `transposes` are left, and none of them costs a copy.
template <class Build>
Graph check_images(const Build& build, int transposes) {
  Graph fused;
  for (const std::int64_t batch : {1, 3}) {
    CAPTURE(batch);
    GraphBuilder b;
    build(b, b.input("x", {batch, 4, height, width}), batch);
    const Graph before = b.build(), all = after_all(before);
    fused = after(before, "fuse_attention");
    CHECK(count(fused, "Softmax") == 0);
    CHECK(count(fused, "Transpose") == transposes);
    CHECK(static_cast<int>(fused.nodes.size()) == count(fused, "Conv") + 1 + transposes);
    CHECK(count(all, "Transpose") == 0);
    CHECK(worst_difference(before, fused) < 1e-5);
    CHECK(worst_difference(before, all) < 1e-5);
    for (const char* precision : {"fp32", "fp16"}) {
      const Graph planned =
          after_all(before, {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
      CHECK(count(planned, "Attention") == 1);
      CHECK(count(planned, "Transpose") == 0);
    }
  }
  return fused;
}

}  // namespace

TEST_CASE("fuse_attention/images_of_convolutions") {
  SUBCASE("Slices of each head's channels, as CoAtNet has it") {
    const Graph fused = check_images(
        [](GraphBuilder& b, ValueId x, std::int64_t batch) {
          const ValueId all = reshape(b, b.conv(x, 4, 3 * channels, 1), {batch, heads, 3 * size, tokens});
          const ValueId q = times(b, turned(b, slice(b, all, 0, size, 2)), 0.5F),
                        k = times(b, slice(b, all, size, 2 * size, 2), 0.5F),
                        v = turned(b, slice(b, all, 2 * size, 3 * size, 2));
          const ValueId s = b.node("Add", {b.node("MatMul", {q, k}), b.weights({1, heads, tokens, tokens})});
          finish_image(b, b.node("MatMul", {softmax(b, s), v}), batch);
        },
        2);
    const Node& node = only(fused, "Attention");
    CHECK((node.inputs[1] == no_id && node.inputs[2] == no_id));
    CHECK(list(node, "k") == Ints{size, tokens * 3 * channels, 3 * size, 3 * channels});
    CHECK(list(node, "y_shape") == Ints{3, height, width, channels});
  }
  SUBCASE("Q, K and V one after another, as Visformer has it") {
    const Graph fused = check_images(
        [](GraphBuilder& b, ValueId x, std::int64_t batch) {
          const ValueId all = reshape(b, b.conv(x, 4, 3 * channels, 1), {batch, 3, heads, size, tokens});
          const ValueId parts = transpose(b, all, {1, 0, 2, 4, 3});
          const Heads each{index(b, parts, 0), index(b, parts, 1), index(b, parts, 2)};
          const ValueId s = times(b, b.node("MatMul", {each.q, turned(b, each.k)}), 0.125F);
          finish_image(b, b.node("MatMul", {softmax(b, s), each.v}), batch);
        },
        2);
    CHECK(list(only(fused, "Attention"), "v") == Ints{2 * channels, tokens * 3 * channels, size, 3 * channels});
  }
  SUBCASE("one head of K and V for all of Q, as MobileNetV4 has it") {
    const Graph fused = check_images(
        [](GraphBuilder& b, ValueId x, std::int64_t batch) {
          const auto one_head = [&] {
            const ValueId tokens_first = transpose(b, reshape(b, b.conv(x, 4, size, 2), {batch, size, 2}), {0, 2, 1});
            return b.node("Unsqueeze", {tokens_first, b.int64s({1})});
          };
          const ValueId q = times(b, turned(b, image(b, x, batch, heads)), 0.5F),
                        k = times(b, turned(b, one_head()), 0.5F), v = one_head();
          const ValueId y = b.node("MatMul", {softmax(b, b.node("MatMul", {q, k})), v});
          const ValueId rows = reshape(b, transpose(b, y, {0, 2, 1, 3}), {batch, height, width, channels});
          b.output(b.conv(transpose(b, rows, {0, 3, 1, 2}), channels, 4, 1));
        },
        4);
    const Node& node = only(fused, "Attention");
    CHECK(list(node, "q") == Ints{0, tokens * channels, size, channels});
    CHECK(list(node, "k") == Ints{0, 2 * size, 0, size});
    CHECK(list(node, "v") == Ints{0, 2 * size, 0, size});
  }
  SUBCASE("three convolutions, two of which have one head") {
    check_images(
        [](GraphBuilder& b, ValueId x, std::int64_t batch) {
          const ValueId q = turned(b, image(b, x, batch, heads)), k = image(b, x, batch, 1),
                        v = turned(b, image(b, x, batch, heads));
          finish_image(b, b.node("MatMul", {softmax(b, b.node("MatMul", {q, k})), v}), batch);
        },
        4);
  }
}

TEST_CASE("fuse_attention/images_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, height, width});
  ValueId q = turned(b, image(b, x, 2, heads)), k = image(b, x, 2, heads), v = turned(b, k);
  SUBCASE("made by no node") { k = reshape(b, b.input("k", {2, channels, height, width}), {2, heads, size, tokens}); }
  SUBCASE("not from the first pixel on") {
    k = slice(b, k, 1, tokens, 3);
    v = turned(b, k);
  }
  SUBCASE("made by a Reshape") {
    const ValueId rows = b.node("Relu", {b.input("k", {2, channels, tokens})});
    k = reshape(b, reshape(b, rows, {2, channels, height, width}), {2, heads, size, tokens});
  }
  SUBCASE("every second pixel") {
    k = b.node("Slice", {k, b.int64s({0}), b.int64s({tokens}), b.int64s({3}), b.int64s({2})});
    v = turned(b, k);
  }
  SUBCASE("rows of pixels as heads") {
    const ValueId pixels = b.conv(x, 4, size, 1);
    q = transpose(b, pixels, {0, 2, 3, 1}), k = transpose(b, pixels, {0, 2, 1, 3}), v = q;
  }
  SUBCASE("two problems of each image") {
    q = b.input("q", {4, heads, tokens, size}), k = reshape(b, b.conv(x, 4, 2 * channels, 1), {4, heads, size, tokens});
    v = turned(b, k);
  }
  SUBCASE("heads of two images") {
    q = b.input("q", {1, 2 * heads, tokens, size});
    k = reshape(b, b.conv(x, 4, channels, 1), {1, 2 * heads, size, tokens});
    v = turned(b, k);
  }
  SUBCASE("one head of Q") { q = turned(b, image(b, x, 2, 1)); }
  b.output(b.node("MatMul", {softmax(b, b.node("MatMul", {q, k})), v}));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(count(fused, "Attention") == 0);
  CHECK(fused.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// CUDA has no kernel for heads of more than 256 channels.
TEST_CASE("fuse_attention/images_of_refused_heads_stay") {
  GraphBuilder b;
  const ValueId all = reshape(b, b.conv(b.input("x", {1, 4, height, width}), 4, 600, 1), {1, 2, 300, tokens});
  const ValueId y = b.node("MatMul", {softmax(b, b.node("MatMul", {turned(b, all), all})), turned(b, all)});
  b.output(turned(b, y));
  const Graph before = b.build();
  CHECK(count(after(before, "fuse_attention"), "Attention") == 1);
  const Graph cuda = after(before, "fuse_attention", {.target = {reference_gpu()}, .device = "cuda:0"});
  CHECK(cuda.nodes.size() == before.nodes.size());
  CHECK(count(cuda, "Softmax") == 1);
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

// Chains of drawn Transposes, Reshapes, Slices, Splits and Gathers above each operand: whatever strides can or cannot
// say, the result is that of the nodes.
TEST_CASE("fuse_attention/drawn_chains") {
  std::mt19937 random(11);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  int fused_count = 0;
  for (int round = 0; round < 60; ++round) {
    GraphBuilder b;
    int inputs = 0;
    /// A value of this shape, through up to three steps backwards.
    const auto operand = [&](Ints dims) {
      struct Step {
        int kind;
        Ints numbers;
        std::int64_t axis;
      };
      std::vector<Step> steps;
      for (std::int64_t left = draw(0, 4); left > 0; --left) {
        const std::int64_t axis = draw(0, static_cast<std::int64_t>(dims.size()) - 1);
        const auto at = static_cast<std::size_t>(axis);
        switch (draw(0, 4)) {
          case 0: {  // dims = perm of another shape
            Ints perm(dims.size()), old(dims.size());
            for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
            std::shuffle(perm.begin(), perm.end(), random);
            for (std::size_t i = 0; i < perm.size(); ++i) old[static_cast<std::size_t>(perm[i])] = dims[i];
            steps.push_back({0, perm, 0});
            dims = old;
            break;
          }
          case 1: {  // two neighbours were one
            if (axis + 1 == static_cast<std::int64_t>(dims.size())) break;
            steps.push_back({1, dims, 0});
            dims[at] *= dims[at + 1];
            dims.erase(dims.begin() + axis + 1);
            break;
          }
          case 2: {  // a part, every second
            const std::int64_t start = draw(0, 2), step = draw(1, 2);
            steps.push_back({2, {start, start + (dims[at] - 1) * step + 1, step}, axis});
            dims[at] = start + dims[at] * step + 1;
            break;
          }
          case 3: {  // one of two or three
            if (dims.size() > 6) break;
            const std::int64_t of = draw(2, 3);
            steps.push_back({3, {draw(0, of - 1)}, axis});
            dims.insert(dims.begin() + axis, of);
            break;
          }
          default: {  // a half of a Split
            steps.push_back({4, {draw(0, 1)}, axis});
            dims[at] *= 2;
          }
        }
      }
      ValueId id = b.input("x" + std::to_string(inputs++), dims);
      if (draw(0, 1) == 0) id = b.node("Relu", {id});  // then an image of four axes is read in channels last
      for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        const Ints& numbers = step->numbers;
        const auto one = [&](std::int64_t number) { return b.int64s({number}); };
        if (step->kind == 0) id = transpose(b, id, numbers);
        if (step->kind == 1)
          id = b.node("Reshape",
                      {id, b.constant(Tensor::of<std::int64_t>(Shape{std::int64_t(numbers.size())}, numbers))});
        if (step->kind == 2)
          id = b.node("Slice", {id, one(numbers[0]), one(numbers[1]), one(step->axis), one(numbers[2])});
        if (step->kind == 3) id = index(b, id, numbers[0], step->axis);
        if (step->kind == 4) {
          const ValueId first = b.node("Split", {id}, {{"axis", step->axis}}, 13, 2);
          id = numbers[0] == 0 ? first : first + 1;
        }
      }
      return id;
    };
    const std::int64_t l = draw(1, 4), s = draw(1, 4), d = draw(1, 3), e = draw(1, 3), m = draw(1, 2), c = draw(1, 2);
    ValueId q = operand({m, c, l, d}), k = operand({m, c, s, d}), v = operand({m, c, s, e});
    if (draw(0, 3) == 0) v = draw(0, 1) == 0 && d == e ? k : v;
    if (draw(0, 3) == 0) b.output(k);
    const ValueId y = b.node("MatMul", {softmax(b, b.node("MatMul", {q, transpose(b, k, {0, 1, 3, 2})})), v});
    b.output(draw(0, 1) == 0 ? y : transpose(b, y, {0, 2, 1, 3}));
    const Graph before = b.build(), fused = after(before, "fuse_attention");
    fused_count += count(fused, "Attention");
    CAPTURE(round);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
  CHECK(fused_count > 50);
}

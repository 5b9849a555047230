// fuse_attention: cosine attention (Swin V2). Rows of Q and K are divided by their norms.
#include <doctest/doctest.h>

#include "attention_builder.h"

using namespace lenslet;
using namespace lenslet::test;
using namespace lenslet::test::attention;

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

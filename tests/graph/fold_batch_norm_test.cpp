#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("fold_batch_norm/after_conv") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, 7, 9});
  b.output(b.batch_norm(b.conv(x, 4, 6, 3, 1), 6));
  const Graph before = b.build(), folded = after(before, "fold_batch_norm");
  CHECK(count(folded, "BatchNormalization") == 0);
  CHECK(only(folded, "Conv").op->epilogue()->scale.size() == 6);
  CHECK(worst_difference(before, folded) < 1e-5);
}

TEST_CASE("fold_batch_norm/after_conv_without_bias") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 7, 9});
  b.output(b.batch_norm(b.node("Conv", {x, b.weights({6, 4, 3, 3})}), 6));
  const Graph before = b.build(), folded = after(before, "fold_batch_norm");
  CHECK(only(folded, "Conv").inputs.size() == 3);
  CHECK(worst_difference(before, folded) < 1e-5);
}

TEST_CASE("fold_batch_norm/after_gemm") {
  GraphBuilder b;
  const ValueId x = b.input("x", {3, 5});
  const ValueId y = b.node("Gemm", {x, b.weights({7, 5}), b.weights({7})},
                           {{"transB", std::int64_t{1}}, {"alpha", 0.5}, {"beta", 2.0}});
  b.output(b.batch_norm(y, 7));
  const Graph before = b.build(), folded = after(before, "fold_batch_norm");
  CHECK(folded.nodes.size() == 1);
  CHECK(worst_difference(before, folded) < 1e-5);
}

TEST_CASE("fold_batch_norm/twice") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 7, 9});
  b.output(b.batch_norm(b.batch_norm(b.conv(x, 4, 6, 3), 6), 6));
  const Graph before = b.build(), folded = after(before, "fold_batch_norm");
  CHECK(folded.nodes.size() == 1);
  CHECK(worst_difference(before, folded) < 1e-5);
}

TEST_CASE("fold_batch_norm/before_a_convolution_without_padding") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 7, 9}), pooled = b.node("GlobalAveragePool", {x});
  ValueId y = b.batch_norm(x, 6);
  SUBCASE("1x1") { y = b.conv(y, 6, 5, 1); }
  SUBCASE("3x3 with stride 2, and a BatchNormalization behind it") { y = b.batch_norm(b.conv(y, 6, 5, 3, 0, 2), 5); }
  SUBCASE("groups, no bias") { y = b.node("Conv", {y, b.weights({9, 2, 1, 3})}, {{"group", std::int64_t{3}}}); }
  SUBCASE("depthwise, behind two") {
    y = b.node("Conv", {b.batch_norm(y, 6), b.weights({6, 1, 2, 2})}, {{"group", std::int64_t{6}}});
  }
  SUBCASE("with an activation") { y = b.node("Relu", {b.conv(y, 6, 5, 1)}); }
  b.output(b.node("Mul", {y, b.node("ReduceMean", {pooled}, {{"axes", std::vector<std::int64_t>{1}}})}));
  const Graph before = b.build(), folded = after(before, "fold_batch_norm");
  CHECK(count(folded, "BatchNormalization") == 0);
  CHECK(worst_difference(before, folded) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// Each branch of a Concat takes its channels' part (MixNet), also of nested Concats and of Gemm.
TEST_CASE("fold_batch_norm/behind_a_concat") {
  using Ints = std::vector<std::int64_t>;
  const auto join = [](GraphBuilder& b, std::vector<ValueId> parts, std::int64_t axis = 1) {
    return b.node("Concat", std::move(parts), {{"axis", axis}});
  };
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, 6, 5});
  ValueId y = no_id;
  int convs = 2;
  SUBCASE("two") { y = join(b, {b.conv(x, 4, 3, 3, 1), b.conv(x, 4, 5, 1)}); }
  SUBCASE("axis from the end") { y = join(b, {b.conv(x, 4, 3, 3, 1), b.conv(x, 4, 5, 1)}, -3); }
  SUBCASE("nested") {
    y = join(b, {b.conv(x, 4, 2, 1), join(b, {b.conv(x, 4, 1, 3, 1), b.conv(x, 4, 3, 1)}), b.conv(x, 4, 2, 5, 2)});
    convs = 4;
  }
  SUBCASE("along rows, each has all channels") { y = join(b, {b.conv(x, 4, 8, 3, 1), b.conv(x, 4, 8, 1)}, 2); }
  SUBCASE("depthwise, behind a Split") {
    const ValueId half = b.node("Slice", {x, b.int64s({0}), b.int64s({2}), b.int64s({1})});
    const ValueId rest = b.node("Slice", {x, b.int64s({2}), b.int64s({4}), b.int64s({1})});
    const auto depthwise = [&](ValueId of, std::int64_t kernel) {
      return b.node("Conv", {of, b.weights({4, 1, kernel, kernel})},
                    {{"group", std::int64_t{2}}, {"pads", Ints(4, kernel / 2)}});
    };
    y = join(b, {depthwise(half, 3), depthwise(rest, 5)});
  }
  b.output(b.node("Relu", {b.batch_norm(y, 8)}));
  const Graph before = b.build(), folded = after(before, "fold_batch_norm");
  INFO(folded.dump());
  CHECK(count(folded, "BatchNormalization") == 0);
  CHECK(worst_difference(before, folded) < 1e-5);
  const Graph fused = after(folded, "fuse_activation");
  CHECK(count(fused, "Relu") == 0);
  CHECK(count(fused, "Conv") == convs);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// LeViT normalises tokens as rows: [N,T,C] as [N*T,C], behind a MatMul that has become a convolution.
TEST_CASE("fold_batch_norm/of_tokens") {
  for (const std::int64_t batch : {1, 3}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {-1, 5, 6}), shape = b.int64s({-1, 5, 7});
    const ValueId rows = b.node("Flatten", {b.node("MatMul", {x, b.weights({6, 7})})}, {{"axis", std::int64_t{2}}});
    b.output(b.node("Relu", {b.node("Reshape", {b.batch_norm(rows, 7), shape})}));
    const Graph before = b.build(batch), folded = after(after(before, "matmul_to_conv"), "fold_batch_norm");
    INFO(folded.dump());
    CHECK(count(folded, "BatchNormalization") == 0);
    CHECK(worst_difference(before, folded) < 1e-5);
    const Graph all = after_all(before);
    CHECK(count(all, "Relu") == 0);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

// Then their residual goes into the convolution, too, through all views between.
TEST_CASE("fold_batch_norm/of_tokens_with_a_residual") {
  for (const std::int64_t batch : {1, 3}) {
    GraphBuilder b;
    const ValueId x = b.node("Sin", {b.input("x", {-1, 5, 6})}), shape = b.int64s({-1, 5, 6});
    const ValueId rows = b.node("Flatten", {b.node("MatMul", {x, b.weights({6, 6})})}, {{"axis", std::int64_t{2}}});
    b.output(b.node("Sin", {b.node("Add", {x, b.node("Reshape", {b.batch_norm(rows, 6), shape})})}));
    const Graph before = b.build(batch), all = after_all(before);
    INFO(all.dump());
    CHECK(count(all, "BatchNormalization") == 0);
    CHECK(count(all, "Add") == 0);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("fold_batch_norm/behind_moves_stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, 6, 6});
  const auto join = [&](ValueId left, ValueId right) {
    return b.node("Concat", {left, right}, {{"axis", std::int64_t{1}}});
  };
  const ValueId left = b.conv(x, 4, 3, 1), right = b.conv(x, 4, 3, 3, 1);
  SUBCASE("a part that no product makes") { b.output(b.batch_norm(join(left, b.node("Sin", {x})), 7)); }
  SUBCASE("a part that another reads") {
    b.output(b.batch_norm(join(left, right), 6));
    b.output(b.node("Sin", {right}));
  }
  SUBCASE("a part that is an output") {
    b.output(b.batch_norm(join(left, right), 6));
    b.output(right);
  }
  SUBCASE("a Concat that another reads, as DenseNet's") {
    const ValueId both = join(left, right);
    b.output(b.batch_norm(both, 6));
    b.output(b.node("Sin", {both}));
  }
  SUBCASE("a part twice") { b.output(b.batch_norm(join(left, left), 6)); }
  SUBCASE("a part behind an activation") { b.output(b.batch_norm(join(left, b.node("Relu", {right})), 6)); }
  SUBCASE("rows are no channels") {
    b.output(b.batch_norm(b.node("Transpose", {left}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}}), 6));
  }
  SUBCASE("a view cuts channels") { b.output(b.batch_norm(b.node("Reshape", {left, b.int64s({2, 6, 18})}), 6)); }
  const Graph before = b.build();
  Graph folded = after(before, "fold_batch_norm");
  CHECK(count(folded, "BatchNormalization") == 1);
  CHECK(worst_difference(before, folded) == 0);
}

TEST_CASE("fold_batch_norm/shared_weights_two_bns") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6}), w = b.weights({5, 4, 3, 3});
  const ValueId left = b.batch_norm(b.node("Conv", {x, w}), 5), right = b.batch_norm(b.node("Conv", {x, w}), 5);
  b.output(b.node("Concat", {left, right}, {{"axis", std::int64_t{1}}}));
  const Graph before = b.build(), folded = after(before, "fold_batch_norm");
  CHECK(count(folded, "BatchNormalization") == 0);
  CHECK(worst_difference(before, folded) < 1e-5);
}

TEST_CASE("fold_batch_norm/stays_where_others_look") {
  SUBCASE("two readers") {
    GraphBuilder b;
    const ValueId y = b.conv(b.input("x", {1, 4, 6, 6}), 4, 4, 1);
    b.output(b.node("Add", {y, b.batch_norm(y, 4)}));
    const Graph before = b.build(), folded = after(before, "fold_batch_norm");
    CHECK(count(folded, "BatchNormalization") == 1);
    CHECK(worst_difference(before, folded) == 0);
  }
  SUBCASE("graph output") {
    GraphBuilder b;
    const ValueId y = b.conv(b.input("x", {1, 4, 6, 6}), 4, 4, 1);
    b.output(b.batch_norm(y, 4));
    b.output(y);
    const Graph before = b.build(), folded = after(before, "fold_batch_norm");
    CHECK(count(folded, "BatchNormalization") == 1);
    CHECK(worst_difference(before, folded) == 0);
  }
  SUBCASE("before a padded convolution") {
    GraphBuilder b;
    b.output(b.conv(b.batch_norm(b.input("x", {1, 4, 7, 7}), 4), 4, 6, 3, 1));
    const Graph before = b.build(), folded = after(before, "fold_batch_norm");
    CHECK(count(folded, "BatchNormalization") == 1);
    CHECK(worst_difference(before, folded) == 0);
  }
  SUBCASE("after an activation") {
    GraphBuilder b;
    b.output(b.batch_norm(b.node("Relu", {b.conv(b.input("x", {1, 4, 7, 7}), 4, 6, 3, 1)}), 6));
    const Graph before = b.build();
    const Graph fused = after(before, "fuse_activation"), folded = after(fused, "fold_batch_norm");
    CHECK(count(folded, "BatchNormalization") == 1);
    CHECK(worst_difference(before, folded) == 0);
  }
  SUBCASE("filters computed by the network") {
    GraphBuilder b;
    const ValueId x = b.input("x", {1, 4, 7, 7}), w = b.input("w", {6, 4, 3, 3});
    b.output(b.batch_norm(b.node("Conv", {x, w}), 6));
    const Graph before = b.build(), folded = after(before, "fold_batch_norm");
    CHECK(count(folded, "BatchNormalization") == 1);
    CHECK(worst_difference(before, folded) == 0);
  }
}

TEST_CASE("fold_batch_norm/not_finite_stays") {
  for (std::size_t channel = 0; channel < 3; ++channel)
    for (const bool factor : {true, false}) {  // sqrt of a negative variance; values beyond float32
      GraphBuilder b;
      const ValueId y = b.conv(b.input("x", {1, 2, 3, 3}), 2, 3, 1);
      const ValueId one = b.constant(Tensor::of<float>(Shape{3}, {1, 1, 1}));
      Tensor odd = Tensor::of<float>(Shape{3}, {1, 1, 1});
      odd.values<float>()[channel] = factor ? -9 : 3e38F;
      const ValueId tiny = b.constant(Tensor::of<float>(Shape{3}, {1e-3F, 1e-3F, 1e-3F})), given = b.constant(odd);
      b.output(b.node("BatchNormalization", {y, one, one, factor ? one : given, factor ? given : tiny}));
      CHECK(count(after(b.build(), "fold_batch_norm"), "BatchNormalization") == 1);
    }
}

// Factors multiply, which no bias shows.
TEST_CASE("fold_batch_norm/factors_beyond_float32_stay") {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    GraphBuilder b;
    Tensor large = Tensor::of<float>(Shape{3}, {1, 1, 1});
    large.values<float>()[channel] = 1e30F;
    const ValueId one = b.constant(Tensor::of<float>(Shape{3}, {1, 1, 1}));
    const ValueId none = b.constant(Tensor::of<float>(Shape{3}, {0, 0, 0}));
    ValueId y = b.node("Conv", {b.input("x", {1, 2, 3, 3}), b.weights({3, 2, 1, 1})});
    for (int i = 0; i < 2; ++i) y = b.node("BatchNormalization", {y, b.constant(large), none, none, one});
    b.output(y);
    CHECK(count(after(b.build(), "fold_batch_norm"), "BatchNormalization") == 1);
  }
}

// batch_first: torch.nn.MultiheadAttention between Transposes of its tokens.
#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t n = 3, tokens = 7, heads = 2, size = 4, width = heads * size;

struct Options {
  bool bias = true, rows_first = true;
  double alpha = 1;           ///< of the Gemm
  bool read_between = false;  ///< the projection's result is an output too
};

ValueId reshape(GraphBuilder& b, ValueId x, std::initializer_list<std::int64_t> dims) {
  return b.node("Reshape", {x, b.int64s(dims)});
}
ValueId transpose(GraphBuilder& b, ValueId x, const Ints& perm) { return b.node("Transpose", {x}, {{"perm", perm}}); }

/// As PyTorch exports it: x [n,tokens,width] to [n,tokens,width].
ValueId attention(GraphBuilder& b, ValueId x, const Options& options = {}) {
  ValueId all = b.node("MatMul", {transpose(b, x, {1, 0, 2}), b.weights({width, 3 * width}, 0, 0.3)});
  if (options.bias) all = b.node("Add", {b.weights(Shape{3 * width}), all});
  if (options.read_between) b.output(all);
  const ValueId apart = b.node("Unsqueeze", {reshape(b, all, {tokens, n, 3, width}), b.int64s({0})});
  const ValueId three = b.node("Squeeze", {transpose(b, apart, {3, 1, 2, 0, 4}), b.int64s({3})});
  ValueId part[3];
  for (std::int64_t i = 0; i < 3; ++i) {
    const ValueId rows =
        b.node("Gather", {three, b.constant(Tensor::of<std::int64_t>(Shape{}, {i}))}, {{"axis", std::int64_t{0}}});
    part[i] =
        reshape(b, transpose(b, reshape(b, rows, {tokens, n * heads, size}), {1, 0, 2}), {n, heads, tokens, size});
  }
  const ValueId scores = b.node("MatMul", {part[0], transpose(b, part[1], {0, 1, 3, 2})});
  const ValueId y = b.node("MatMul", {b.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), part[2]});
  const ValueId flat = reshape(b, transpose(b, y, {2, 0, 1, 3}), {tokens * n, width});
  std::vector<ValueId> inputs{flat, b.weights({width, width}, 0, 0.3)};
  if (options.bias) inputs.push_back(b.weights(Shape{width}));
  const ValueId product =
      b.node("Gemm", inputs, {{"transB", std::int64_t{options.rows_first}}, {"alpha", options.alpha}});
  return transpose(b, reshape(b, product, {tokens, n, width}), {1, 0, 2});
}

}  // namespace

TEST_CASE("batch_first/no_row_moves") {
  Options options;
  SUBCASE("as exported") {}
  SUBCASE("no biases") { options.bias = false; }
  SUBCASE("the second matrix is [E,K]") { options.rows_first = false; }
  GraphBuilder b;
  const ValueId x = b.input("x", {n, tokens, width});
  b.output(b.node("Add", {x, attention(b, x, options)}));
  const Graph before = b.build(n), moved = after(before, "batch_first"), all = after_all(before);
  CHECK(worst_difference(before, moved) < 1e-6);
  CHECK(worst_difference(before, all) < 1e-5);
  CHECK(count(all, "Attention") == 1);
  CHECK(count(all, "Transpose") + count(all, "Add") + count(all, "Gemm") == 0);
  CHECK(count(after_all(before, {"batch_first"}), "Transpose") == 2);
}

TEST_CASE("batch_first/stays") {
  Options options;
  SUBCASE("a scaled product") { options.alpha = 0.5; }
  SUBCASE("others read the projection") { options.read_between = true; }
  GraphBuilder b;
  b.output(attention(b, b.input("x", {n, tokens, width}), options));
  const Graph before = b.build(n), moved = after(before, "batch_first");
  CHECK(worst_difference(before, moved) < 1e-6);
  CHECK(count(moved, "Gemm") == (options.alpha == 1 ? 0 : 1));
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("batch_first/products_that_make_no_heads_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {n, tokens, width});
  b.output(b.node("MatMul", {transpose(b, x, {1, 0, 2}), b.weights({width, 5})}));
  const Graph before = b.build(n), moved = after(before, "batch_first");
  CHECK(moved.nodes[0].type() == "Transpose");
  CHECK(worst_difference(before, moved) == 0);
}

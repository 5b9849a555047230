// fuse_attention: ReLU linear attention, as EfficientViT has it.
#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t n = 2, heads = 3, size = 4, h = 5, w = 6, tokens = h * w;

struct Options {
  float padding = 1;                     ///< of V
  std::int64_t columns = size;           ///< that are divided
  bool relu_of_q = true, other = false;  ///< `other`: the sums are an output too
};

ValueId slice(GraphBuilder& b, ValueId x, std::int64_t begin, std::int64_t end) {
  return b.node("Slice", {x, b.int64s({begin}), b.int64s({end}), b.int64s({3})});
}

/// Of q, k, v [n,heads,tokens,size]: y [n,heads,tokens,size].
ValueId linear(GraphBuilder& b, ValueId q, ValueId k, ValueId v, const Options& options = {}) {
  const ValueId positive_q = options.relu_of_q ? b.node("Relu", {q}) : b.node("Softplus", {q});
  const ValueId k_columns = b.node("Transpose", {b.node("Relu", {k})}, {{"perm", Ints{0, 1, 3, 2}}});
  const ValueId padded = b.node("Pad", {v, b.int64s({0, 0, 0, 0, 0, 0, 0, 1}), b.scalar(options.padding)});
  const ValueId sums = b.node("MatMul", {positive_q, b.node("MatMul", {k_columns, padded})});
  if (options.other) b.output(sums);
  const ValueId divisor = b.node("Add", {slice(b, sums, -1, 100), b.scalar(1e-3F)});
  return b.node("Div", {slice(b, sums, size - options.columns, size), divisor});
}

/// Q, K and V of an image whose channels are [heads][q, k, v][size].
ValueId of_image(GraphBuilder& b, ValueId image) {
  const ValueId all = b.node("Transpose", {b.node("Reshape", {image, b.int64s({n, heads, 3 * size, tokens})})},
                             {{"perm", Ints{0, 1, 3, 2}}});
  const ValueId y = linear(b, slice(b, all, 0, size), slice(b, all, size, 2 * size), slice(b, all, 2 * size, 100));
  const ValueId turned = b.node("Transpose", {y}, {{"perm", Ints{0, 1, 3, 2}}});
  return b.node("Reshape", {turned, b.int64s({n, heads * size, h, w})});
}

}  // namespace

TEST_CASE("fuse_attention/linear_between_convolutions") {
  GraphBuilder b;
  const ValueId image = b.conv(b.input("x", {n, 8, h, w}), 8, heads * 3 * size, 1);
  b.output(b.conv(of_image(b, image), heads * size, 8, 1));
  const Graph before = b.build(n), all = after_all(before);
  CHECK(count(all, "Attention") == 1);
  CHECK(count(all, "Transpose") + count(all, "MatMul") + count(all, "Slice") == 0);
  CHECK(count(all, "LayoutConvert") <= 2);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("fuse_attention/linear_of_three_values") {
  GraphBuilder b;
  b.output(linear(b, b.input("q", {n, heads, 9, size}), b.input("k", {n, heads, tokens, size}),
                  b.input("v", {n, heads, tokens, size})));
  const Graph before = b.build(n), fused = after(before, "fuse_attention");
  CHECK(fused.nodes.size() == 1);
  CHECK(attribute<double>(*only(fused, "Attention").op, "linear_epsilon") == doctest::Approx(1e-3));
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_attention/linear_stays") {
  Options options;
  SUBCASE("V is padded by another number") { options.padding = 2; }
  SUBCASE("not all columns are divided") { options.columns = size - 1; }
  SUBCASE("Q has another function") { options.relu_of_q = false; }
  SUBCASE("others read the sums") { options.other = true; }
  GraphBuilder b;
  const ValueId q = b.input("q", {n, heads, 9, size});
  b.output(linear(b, q, b.input("k", {n, heads, tokens, size}), b.input("v", {n, heads, tokens, size}), options));
  const Graph before = b.build(n), fused = after(before, "fuse_attention");
  CHECK(count(fused, "Attention") == 0);
  CHECK(worst_difference(before, fused) == 0);
}

// fuse_attention: attention between channels, as DaViT, XCiT and EdgeNeXt have it. CUDA alone.
#include <doctest/doctest.h>

#include <random>

#include "attention_builder.h"

using namespace lenslet;
using namespace lenslet::test;
using namespace lenslet::test::attention;

namespace {

PassContext on_cuda(std::string_view precision = "fp16") {
  return {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"};
}

/// As networks spell it: DaViT's two blocks, XCiT's, and V S^T without a Transpose of y's channels.
enum class Spelled { davit, davit_v2, xcit, of_columns };
enum class Taken { gather, split, slice };
/// Where a scale of 0.5 stands.
enum class Scaled { nothing, q, k, scores };

struct Options {
  Spelled as = Spelled::davit;
  Taken taken = Taken::gather;
  Scaled scaled = Scaled::k;
  bool unit = false, temperature = false;  ///< XCiT's
  std::int64_t n = 2, heads = 3, tokens = 7, size = 8;
  std::int64_t axis = -1;         ///< of Softmax
  bool turned_y = true;           ///< y is written as tokens
  int output = 0;                 ///< another output: 1 the scores, 2 their Softmax, 3 the second product, 4 Q
  bool biased = false;            ///< a summand for each score
  std::int64_t temperatures = 1;  ///< for each head
};

ValueId unit_rows(GraphBuilder& b, ValueId x, const Shape& shape) {
  const ValueId norm = b.node("ReduceL2", {x}, {{"axes", Ints{-1}}, {"keepdims", std::int64_t{1}}});
  const std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  const ValueId sizes = b.constant(Tensor::of<std::int64_t>(Shape{std::int64_t(dims.size())}, dims));
  return b.node("Div", {x, b.node("Expand", {b.node("Clip", {norm, b.scalar(1e-12F)}), sizes})});
}

/// Of qkv [n,tokens,3*heads*size]: y [n,tokens,heads*size].
ValueId between_channels(GraphBuilder& b, ValueId qkv, const Options& o) {
  const bool channels_first = o.as == Spelled::xcit;
  const ValueId all = transpose(b, reshape(b, qkv, {o.n, o.tokens, 3, o.heads, o.size}),
                                channels_first ? Ints{2, 0, 3, 4, 1} : Ints{2, 0, 3, 1, 4});
  const ValueId parts = o.taken == Taken::split ? b.node("Split", {all}, {{"axis", std::int64_t{0}}}, 13, 3) : no_id;
  const auto part = [&](std::int64_t i) {
    if (o.taken == Taken::gather) return index(b, all, i);
    const ValueId one = o.taken == Taken::split
                            ? parts + static_cast<ValueId>(i)
                            : b.node("Slice", {all, b.int64s({i}), b.int64s({i + 1}), b.int64s({0})});
    return b.node("Squeeze", {one, b.int64s({0})});
  };
  ValueId q = part(0), k = part(1), v = part(2);
  if (o.output == 4) b.output(q);
  if (o.as == Spelled::davit) {  // scores of K and V, values of Q
    const ValueId of_values = q;
    q = k, k = v, v = of_values;
  }
  const Shape columns{o.n, o.heads, o.size, o.tokens};
  if (!channels_first) q = turned(b, q);
  if (o.unit) q = unit_rows(b, q, columns), k = unit_rows(b, k, columns);
  if (o.scaled == Scaled::q) q = times(b, q, 0.5F);
  if (o.scaled == Scaled::k) k = times(b, k, 0.5F);
  ValueId scores = b.node("MatMul", {q, channels_first ? turned(b, k) : k});
  if (o.output == 1) b.output(scores);
  if (o.scaled == Scaled::scores) scores = times(b, scores, 0.5F);
  if (o.temperature) scores = b.node("Mul", {scores, b.weights({o.heads, o.temperatures, 1}, 2)});
  if (o.biased) scores = b.node("Add", {scores, b.weights({o.size, o.size})});
  const ValueId shares = b.node("Softmax", {scores}, {{"axis", o.axis}});
  if (o.output == 2) b.output(shares);
  if (o.as == Spelled::of_columns)
    return reshape(b, transpose(b, b.node("MatMul", {v, turned(b, shares)}), {0, 2, 1, 3}),
                   {o.n, o.tokens, o.heads * o.size});
  const ValueId y = b.node("MatMul", {shares, channels_first ? v : turned(b, v)});
  if (o.output == 3) b.output(y);
  if (!o.turned_y) return reshape(b, y, {o.n, o.heads * o.size, o.tokens});
  return reshape(b, transpose(b, y, {0, 3, 1, 2}), {o.n, o.tokens, o.heads * o.size});
}

/// A product before it and one behind it.
Graph block(const Options& o) {
  GraphBuilder b;
  const std::int64_t c = o.heads * o.size;
  const ValueId qkv = b.node("MatMul", {b.input("x", {o.n, o.tokens, 6}), b.weights({6, 3 * c}, 0, 0.4)});
  b.output(b.node("MatMul", {between_channels(b, qkv, o), b.weights({o.turned_y ? c : o.tokens, 5})}));
  return b.build(o.n);
}

int fused_count(const Graph& graph) {
  int found = 0;
  for (const Node& node : graph.nodes)
    found += node.type() == "Attention" && integer_attribute(*node.op, "between_channels") == 1;
  return found;
}

void check_fused(const Graph& before) {
  const Graph fused = after(before, "fuse_attention", on_cuda());
  REQUIRE(fused_count(fused) == 1);
  CHECK(fused.nodes.size() == 3);
  const Node& node = only(fused, "Attention");
  CHECK((node.inputs[0] == fused.nodes[0].outputs[0] && node.inputs[1] == no_id && node.inputs[2] == no_id));
  CHECK(worst_difference(before, fused) < 1e-5);
}

}  // namespace

TEST_CASE("fuse_attention/between_channels") {
  Options o;
  SUBCASE("DaViT") {}
  SUBCASE("DaViT V2") { o.as = Spelled::davit_v2, o.scaled = Scaled::q; }
  SUBCASE("XCiT") { o.as = Spelled::xcit, o.unit = o.temperature = true, o.scaled = Scaled::nothing; }
  SUBCASE("an odd number of channels") { o.size = 5; }
  SUBCASE("64 channels, a batch of one") { o.size = 64, o.n = 1; }
  const Graph before = block(o);
  check_fused(before);
  for (const std::string_view precision : {"fp16", "fp32"}) {
    const Graph all = after_all(before, on_cuda(precision));
    CHECK(fused_count(all) == 1);
    CHECK(count(all, "Softmax") + count(all, "Split") + count(all, "Slice") + count(all, "ReduceL2") == 0);
  }
  CHECK(fused_count(after_all(before)) == 0);  // for the CPU
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// The rows and the scale, in numbers.
TEST_CASE("fuse_attention/between_channels_where_the_product_wrote_them") {
  const Graph fused = after(block({}), "fuse_attention", on_cuda());
  const Node& node = only(fused, "Attention");
  CHECK(list(node, "sizes") == Ints{2, 3, 8, 8, 7, 7});
  CHECK(list(node, "q") == Ints{24, 504, 8, 72});  // DaViT's K
  CHECK(list(node, "k") == Ints{48, 504, 8, 72});
  CHECK(list(node, "v") == Ints{0, 504, 8, 72});
  CHECK(list(node, "y") == Ints{0, 168, 8, 24});
  CHECK(attribute<double>(node, "scale") == 0.5);
}

TEST_CASE("fuse_attention/between_channels_drawn") {
  std::mt19937 random(5);
  const auto draw = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  int kept = 0;
  for (int round = 0; round < 40; ++round) {
    Options o{.as = static_cast<Spelled>(draw(3)),
              .taken = static_cast<Taken>(draw(2)),
              .scaled = static_cast<Scaled>(draw(3)),
              .temperature = draw(2) == 0,
              .n = 1 + draw(2),
              .heads = 1 + draw(3),
              .tokens = 2 + draw(9),
              .size = 2 + draw(9)};
    o.unit = o.as == Spelled::xcit && draw(1) == 0;
    if (o.unit && o.scaled != Scaled::nothing) o.scaled = Scaled::scores;
    if (draw(2) == 0) o.output = 1 + draw(3);
    CAPTURE(round);
    const Graph before = block(o), fused = after(before, "fuse_attention", on_cuda());
    const bool stays = o.output == 1 || o.output == 2 || (o.output == 3 && o.as != Spelled::of_columns);
    CHECK(fused_count(fused) == (stays ? 0 : 1));
    CHECK(worst_difference(before, fused) < 1e-5);
    kept += stays ? 1 : 0;
  }
  CHECK(kept > 3);
}

TEST_CASE("fuse_attention/between_channels_stays") {
  Options o;
  SUBCASE("more channels than a block holds") { o.size = 65; }
  SUBCASE("the Softmax of columns") { o.axis = 2; }
  SUBCASE("a summand") { o.biased = true; }
  SUBCASE("a factor for each row") { o.temperature = true, o.temperatures = o.size; }
  SUBCASE("y in channels first") { o.turned_y = false; }
  SUBCASE("one token") { o.tokens = 1; }
  SUBCASE("others read the scores") { o.output = 1; }
  SUBCASE("others read the Softmax") { o.output = 2; }
  SUBCASE("others read y before its Transpose") { o.output = 3; }
  const Graph before = block(o), fused = after(before, "fuse_attention", on_cuda());
  CHECK(fused_count(fused) == 0);
  CHECK(worst_difference(before, fused) < 1e-5);
}

// The tokens of an image are its pixels, which lie apart in nhwc: attention between tokens, whose channels lie side by
// side there.
TEST_CASE("fuse_attention/tokens_of_images_are_no_channels") {
  GraphBuilder b;
  const ValueId image = b.conv(b.input("x", {2, 8, 4, 4}), 8, 48, 1);
  const ValueId all = reshape(b, image, {2, 3, 16, 16});
  const ValueId q = index(b, all, 0, 1), k = index(b, all, 1, 1), v = index(b, all, 2, 1);
  const ValueId shares = softmax(b, b.node("MatMul", {transpose(b, q, {0, 2, 1}), k}));
  const ValueId y = b.node("MatMul", {v, transpose(b, shares, {0, 2, 1})});
  b.output(b.conv(reshape(b, y, {2, 16, 4, 4}), 16, 8, 1));
  const Graph before = b.build(2), fused = after(before, "fuse_attention", on_cuda());
  CHECK(count(fused, "Attention") == 1);
  CHECK(fused_count(fused) == 0);
  CHECK(worst_difference(before, fused) < 1e-5);
}

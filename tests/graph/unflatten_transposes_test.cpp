#include <doctest/doctest.h>

#include <random>

#include "graph_builder.h"
#include "ops/core/choose.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Dims = std::vector<std::int64_t>;

ValueId shaped(GraphBuilder& b, ValueId x, const Dims& dims) {
  const Shape shape{static_cast<std::int64_t>(dims.size())};
  return b.node("Reshape", {x, b.constant(Tensor::of<std::int64_t>(shape, dims))});
}

ValueId swapped(GraphBuilder& b, ValueId x, const Dims& perm = {0, 2, 1}) {
  return b.node("Transpose", {x}, {{"perm", perm}});
}

PassContext on_cuda(const char* precision = "fp16") {
  return {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"};
}

}  // namespace

TEST_CASE("unflatten_transposes/drawn_images_there_and_back") {
  std::mt19937 random(random_seed());
  const auto drawn = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int round = 0; round < 20; ++round) {
    const std::int64_t n = drawn(3), c = drawn(9), h = drawn(6), w = drawn(6);
    CAPTURE(n);
    CAPTURE(c);
    CAPTURE(h * 100 + w);
    GraphBuilder b;
    const ValueId x = b.input("x", {n, c, h, w}), tokens = b.input("tokens", {n, h * w, c});
    b.output(swapped(b, shaped(b, x, {n, c, -1})));
    b.output(shaped(b, swapped(b, tokens), {0, 0, h, w}));
    const Graph before = b.build(n), found = after(before, "unflatten_transposes");
    CHECK(worst_difference(before, found) == 0);
    CHECK(found.nodes.size() == 4);
    for (const Node& node : found.nodes)
      if (node.type() == "Transpose") CHECK(attribute<Dims>(*node.op, "perm")->size() == 4);
  }
}

TEST_CASE("unflatten_transposes/no_conversion_between_convolutions_and_tokens") {
  GraphBuilder b;
  const ValueId image = b.conv(b.input("x", {2, 8, 14, 14}), 8, 32, 3, 1);
  const ValueId tokens =
      b.node("LayerNormalization",
             {swapped(b, shaped(b, image, {2, 32, 196})), b.weights(Shape{32}), b.weights(Shape{32})}, {}, 17);
  const ValueId product = b.node("MatMul", {tokens, b.weights(Shape{32, 16})});
  b.output(b.conv(shaped(b, swapped(b, product), {2, 16, 14, 14}), 16, 24, 3, 1));
  const Graph before = b.build(2), all = after_all(before);
  CHECK(count(all, "Transpose") == 0);
  CHECK(count(all, "LayoutConvert") <= 3);  // at the network's ends, and a halo
  CHECK(count(after_all(before, {"unflatten_transposes"}), "Transpose") == 2);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("unflatten_transposes/on_cuda_beside_other_readers_of_the_flat_image") {
  GraphBuilder b;
  const ValueId flat = shaped(b, b.input("x", {2, 6, 4, 5}), {2, 6, 20});
  b.output(swapped(b, flat));
  b.output(b.node("Relu", {flat}));
  const Graph before = b.build(2), found = after(before, "unflatten_transposes", on_cuda());
  CHECK(attribute<Dims>(*only(found, "Transpose").op, "perm")->size() == 4);
  CHECK(worst_difference(before, found) == 0);
}

TEST_CASE("unflatten_transposes/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 4, 5}), tokens = b.input("tokens", {2, 20, 6});
  SUBCASE("channels in groups") { b.output(swapped(b, shaped(b, x, {4, 3, 20}))); }
  SUBCASE("lines as channels") { b.output(swapped(b, shaped(b, x, {2, 24, 5}))); }
  SUBCASE("another order") { b.output(swapped(b, shaped(b, x, {2, 6, 20}), {1, 2, 0})); }
  SUBCASE("heads of the tokens") { b.output(shaped(b, swapped(b, tokens), {2, 3, 2, 20})); }
  SUBCASE("five axes") { b.output(shaped(b, swapped(b, tokens), {2, 6, 2, 2, 5})); }
  SUBCASE("another reader of the flat image") {
    const ValueId flat = shaped(b, x, {2, 6, 20});
    b.output(swapped(b, flat));
    b.output(b.node("Relu", {flat}));
  }
  SUBCASE("a graph output between") {
    const ValueId first = swapped(b, tokens);
    b.output(first);
    b.output(shaped(b, first, {2, 6, 4, 5}));
  }
  const Graph before = b.build(2), found = after(before, "unflatten_transposes");
  CHECK(attribute<Dims>(*only(found, "Transpose").op, "perm")->size() == 3);
  CHECK(found.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, found) == 0);
}

// x [N,C,H,W] flat times b [N,H*W,L], and the result an image again: on CUDA both images stay in nhwc.
TEST_CASE("unflatten_transposes/drawn_products_between_images") {
  std::mt19937 random(random_seed());
  const auto drawn = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  int turned = 0;
  for (int round = 0; round < 24; ++round) {
    const std::int64_t n = drawn(3), c = drawn(9), h = drawn(5), w = drawn(5), p = drawn(4), q = drawn(4);
    const bool rows = round % 2 == 0, twice = round % 3 == 0;
    CAPTURE(round);
    GraphBuilder b;
    const ValueId x = b.conv(b.input("x", {n, 3, h, w}), 3, c, 1);
    const ValueId of = b.input("b", rows ? Dims{n, p * q, h * w} : Dims{n, h * w, p * q});
    const ValueId y = b.node("MatMul", {shaped(b, x, {n, c, h * w}), rows ? swapped(b, of) : of});
    b.output(b.conv(shaped(b, y, {n, c, p, q}), c, 5, 1));
    if (twice) b.output(b.node("Relu", {shaped(b, y, {n, c, 1, p * q})}));
    const Graph before = b.build(n), found = after(before, "unflatten_transposes", on_cuda());
    CHECK(worst_difference(before, found) < 1e-5);
    CHECK(worst_difference(before, after(before, "unflatten_transposes")) == 0);
    CHECK(after(before, "unflatten_transposes").nodes.size() == before.nodes.size());  // the CPU
    CHECK(after(before, "unflatten_transposes", on_cuda("fp32")).nodes.size() == before.nodes.size());
    const bool small = h * w * p * q < c * (h * w + p * q);
    turned += small ? 1 : 0;
    const ValueId first = only(found, "MatMul").inputs[0];
    CHECK(found.value(only(found, "MatMul").outputs[0]).shape == (small ? Shape{n, p * q, c} : Shape{n, c, p * q}));
    CHECK((first == of) == (small && rows));
    if (!small) CHECK(found.nodes.size() == before.nodes.size());
  }
  CHECK(turned > 0);
}

TEST_CASE("unflatten_transposes/the_state_of_a_mixer_is_not_converted") {
  GraphBuilder b;
  const ValueId image = b.conv(b.input("x", {2, 8, 14, 14}), 8, 32, 3, 1);
  const ValueId flat = shaped(b, image, {2, 32, 196});
  const ValueId weights = b.node("Softmax", {shaped(b, b.conv(image, 32, 16, 1), {2, 16, 196})});
  const ValueId state = b.node("MatMul", {flat, swapped(b, weights)});
  const ValueId mixed = b.node("Conv", {state, b.weights({32, 32, 1}), b.weights({32})});
  const ValueId y = b.node("MatMul", {mixed, shaped(b, b.conv(image, 32, 16, 1), {2, 16, 196})});
  b.output(b.conv(shaped(b, y, {2, 32, 14, 14}), 32, 24, 3, 1));
  b.output(swapped(b, mixed));
  const Graph before = b.build(2);
  const Graph all = after_all(before, on_cuda()), other = after_all(before, on_cuda(), {"unflatten_transposes"});
  INFO(all.dump());
  // The weights, and the network's ends.
  CHECK(count(all, "LayoutConvert") == 3);
  CHECK(count(other, "LayoutConvert") == 8);
  CHECK(count(all, "Transpose") == 0);
}

TEST_CASE("unflatten_transposes/reductions_of_swapped_tokens") {
  GraphBuilder b;
  const ValueId tokens = b.input("tokens", {2, 20, 6}), swap = swapped(b, tokens);
  bool moved = true;
  const auto reduced = [&](const char* op, Dims axes, std::int64_t keeps) {
    b.output(b.node(op, {swap}, {{"axes", axes}, {"keepdims", keeps}}));
  };
  SUBCASE("mean of tokens") { reduced("ReduceMean", {-1}, 0); }
  SUBCASE("maximum of channels") { reduced("ReduceMax", {1}, 0); }
  SUBCASE("axes as an input") { b.output(b.node("ReduceSum", {swap, b.int64s({2})}, {{"keepdims", std::int64_t{0}}})); }
  SUBCASE("it keeps the axis") {
    reduced("ReduceMean", {2}, 1);
    moved = false;
  }
  SUBCASE("two axes") {
    reduced("ReduceMean", {1, 2}, 0);
    moved = false;
  }
  SUBCASE("another reader") {
    reduced("ReduceMean", {2}, 0);
    b.output(b.node("Relu", {swap}));
    moved = false;
  }
  const Graph before = b.build(2), found = after(before, "unflatten_transposes");
  CHECK(found.nodes.size() == before.nodes.size() - (moved ? 1 : 0));
  CHECK(worst_difference(before, found) < 1e-6);
}

TEST_CASE("unflatten_transposes/products_that_stay") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {2, 3, 4, 5}), 3, 6, 1), flat = shaped(b, x, {2, 6, 20});
  const ValueId of = b.input("b", {2, 20, 4});
  SUBCASE("the result is no image") { b.output(b.node("Softmax", {b.node("MatMul", {flat, of})})); }
  SUBCASE("another reader of the result") {
    const ValueId y = b.node("MatMul", {flat, of});
    b.output(shaped(b, y, {2, 6, 2, 2}));
    b.output(b.node("Softmax", {y}));
  }
  SUBCASE("an output of the network") {
    const ValueId y = b.node("MatMul", {flat, of});
    b.output(shaped(b, y, {2, 6, 2, 2}));
    b.output(y);
  }
  SUBCASE("other channels") { b.output(shaped(b, b.node("MatMul", {flat, of}), {2, 3, 4, 2})); }
  SUBCASE("lines of the image") {
    b.output(shaped(b, b.node("MatMul", {shaped(b, x, {2, 24, 5}), b.input("c", {2, 5, 4})}), {2, 24, 2, 2}));
  }
  SUBCASE("one matrix for all images") {
    b.output(shaped(b, b.node("MatMul", {flat, b.input("c", {1, 20, 4})}), {2, 6, 2, 2}));
  }
  SUBCASE("constant weights") { b.output(shaped(b, b.node("MatMul", {flat, b.weights({2, 20, 4})}), {2, 6, 2, 2})); }
  const Graph before = b.build(2), found = after(before, "unflatten_transposes", on_cuda());
  CHECK(found.nodes.size() == before.nodes.size());
  CHECK(count(found, "Transpose") == 0);
  CHECK(worst_difference(before, found) == 0);
}

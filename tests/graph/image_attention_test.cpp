// fuse_attention where convolutions make Q, K and V: Attention reads their images [N,C,H,W] as [N,H,W,C], and writes
// one.
#include <doctest/doctest.h>

#include "attention_builder.h"

using namespace lenslet;
using namespace lenslet::test;
using namespace lenslet::test::attention;

namespace {

constexpr std::int64_t height = 2, width = 3, channels = heads * size;
static_assert(height * width == tokens);

ValueId slice(GraphBuilder& b, ValueId x, std::int64_t from, std::int64_t to, std::int64_t axis) {
  return b.node("Slice", {x, b.int64s({from}), b.int64s({to}), b.int64s({axis})});
}
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

// V^T softmax(scores)^T: the tokens are columns from end to end.
TEST_CASE("fuse_attention/columns") {
  SUBCASE("parts of one convolution, as YOLO11 has it") {
    const Graph fused = check_images(
        [](GraphBuilder& b, ValueId x, std::int64_t batch) {
          const ValueId all = reshape(b, b.conv(x, 4, 3 * channels, 1), {batch, heads, 3 * size, tokens});
          const ValueId q = b.node("Split", {all, b.int64s({4, 4, 7})}, {{"axis", std::int64_t{2}}}, 13, 3);
          const ValueId s = times(b, b.node("MatMul", {turned(b, q), q + 1}), 0.5F);
          const ValueId y = b.node("MatMul", {q + 2, turned(b, softmax(b, s))});
          b.output(b.conv(reshape(b, y, {batch, heads * 7, height, width}), heads * 7, 4, 1));
        },
        2);
    CHECK(list(only(fused, "Attention"), "v") == Ints{8, tokens * 3 * channels, 3 * size, 3 * channels});
  }
  SUBCASE("one head of images, scores of three axes, as EfficientViT of MSRA has it") {
    const Graph fused = check_images(
        [](GraphBuilder& b, ValueId x, std::int64_t batch) {
          const auto columns = [&] { return reshape(b, b.conv(x, 4, size, 1), {batch, size, tokens}); };
          const ValueId q = transpose(b, columns(), {0, 2, 1});
          const ValueId s = b.node("Add", {b.node("MatMul", {q, columns()}), b.weights({tokens, tokens})});
          const ValueId y = b.node("MatMul", {columns(), transpose(b, softmax(b, s), {0, 2, 1})});
          b.output(b.conv(reshape(b, y, {batch, size, height, width}), size, 4, 1));
        },
        4);
    CHECK(list(only(fused, "Attention"), "sizes") == Ints{3, 1, tokens, tokens, size, size});
  }
}

// The tokens are turned back to rows behind the product, whose heads a Reshape joins before that.
TEST_CASE("fuse_attention/columns_turned_back") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, height, width});
  ValueId y = no_id;
  SUBCASE("of several heads") {
    const auto columns = [&] { return image(b, x, 2, heads); };
    const ValueId s = b.node("MatMul", {turned(b, columns()), columns()});
    y = b.node("MatMul", {columns(), turned(b, softmax(b, s))});
    y = transpose(b, reshape(b, y, {2, channels, tokens}), {0, 2, 1});
  }
  SUBCASE("of as many channels as tokens") {
    const auto columns = [&] { return reshape(b, b.conv(x, 4, tokens, 1), {2, tokens, tokens}); };
    const ValueId s = b.node("MatMul", {transpose(b, columns(), {0, 2, 1}), columns()});
    y = b.node("MatMul", {columns(), transpose(b, softmax(b, s), {0, 2, 1})});
    y = reshape(b, transpose(b, reshape(b, y, {2, tokens, 1, tokens}), {0, 2, 3, 1}), {2, tokens, height, width});
  }
  b.output(b.node("Relu", {y}));
  const Graph before = b.build();
  CHECK(worst_difference(before, after(before, "fuse_attention")) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

// A bias of three axes that is computed is one of heads.
TEST_CASE("fuse_attention/columns_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 4, height, width});
  const auto columns = [&] { return reshape(b, b.conv(x, 4, size, 1), {2, size, tokens}); };
  ValueId s = b.node("MatMul", {transpose(b, columns(), {0, 2, 1}), columns()});
  ValueId v = columns();
  Ints perm{0, 2, 1};
  SUBCASE("a bias of each image") { s = b.node("Add", {s, b.input("bias", {2, tokens, tokens})}); }
  SUBCASE("shares of each key's column") { perm = {0, 1, 2}; }
  SUBCASE("what others read") { b.output(s); }
  SUBCASE("V of no image") { v = b.input("v", {2, size, tokens}); }
  const ValueId y = b.node("MatMul", {v, transpose(b, softmax(b, s), perm)});
  b.output(b.conv(reshape(b, y, {2, size, height, width}), size, 4, 1));
  const Graph before = b.build(), fused = after(before, "fuse_attention");
  CHECK(count(fused, "Attention") == 0);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
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

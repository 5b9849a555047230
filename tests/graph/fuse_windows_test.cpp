// fuse_windows: attention in windows of an image becomes Attention over the image's own rows, with equal results.
#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t heads = 2, size = 5, c = heads * size, side = 4, window = side * side;
constexpr std::int64_t end_of_axis = std::int64_t{1} << 40;

ValueId reshape(GraphBuilder& b, ValueId x, std::initializer_list<std::int64_t> dims) {
  return b.node("Reshape", {x, b.int64s(dims)});
}
ValueId transpose(GraphBuilder& b, ValueId x, const Ints& perm) { return b.node("Transpose", {x}, {{"perm", perm}}); }
ValueId slice(GraphBuilder& b, ValueId x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  return b.node("Slice", {x, b.int64s({begin}), b.int64s({end}), b.int64s({axis})});
}
/// As torchvision exports torch.roll: [n,h,w,c] by -`count` along h and w.
ValueId rolled(GraphBuilder& b, ValueId x, std::int64_t count) {
  for (const std::int64_t axis : {1, 2})
    x = b.node("Concat", {slice(b, x, axis, count, end_of_axis), slice(b, x, axis, 0, count)}, {{"axis", axis}});
  return x;
}
ValueId project(GraphBuilder& b, ValueId x, std::int64_t from, std::int64_t to) {
  return b.node("Add", {b.weights({to}), b.node("MatMul", {x, b.weights({from, to}, 0, 0.3)})});
}

/// What a test changes of the block.
struct Block {
  std::int64_t n = 1, roll = 0, roll_back = 0;
  bool mask = false, gelu = false, norm = false, rms = false;
  std::int64_t norm_axis = -1;
  bool channels_first = false;  ///< x is [n,c,8,12], turned in the Transpose of the partition
  bool grid = false;            ///< windows of distant rows
  bool cosine = false;          ///< rows of Q and K are normalised, as Swin V2 has them
  bool sums = false;            ///< residuals between the moves, as MaxViT has them
  Shape added = {c};            ///< of a constant behind the second projection
  ValueId of = no_id;           ///< what is read instead of an input
  bool open = false;            ///< the last Reshape, to an image in channels first, is left out
};

/// Attention in windows of 4x4 of x [n,8,12,c], as torchvision's Swin exports it; of the windows' rows.
struct Parts {
  ValueId x = no_id, windows = no_id, qkv = no_id, y = no_id;
};
Parts build(GraphBuilder& b, const Block& block) {
  Parts parts;
  const std::int64_t n = block.n, count = n * 6;
  parts.x = block.of;
  if (parts.x == no_id)
    parts.x = b.node("Relu", {block.channels_first ? b.input("x", {n, c, 8, 12}) : b.input("x", {n, 8, 12, c})});
  const ValueId moved = block.roll == 0 ? parts.x : rolled(b, parts.x, block.roll);
  if (block.channels_first && block.grid) {
    const ValueId cut = transpose(b, reshape(b, moved, {n, c, 4, 2, 4, 3}), {0, 2, 4, 3, 5, 1});
    parts.windows = reshape(b, transpose(b, reshape(b, cut, {n, window, 6, c}), {0, 2, 1, 3}), {count, window, c});
  } else if (block.channels_first) {
    parts.windows =
        reshape(b, transpose(b, reshape(b, moved, {n, c, 2, side, 3, side}), {0, 2, 4, 3, 5, 1}), {count, window, c});
  } else {
    parts.windows =
        reshape(b, transpose(b, reshape(b, moved, {n, 2, side, 3, side, c}), {0, 1, 3, 2, 4, 5}), {count, window, c});
  }
  ValueId rows = parts.windows;
  if (block.norm)
    rows = b.node("LayerNormalization", {rows, b.weights({c}), b.weights({c})}, {{"axis", block.norm_axis}}, 17);
  if (block.rms) rows = b.node("RMSNormalization", {rows, b.weights({c})}, {{"axis", block.norm_axis}}, 23);
  parts.qkv = project(b, rows, c, 3 * c);
  const ValueId all = transpose(b, reshape(b, parts.qkv, {count, window, 3, heads, size}), {2, 0, 3, 1, 4});
  ValueId each[3];
  for (std::int64_t i = 0; i < 3; ++i)
    each[i] = b.node("Gather", {all, b.constant(Tensor::of<std::int64_t>(Shape{}, {i}))}, {{"axis", std::int64_t{0}}});
  if (block.cosine)
    for (ValueId* const x : {&each[0], &each[1]}) {
      const ValueId norm = b.node("ReduceL2", {*x}, {{"axes", Ints{-1}}});
      *x = b.node("Div", {*x, b.node("Clip", {norm, b.scalar(1e-12F)})});
    }
  else
    each[0] = b.node("Mul", {each[0], b.scalar(0.4F)});
  ValueId scores = b.node("MatMul", {each[0], transpose(b, each[1], {0, 1, 3, 2})});
  if (block.cosine) scores = b.node("Mul", {scores, b.weights({heads, 1, 1}, 8, 2)});
  scores = b.node("Add", {scores, b.weights({1, heads, window, window})});
  if (block.mask) {
    scores = b.node("Add", {reshape(b, scores, {n, 6, heads, window, window}), b.weights({6, 1, window, window})});
    scores = reshape(b, scores, {count, heads, window, window});
  }
  const ValueId shares = b.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  ValueId y = reshape(b, transpose(b, b.node("MatMul", {shares, each[2]}), {0, 2, 1, 3}), {count, window, c});
  y = b.node("Add", {project(b, y, c, c), b.weights(block.added)});
  if (block.gelu) y = b.node("Gelu", {y}, {}, 20);
  if (block.sums) {
    y = b.node("Add", {parts.windows, y});
    const ValueId hidden = project(b, y, c, 2 * c);
    y = b.node("Add", {project(b, b.node("Mul", {hidden, b.node("Sigmoid", {hidden})}), 2 * c, c), y});
  }
  if (block.channels_first && block.grid) {
    y = reshape(b, transpose(b, reshape(b, y, {n, 6, window, c}), {0, 2, 1, 3}), {n, 4, 4, 2, 3, c});
    y = reshape(b, transpose(b, y, {0, 5, 1, 3, 2, 4}), {n, c, 8, 12});
  } else if (block.channels_first) {
    y = transpose(b, reshape(b, y, {n, 2, 3, side, side, c}), {0, 5, 1, 3, 2, 4});
    if (!block.open) y = reshape(b, y, {n, c, 8, 12});
  } else {
    y = reshape(b, transpose(b, reshape(b, y, {n, 2, 3, side, side, c}), {0, 1, 3, 2, 4, 5}), {n, 8, 12, c});
  }
  parts.y = block.roll_back == 0 ? y : rolled(b, y, block.roll_back);
  return parts;
}

int moves(const Graph& graph) {
  return count(graph, "Slice") + count(graph, "Concat") + count(graph, "Transpose") + count(graph, "Gather");
}

Graph fused(const Graph& before) {
  const Graph graph = after(after(before, "fuse_attention"), "fuse_windows");
  INFO(graph.dump());
  REQUIRE(count(graph, "Attention") == 1);
  CHECK(worst_difference(before, graph) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
  return graph;
}

/// Nothing is left of the moves, and the image keeps its shape.
void check_joined(const Block& block) {
  GraphBuilder b;
  const Parts parts = build(b, block);
  b.output(b.node("Add", {parts.x, parts.y}));
  const Graph graph = fused(b.build());
  CHECK(moves(graph) == (block.channels_first ? 2 : 0));  // to channels last, and back
  CHECK(count(graph, "Reshape") == 0);
  const Node& attention = only(graph, "Attention");
  CHECK(graph.value(attention.outputs[0]).shape == Shape{block.n, 8, 12, c});
  REQUIRE(attention.inputs.size() == 5);
  CHECK(graph.value(attention.inputs[4]).shape == Shape{6, window});
}
void check_stays(GraphBuilder& b) { CHECK(only(fused(b.build()), "Attention").inputs.size() == 4); }

}  // namespace

TEST_CASE("fuse_windows/windows") {
  for (const std::int64_t n : {1, 3}) check_joined({.n = n});
}

TEST_CASE("fuse_windows/rolled_windows_with_masks") {
  for (const std::int64_t n : {1, 3}) check_joined({.n = n, .roll = 2, .roll_back = -2, .mask = true});
}

TEST_CASE("fuse_windows/steps_of_rows_between") {
  check_joined({.n = 2, .roll = 1, .roll_back = -1, .gelu = true, .norm = true, .added = {1, 1, c}});
  check_joined({.n = 2, .roll = 1, .roll_back = -1, .rms = true});
  // As fuse_layer_norm gives it; the image has another rank than the windows.
  check_joined({.n = 2, .roll = 1, .roll_back = -1, .norm = true, .norm_axis = 2});
  check_joined({.n = 2, .rms = true, .norm_axis = 2, .channels_first = true, .sums = true});
}

TEST_CASE("fuse_windows/of_images_in_channels_first") {
  for (const bool grid : {false, true})
    for (const std::int64_t n : {1, 3}) {
      check_joined({.n = n, .channels_first = true, .grid = grid});
      check_joined({.n = n, .norm = true, .channels_first = true, .grid = grid, .sums = true});
    }
}

// Exporters join the Reshape to the image and that of the next partition.
TEST_CASE("fuse_windows/windows_and_grid_with_one_reshape_between") {
  for (const std::int64_t n : {1, 3}) {
    GraphBuilder b;
    const ValueId windows = build(b, {.n = n, .norm = true, .channels_first = true, .sums = true, .open = true}).y;
    b.output(build(b, {.n = n, .norm = true, .channels_first = true, .grid = true, .sums = true, .of = windows}).y);
    const Graph before = b.build(), graph = after(after(before, "fuse_attention"), "fuse_windows"),
                all = after_all(before);
    CHECK(count(graph, "Attention") == 2);
    CHECK(moves(graph) == 4);  // to channels last, and back
    CHECK(moves(all) <= 2);    // at the ends
    CHECK(worst_difference(before, graph) < 1e-5);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("fuse_windows/cosine_attention") {
  for (const std::int64_t n : {1, 3}) check_joined({.n = n, .roll = 2, .roll_back = -2, .mask = true, .cosine = true});
}

TEST_CASE("fuse_windows/sums_between") { check_joined({.n = 2, .roll = 1, .roll_back = -1, .sums = true}); }

TEST_CASE("fuse_windows/no_residual") {
  GraphBuilder b;
  b.output(build(b, {.n = 2}).y);
  CHECK(moves(fused(b.build())) == 0);
}

TEST_CASE("fuse_windows/others_stay") {
  GraphBuilder b;
  SUBCASE("another way back") { b.output(build(b, {.roll = 2, .roll_back = -1, .mask = true}).y); }
  SUBCASE("no way back") { b.output(build(b, {.roll = 2}).y); }
  SUBCASE("a constant for each token of a window") { b.output(build(b, {.added = {window, c}}).y); }
  SUBCASE("a constant for each window") { b.output(build(b, {.added = {6, 1, c}}).y); }
  SUBCASE("a constant of more axes") { b.output(reshape(b, build(b, {.added = {1, 1, 1, 1, c}}).y, {96, c})); }
  SUBCASE("a norm over all of a window") { b.output(build(b, {.norm = true, .norm_axis = 1}).y); }
  SUBCASE("a sum with the image's other order") {
    const Parts parts = build(b, {});
    b.output(b.node("Add", {reshape(b, parts.x, {6, window, c}), reshape(b, parts.y, {6, window, c})}));
    b.output(reshape(b, parts.windows, {96, c}));
  }
  SUBCASE("the windows are an output") {
    const Parts parts = build(b, {});
    b.output(parts.windows);
    b.output(parts.y);
  }
  SUBCASE("the projection has another reader") {
    const Parts parts = build(b, {});
    b.output(b.node("Relu", {parts.qkv}));
    b.output(parts.y);
  }
  check_stays(b);
}

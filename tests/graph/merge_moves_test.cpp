// merge_moves: steps that move rows of one value become one gather of rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId ints(GraphBuilder& b, const Ints& list) {
  return b.constant(
      Tensor::of<std::int64_t>(Shape{std::ssize(list)}, std::span<const std::int64_t>(list.data(), list.size())));
}
ValueId reshape(GraphBuilder& b, ValueId x, const Ints& dims) { return b.node("Reshape", {x, ints(b, dims)}); }
ValueId transpose(GraphBuilder& b, ValueId x, const Ints& perm) { return b.node("Transpose", {x}, {{"perm", perm}}); }
ValueId slice(GraphBuilder& b, ValueId x, std::int64_t axis, std::int64_t begin, std::int64_t end,
              std::int64_t step = 1) {
  return b.node("Slice", {x, ints(b, {begin}), ints(b, {end}), ints(b, {axis}), ints(b, {step})});
}
ValueId concat(GraphBuilder& b, std::vector<ValueId> parts, std::int64_t axis) {
  return b.node("Concat", std::move(parts), {{"axis", axis}});
}
constexpr std::int64_t end_of_axis = std::int64_t{1} << 40;

/// As torchvision exports torch.roll: [n,h,w,c] by -`count` along h and w.
ValueId rolled(GraphBuilder& b, ValueId x, std::int64_t count) {
  for (const std::int64_t axis : {1, 2})
    x = concat(b, {slice(b, x, axis, count, end_of_axis), slice(b, x, axis, 0, count)}, axis);
  return x;
}
/// [n,8,8,c] in windows of 4x4, and back.
ValueId in_windows(GraphBuilder& b, ValueId x, std::int64_t n, std::int64_t c) {
  return reshape(b, transpose(b, reshape(b, x, {n, 2, 4, 2, 4, c}), {0, 1, 3, 2, 4, 5}), {n * 4, 16, c});
}
ValueId from_windows(GraphBuilder& b, ValueId x, std::int64_t n, std::int64_t c) {
  return reshape(b, transpose(b, reshape(b, x, {n, 2, 2, 4, 4, c}), {0, 1, 3, 2, 4, 5}), {n, 8, 8, c});
}
ValueId patches(GraphBuilder& b, ValueId x) {
  std::vector<ValueId> parts;
  for (const std::int64_t w : {0, 1})
    for (const std::int64_t h : {0, 1})
      parts.push_back(slice(b, slice(b, x, 1, h, end_of_axis, 2), 2, w, end_of_axis, 2));
  return concat(b, parts, -1);
}

int moves(const Graph& graph) {
  int steps = 0;
  for (const char* op : {"Slice", "Split", "Concat", "Transpose", "Gather"}) steps += count(graph, op);
  return steps;
}

/// Checks that the pass changes no bit, and returns the graph after it.
Graph merged(const Graph& before) {
  const Graph graph = after(before, "merge_moves");
  INFO(graph.dump());
  const std::vector<Tensor> inputs = random_inputs(before, 5);
  const std::vector<Tensor> a = interpret(before, inputs), b = interpret(graph, inputs);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i], b[i]));
  return graph;
}

Shape table_of(const Graph& graph) { return graph.value(only(graph, "Gather").inputs[1]).shape; }

}  // namespace

TEST_CASE("merge_moves/a_roll_and_a_partition_are_one_step_with_a_table_of_one_image") {
  for (const std::int64_t n : {1, 3}) {
    GraphBuilder b;
    const ValueId x = b.node("Relu", {b.input("x", {n, 8, 8, 24})});
    b.output(b.node("Relu", {in_windows(b, rolled(b, x, 1), n, 24)}));
    const Graph before = b.build(), graph = merged(before);
    CHECK(moves(before) == 7);
    CHECK(moves(graph) == 1);
    CHECK(table_of(graph) == Shape{64});
    CHECK(graph.value(only(graph, "Gather").outputs[0]).shape == Shape{n, 64, 24});
  }
}

TEST_CASE("merge_moves/windows_back_to_an_image_and_the_roll_back") {
  for (const std::int64_t n : {1, 3}) {
    GraphBuilder b;
    b.output(rolled(b, from_windows(b, b.input("x", {n * 4, 16, 24}), n, 24), -1));
    const Graph graph = merged(b.build());
    CHECK(moves(graph) == 1);
    CHECK(table_of(graph) == Shape{64});
  }
}

TEST_CASE("merge_moves/patch_merging") {
  for (const std::int64_t n : {1, 3}) {
    GraphBuilder b;
    b.output(patches(b, b.input("x", {n, 8, 6, 20})));
    const Graph before = b.build(), graph = merged(before);
    CHECK(moves(before) == 9);
    CHECK(moves(graph) == 1);
    CHECK(graph.value(only(graph, "Gather").outputs[0]).shape == Shape{n, 48, 20});
  }
}

TEST_CASE("merge_moves/there_and_back_is_no_step") {
  GraphBuilder b;
  b.output(rolled(b, rolled(b, b.input("x", {2, 8, 8, 4}), 3), -3));
  CHECK(moves(merged(b.build())) == 0);
}

TEST_CASE("merge_moves/parts_of_a_split_and_picked_rows") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 32});
  const ValueId parts = b.node("Split", {x}, {{"axis", std::int64_t{1}}}, 13, 3);
  b.output(
      b.node("Gather", {concat(b, {parts + 2, parts, parts}, 1), ints(b, {5, -1, 0})}, {{"axis", std::int64_t{1}}}));
  const Graph graph = merged(b.build());
  CHECK(moves(graph) == 1);
  CHECK(table_of(graph) == Shape{3});
}

TEST_CASE("merge_moves/what_cuts_rows_is_left_beside_the_rest") {
  GraphBuilder b;
  ValueId x = b.input("x", {1, 8, 8, 24});
  SUBCASE("behind") { b.output(transpose(b, in_windows(b, rolled(b, x, 2), 1, 24), {0, 2, 1})); }
  SUBCASE("before") {
    x = transpose(b, b.input("y", {1, 24, 8, 8}), {0, 2, 3, 1});
    b.output(in_windows(b, rolled(b, x, 2), 1, 24));
  }
  const Graph graph = merged(b.build());
  CHECK(count(graph, "Gather") == 1);
  CHECK(count(graph, "Transpose") == 1);
  CHECK(moves(graph) == 2);
}

TEST_CASE("merge_moves/other_readers_keep_what_they_read") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 8, 24}), roll = rolled(b, x, 2);
  SUBCASE("a step") { b.output(b.node("Relu", {roll})); }
  SUBCASE("an output") { b.output(roll); }
  b.output(in_windows(b, roll, 1, 24));
  const Graph graph = merged(b.build());
  CHECK(count(graph, "Gather") == 1);  // of the roll
  CHECK(count(graph, "Transpose") == 1);
  CHECK(moves(graph) == 2);
}

TEST_CASE("merge_moves/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 8, 24});
  int steps = 1;
  SUBCASE("one step alone") { b.output(in_windows(b, x, 1, 24)); }
  SUBCASE("rows of two values") {
    steps = 4;
    const ValueId y = b.input("y", {1, 8, 8, 24});
    const auto half = [&](ValueId of) { return slice(b, of, 1, 2, 5); };
    b.output(transpose(b, concat(b, {half(x), half(y)}, 1), {0, 2, 1, 3}));
  }
  SUBCASE("rows of a constant") {
    steps = 2;
    b.output(transpose(b, concat(b, {x, b.weights({1, 1, 8, 24})}, 1), {0, 2, 1, 3}));
  }
  SUBCASE("short rows") {
    steps = 3;
    const ValueId y = b.input("y", {1, 8, 8, 7});
    b.output(concat(b, {slice(b, y, 2, 1, 8), slice(b, y, 2, 0, 1)}, 2));
  }
  SUBCASE("three results") {
    steps = 4;
    const ValueId heads = transpose(b, reshape(b, x, {64, 3, 8}), {1, 0, 2});
    for (const std::int64_t i : {0, 1, 2})
      b.output(
          b.node("Gather", {heads, b.constant(Tensor::of<std::int64_t>(Shape{}, {i}))}, {{"axis", std::int64_t{0}}}));
  }
  SUBCASE("indices that the run computes") {
    steps = 2;
    const ValueId indices = b.node("Cast", {b.input("i", {3})}, {{"to", std::int64_t{7}}});
    b.output(b.node("Gather", {transpose(b, x, {0, 2, 1, 3}), indices}, {{"axis", std::int64_t{1}}}));
    CHECK(moves(after(b.build(), "merge_moves")) == steps);
    return;
  }
  SUBCASE("nothing") {
    steps = 2;
    b.output(transpose(b, slice(b, x, 1, 3, 3), {0, 2, 1, 3}));
  }
  SUBCASE("an image of 2 to the 24 elements") {
    steps = 2;
    b.output(transpose(b, slice(b, b.input("y", {1, 4096, 64, 64}), 1, 0, 4), {0, 2, 1, 3}));
  }
  const Graph graph = merged(b.build());
  CHECK(moves(graph) == steps);
  CHECK(count(graph, "Gather") == (steps == 4 && graph.outputs.size() == 3 ? 3 : 0));
}

// Values in nhwc are none of the pass: it would put conversions around them.
TEST_CASE("merge_moves/images_between_convolutions_stay_in_nhwc") {
  const auto plan = [](const PassContext& context) {
    GraphBuilder b;
    const ValueId x = b.conv(b.input("x", {1, 16, 16, 16}), 16, 64, 3, 1);
    b.output(b.conv(concat(b, {slice(b, x, 1, 32, 64), slice(b, x, 1, 0, 32)}, 1), 64, 16, 1));
    const Graph graph = b.build();
    CHECK(after_all(graph, context).dump() == after_all(graph, context, {"merge_moves"}).dump());
  };
  plan(pass_context());
  for (const char* precision : {"fp32", "fp16"})
    plan({.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
}

// A block of Swin and patch merging, by all passes: one movement each.
TEST_CASE("merge_moves/between_products") {
  const auto block = [](const PassContext& context, std::int64_t n) {
    GraphBuilder b;
    const ValueId x = b.node("Relu", {b.input("x", {n, 8, 8, 32})});
    ValueId y = in_windows(b, rolled(b, x, 2), n, 32);
    y = b.node("MatMul", {y, b.weights({32, 32}, 0, 0.2)});
    y = b.node("Add", {x, rolled(b, from_windows(b, y, n, 32), -2)});
    b.output(b.node("MatMul", {patches(b, y), b.weights({128, 64}, 0, 0.1)}));
    const Graph before = b.build(), graph = after_all(before, context);
    INFO(graph.dump());
    CHECK(moves(before) == 23);
    CHECK(moves(graph) == 3);
    CHECK(count(graph, "Gather") == 3);
    if (context.target.device.kind == DeviceKind::cpu) CHECK(worst_difference(before, graph) < 1e-5);
  };
  for (const std::int64_t n : {1, 3}) {
    block(pass_context(), n);
    for (const char* precision : {"fp32", "fp16"})
      block({.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"}, n);
  }
}

TEST_CASE("merge_moves/drawn_graphs_keep_their_bits") {
  std::mt19937 random(1129);
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(below));
  };
  int before_all = 0, after_all = 0;
  for (int g = 0; g < 120; ++g) {
    GraphBuilder b;
    const std::int64_t n = g % 2 == 0 ? 1 : 3;
    std::vector<std::pair<ValueId, Ints>> values{{b.input("x", {n, 4, 6, 16}), {n, 4, 6, 16}}};
    for (int s = 0; s < 14; ++s) {
      // Mostly the last value, so that chains arise.
      const auto at = draw(3) == 0 ? draw(std::ssize(values)) : std::ssize(values) - 1;
      const auto [x, dims] = values[static_cast<std::size_t>(at)];
      const std::int64_t axis = draw(std::ssize(dims) - (draw(8) == 0 ? 0 : 1));
      const auto a = static_cast<std::size_t>(axis);
      Ints y = dims;
      ValueId made = no_id;
      switch (draw(8)) {
        case 0: {  // a roll
          if (dims[a] < 2) continue;
          const std::int64_t count = 1 + draw(dims[a] - 1);
          made = concat(b, {slice(b, x, axis, count, end_of_axis), slice(b, x, axis, 0, count)}, axis);
          break;
        }
        case 1: {
          const std::int64_t begin = draw(dims[a]), step = 1 + draw(2);
          y[a] = (dims[a] - begin - 1) / step + 1;
          made = slice(b, x, axis, begin, end_of_axis, step);
          break;
        }
        case 2: {
          Ints perm(dims.size());
          std::iota(perm.begin(), perm.end(), 0);
          std::shuffle(perm.begin(), perm.end() - (draw(8) == 0 ? 0 : 1), random);
          for (std::size_t i = 0; i < perm.size(); ++i) y[i] = dims[static_cast<std::size_t>(perm[i])];
          made = transpose(b, x, perm);
          break;
        }
        case 3:  // one axis into two
          if (dims.size() > 5 || dims[a] % 2 != 0) continue;
          y[a] = 2;
          y.insert(y.begin() + axis + 1, dims[a] / 2);
          made = reshape(b, x, y);
          break;
        case 4:  // two axes into one
          if (axis + 1 >= std::ssize(dims) || dims.size() < 3) continue;
          y[a] *= y[a + 1];
          y.erase(y.begin() + axis + 1);
          made = reshape(b, x, y);
          break;
        case 5: {
          Ints indices(static_cast<std::size_t>(1 + draw(4)));
          for (std::int64_t& index : indices) index = draw(2 * dims[a]) - dims[a];
          y[a] = std::ssize(indices);
          made = b.node("Gather", {x, ints(b, indices)}, {{"axis", axis}});
          break;
        }
        case 6: {
          if (dims[a] % 2 != 0) continue;
          made = b.node("Split", {x}, {{"axis", axis}}, 13, 2);
          y[a] /= 2;
          values.emplace_back(made + 1, y);
          break;
        }
        default:
          if (draw(3) == 0) {
            made = b.node("Relu", {x});
          } else {
            const auto twin = std::ranges::find(values, dims, &std::pair<ValueId, Ints>::second);
            y[a] *= 2;
            made = concat(b, {x, twin->first}, axis);
          }
      }
      if (Shape(y).elems() < 20'000) values.emplace_back(made, y);
    }
    b.output(values.back().first);
    if (draw(2) == 0) b.output(values[static_cast<std::size_t>(draw(std::ssize(values)))].first);
    if (b.source().outputs[0] == b.source().inputs[0]) continue;
    const Graph before = after(b.build(), "drop_dead");
    before_all += moves(before);
    after_all += moves(merged(before));
  }
  CHECK(2 * after_all < before_all);
}

// Every group fails, as its rows are short. The evaluations are limited, else they would take a minute.
TEST_CASE("merge_moves/a_long_chain_of_short_rows_ends_at_the_limit") {
  GraphBuilder b;
  ValueId x = b.input("x", {1, 2, 101, 2});
  for (int i = 0; i < 1000; ++i) x = concat(b, {slice(b, x, 2, 1, 101), slice(b, x, 2, 0, 1)}, 2);
  b.output(x);
  CHECK(moves(after(b.build(), "merge_moves")) == 3000);
}

#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Dims = std::vector<std::int64_t>;

/// Reshape to `grouped`, Transpose, Reshape to `back`.
ValueId shuffled(GraphBuilder& b, ValueId x, const Dims& grouped, const Dims& perm, const Dims& back) {
  const auto shape = [&](const Dims& dims) {
    Tensor tensor(DType::i64, Shape{static_cast<std::int64_t>(dims.size())});
    std::copy(dims.begin(), dims.end(), tensor.values<std::int64_t>().begin());
    return b.constant(tensor);
  };
  const ValueId apart = b.node("Reshape", {x, shape(grouped)});
  return b.node("Reshape", {b.node("Transpose", {apart}, {{"perm", perm}}), shape(back)});
}

}  // namespace

TEST_CASE("find_shuffles/five_dimensions_and_four") {
  for (const bool flat : {false, true}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 12, 3, 5});
    b.output(flat ? shuffled(b, x, {2, 3, 4, 15}, {0, 2, 1, 3}, {2, 12, 3, 5})
                  : shuffled(b, x, {2, 3, 4, 3, 5}, {0, 2, 1, 3, 4}, {2, 12, 3, 5}));
    const Graph before = b.build(), found = after(before, "find_shuffles");
    CHECK(found.nodes.size() == 1);
    CHECK(attribute<std::int64_t>(*only(found, "ChannelShuffle").op, "groups") == 3);
    CHECK(worst_difference(before, found) == 0);
  }
}

TEST_CASE("find_shuffles/no_conversion_stands_between_convolutions") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 14, 14});
  b.output(b.conv(shuffled(b, b.conv(x, 8, 32, 1), {1, 2, 16, 14, 14}, {0, 2, 1, 3, 4}, {1, 32, 14, 14}), 32, 32, 1));
  const Graph before = b.build(), all = after_all(before);
  CHECK(count(all, "LayoutConvert") <= 2);  // at the network's ends
  CHECK(count(all, "Transpose") == 0);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("find_shuffles/reads_groups_apart_and_writes_parts") {
  for (const bool split : {false, true})
    for (const std::int64_t channels : {1, -3})
      for (const auto& [second_half, first_half] : {std::pair<std::int64_t, std::int64_t>{6, 0}, {-6, -100}}) {
        GraphBuilder b;
        const ValueId first = b.node("Relu", {b.input("x", {2, 6, 3, 5})}),
                      second = b.node("Relu", {b.input("y", {2, 6, 3, 5})});
        const ValueId y = shuffled(b, b.node("Concat", {first, second}, {{"axis", channels}}), {2, 2, 6, 3, 5},
                                   {0, 2, 1, 3, 4}, {2, 12, 3, 5});
        if (split) {
          const ValueId parts = b.node("Split", {y}, {{"axis", channels}, {"num_outputs", std::int64_t{3}}}, 18, 3);
          for (const ValueId part : {parts, parts + 1, parts + 2}) b.output(b.node("Relu", {part}));
        } else {
          const ValueId axis = b.int64s({channels});
          b.output(b.node("Relu", {b.node("Slice", {y, b.int64s({second_half}), b.int64s({1 << 20}), axis})}));
          b.output(b.node("Relu", {b.node("Slice", {y, b.int64s({first_half}), b.int64s({-6}), axis, b.int64s({1})})}));
        }
        const Graph before = b.build(), found = after(before, "find_shuffles");
        const Node& shuffle = only(found, "ChannelShuffle");
        CHECK(shuffle.inputs.size() == 2);
        CHECK(shuffle.outputs.size() == (split ? 3 : 2));
        CHECK(count(found, "Concat") + count(found, "Slice") + count(found, "Split") == 0);
        CHECK(worst_difference(before, found) == 0);
      }
}

TEST_CASE("find_shuffles/parts_whose_places_are_32_bit_numbers") {
  GraphBuilder b;
  const ValueId y = shuffled(b, b.input("x", {1, 16, 3, 5}), {1, 2, 8, 3, 5}, {0, 2, 1, 3, 4}, {1, 16, 3, 5});
  const auto number = [&](std::int32_t value) { return b.constant(Tensor::of<std::int32_t>(Shape{1}, {value})); };
  for (const std::int32_t begin : {0, 8}) b.output(b.node("Slice", {y, number(begin), number(begin + 8), number(1)}));
  const Graph before = b.build(), found = after(before, "find_shuffles");
  CHECK(only(found, "ChannelShuffle").outputs.size() == 2);
  CHECK(count(found, "Slice") == 0);
  CHECK(worst_difference(before, found) == 0);
}

TEST_CASE("find_shuffles/what_is_joined_otherwise_is_read_joined") {
  struct Row {
    std::vector<Dims> parts;
    std::int64_t axis;
  };
  const Row rows[] = {{{{2, 4, 4, 5}, {2, 8, 4, 5}}, 1},
                      {{{2, 4, 4, 5}, {2, 4, 4, 5}, {2, 4, 4, 5}}, 1},
                      {{{2, 12, 2, 5}, {2, 12, 2, 5}}, 2}};
  for (const Row& row : rows) {
    GraphBuilder b;
    std::vector<ValueId> parts;
    for (const Dims& dims : row.parts) parts.push_back(b.input("x" + std::to_string(parts.size()), dims));
    const ValueId x = b.node("Concat", parts, {{"axis", row.axis}});
    b.output(shuffled(b, x, {2, 2, 6, 4, 5}, {0, 2, 1, 3, 4}, {2, 12, 4, 5}));
    const Graph before = b.build(), found = after(before, "find_shuffles");
    CHECK((only(found, "ChannelShuffle").inputs == std::vector<ValueId>{x}));
    CHECK(worst_difference(before, found) == 0);
  }
}

TEST_CASE("find_shuffles/other_readers_keep_what_they_read") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 3, 5});
  const ValueId joined = b.node("Concat", {b.node("Relu", {x}), x}, {{"axis", std::int64_t{1}}});
  const ValueId y = shuffled(b, joined, {1, 2, 8, 3, 5}, {0, 2, 1, 3, 4}, {1, 16, 3, 5});
  const ValueId axis = b.int64s({1});
  const auto slice = [&](std::int64_t begin, std::int64_t end, std::int64_t step) {
    b.output(b.node("Slice", {y, b.int64s({begin}), b.int64s({end}), axis, b.int64s({step})}));
  };
  SUBCASE("the joined value is an output") { b.output(joined), b.output(y); }
  SUBCASE("one of the parts is read by halves") { slice(0, 4, 1), slice(8, 16, 1); }
  SUBCASE("parts overlap") { slice(0, 8, 1), slice(4, 12, 1); }
  SUBCASE("every other channel") { slice(0, 16, 2), slice(8, 16, 1); }
  SUBCASE("the whole is read, too") { slice(0, 8, 1), slice(8, 16, 1), b.output(b.node("Relu", {y})); }
  SUBCASE("the whole is an output, too") { slice(0, 8, 1), slice(8, 16, 1), b.output(y); }
  SUBCASE("one part, which is all of it") { slice(0, 16, 1); }
  SUBCASE("nobody reads it") { b.output(x); }
  SUBCASE("parts of different sizes") { slice(0, 8, 1), slice(8, 12, 1), slice(12, 16, 1); }
  SUBCASE("parts of rows") {
    b.output(b.node("Slice", {y, b.int64s({0, 0}), b.int64s({8, 2}), b.int64s({1, 2})}));
    slice(8, 16, 1);
  }
  SUBCASE("parts along another axis") {
    for (const std::int64_t begin : {0, 8})
      b.output(b.node("Slice", {y, b.int64s({begin}), b.int64s({begin + 8}), b.int64s({3})}));
  }
  SUBCASE("the parts are another value's") {
    b.output(b.node("Sigmoid", {y}));
    const ValueId z = b.input("z", {1, 16, 3, 5});
    for (const std::int64_t begin : {0, 8})
      b.output(b.node("Slice", {z, b.int64s({begin}), b.int64s({begin + 8}), axis}));
    b.output(b.node("Relu", {y}));
  }
  SUBCASE("parts that are no whole turns") {
    for (std::int64_t part = 0; part < 16; ++part) slice(part, part + 1, 1);
  }
  const Graph before = b.build(), found = after(before, "find_shuffles");
  CHECK(only(found, "ChannelShuffle").outputs.size() == 1);
  CHECK(worst_difference(before, found) == 0);
}

TEST_CASE("find_shuffles/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 12, 4, 4});
  SUBCASE("other axes") { b.output(shuffled(b, x, {2, 3, 4, 4, 4}, {0, 1, 2, 4, 3}, {2, 12, 4, 4})); }
  SUBCASE("other groups than channels") { b.output(shuffled(b, x, {2, 6, 8, 4}, {0, 2, 1, 3}, {2, 12, 4, 4})); }
  SUBCASE("another shape after") { b.output(shuffled(b, x, {2, 3, 4, 4, 4}, {0, 2, 1, 3, 4}, {2, 4, 12, 4})); }
  SUBCASE("no axes change places") {
    const ValueId one_group = b.node("Relu", {b.node("Reshape", {x, b.int64s({2, 1, 12, 4, 4})})});
    b.output(b.node("Reshape", {one_group, b.int64s({2, 12, 4, 4})}));
  }
  SUBCASE("a sixth axis") { b.output(shuffled(b, x, {2, 3, 4, 4, 4, 1}, {0, 2, 1, 3, 4, 5}, {2, 12, 4, 4})); }
  SUBCASE("a sixth axis, other rows") {
    b.output(shuffled(b, x, {2, 3, 4, 2, 4, 2}, {0, 2, 1, 3, 4, 5}, {2, 12, 4, 4}));
  }
  SUBCASE("of five axes") {
    b.output(shuffled(b, b.input("y", {2, 12, 2, 4, 1}), {2, 3, 4, 2, 4}, {0, 2, 1, 3, 4}, {2, 12, 2, 4, 1}));
  }
  SUBCASE("the groups are read") {
    const ValueId grouped = b.node("Reshape", {x, b.int64s({2, 3, 4, 16})});
    b.output(
        b.node("Reshape", {b.node("Transpose", {grouped}, {{"perm", Dims{0, 2, 1, 3}}}), b.int64s({2, 12, 4, 4})}));
    b.output(grouped);
  }
  const Graph before = b.build(), found = after(before, "find_shuffles");
  CHECK(found.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, found) == 0);
}

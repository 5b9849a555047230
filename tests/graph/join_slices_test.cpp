// join_slices: on CUDA, Slices that partition a value become one Split; others stay, and all do on the CPU.
#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

constexpr std::int64_t end_of_axis = std::int64_t{1} << 40;

ValueId slice(GraphBuilder& b, ValueId x, std::int64_t axis, std::int64_t begin, std::int64_t end,
              std::int64_t step = 1) {
  return b.node("Relu", {b.node("Slice", {x, b.int64s({begin}), b.int64s({end}), b.int64s({axis}), b.int64s({step})})});
}

PassContext on_cuda() { return {.target = {reference_gpu()}, .device = "cuda:0"}; }

}  // namespace

TEST_CASE("join_slices/partitions") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 12, 5, 6});
  int parts = 3;
  SUBCASE("in order") {
    for (const auto& [begin, end] : {std::pair{0, 4}, {4, 9}, {9, 12}}) b.output(slice(b, x, 1, begin, end));
  }
  SUBCASE("in another order, by negative numbers and beyond the end") {
    b.output(slice(b, x, -3, -3, end_of_axis));
    b.output(slice(b, x, 1, -100, 4));
    b.output(slice(b, x, 1, 4, -3));
  }
  SUBCASE("along two axes") {
    for (const auto& [begin, end] : {std::pair{0, 4}, {4, 9}, {9, 12}}) b.output(slice(b, x, 1, begin, end));
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 5}}) b.output(slice(b, x, 2, begin, end));
    parts = 5;
  }
  const Graph before = b.build(2), joined = after(before, "join_slices", on_cuda());
  CHECK(count(joined, "Slice") == 0);
  CHECK(count(joined, "Split") == (parts == 3 ? 1 : 2));
  CHECK(joined.nodes.size() == before.nodes.size() - static_cast<std::size_t>(parts == 3 ? 2 : 3));
  CHECK(worst_difference(before, joined) == 0);
  CHECK(count(after(before, "join_slices"), "Slice") == parts);
}

TEST_CASE("join_slices/others_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 12, 5, 6});
  SUBCASE("a gap") {
    b.output(slice(b, x, 1, 0, 4));
    b.output(slice(b, x, 1, 5, 12));
  }
  SUBCASE("the end is missing") {
    b.output(slice(b, x, 1, 0, 4));
    b.output(slice(b, x, 1, 4, 8));
  }
  SUBCASE("an overlap") {
    b.output(slice(b, x, 1, 0, 8));
    b.output(slice(b, x, 1, 4, 12));
  }
  SUBCASE("the same twice") {
    for (const int begin : {0, 0, 6}) b.output(slice(b, x, 1, begin, begin + 6));
  }
  SUBCASE("every second") {
    b.output(slice(b, x, 1, 0, 6, 2));
    b.output(slice(b, x, 1, 3, 12));
  }
  SUBCASE("all of it") { b.output(slice(b, x, 1, 0, 12)); }
  SUBCASE("nothing, and all of it") {
    b.output(slice(b, x, 1, 0, 0));
    b.output(slice(b, x, 1, 0, 12));
  }
  SUBCASE("a part that nobody reads") {
    b.node("Slice", {x, b.int64s({0}), b.int64s({4}), b.int64s({1})});
    b.output(slice(b, x, 1, 4, 12));
  }
  SUBCASE("parts that move on") {
    for (const std::int64_t begin : {0, 6}) {
      const ValueId part = b.node("Slice", {x, b.int64s({begin}), b.int64s({begin + 6}), b.int64s({1})});
      b.output(b.node("Transpose", {part}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}}));
    }
  }
  SUBCASE("two axes at once") {
    for (const auto& [begin, end] : {std::pair{0, 6}, {6, 12}})
      b.output(b.node("Slice", {x, b.int64s({begin, 0}), b.int64s({end, 3}), b.int64s({1, 2})}));
  }
  const Graph before = b.build(2), joined = after(before, "join_slices", on_cuda());
  CHECK(count(joined, "Split") == 0);
  CHECK(joined.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, joined) == 0);
}

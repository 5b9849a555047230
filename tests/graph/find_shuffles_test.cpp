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

TEST_CASE("find_shuffles/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 12, 4, 4});
  SUBCASE("other axes") { b.output(shuffled(b, x, {2, 3, 4, 4, 4}, {0, 1, 2, 4, 3}, {2, 12, 4, 4})); }
  SUBCASE("other groups than channels") { b.output(shuffled(b, x, {2, 6, 8, 4}, {0, 2, 1, 3}, {2, 12, 4, 4})); }
  SUBCASE("another shape after") { b.output(shuffled(b, x, {2, 3, 4, 4, 4}, {0, 2, 1, 3, 4}, {2, 4, 12, 4})); }
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

#include <doctest/doctest.h>

#include <string>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("fold_pad/zeros_into_conv") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 9});
  const ValueId padded = b.node("Pad", {x, b.int64s({0, 0, 0, 1, 0, 0, 2, 3})});
  b.output(b.conv(padded, 4, 5, 3, 1, 2));
  b.output(b.conv(padded, 4, 5, 1));
  const Graph before = b.build(), folded = after(before, "fold_pad");
  CHECK(folded.nodes.size() == 2);
  CHECK(worst_difference(before, folded) < 1e-6);
}

TEST_CASE("fold_pad/opset_2_and_auto_pad") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 9});
  const ValueId padded = b.node("Pad", {x}, {{"pads", std::vector<std::int64_t>{0, 0, 1, 1, 0, 0, 0, 0}}}, 2);
  const ValueId w = b.weights({5, 4, 4, 4});
  b.output(b.node("Conv", {padded, w}, {{"auto_pad", std::string("SAME_UPPER")}}));
  const Graph before = b.build(), folded = after(before, "fold_pad");
  CHECK(folded.nodes.size() == 1);
  CHECK(worst_difference(before, folded) < 1e-6);
}

TEST_CASE("fold_pad/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 9});
  ValueId padded = no_id;
  std::int64_t channels = 4;
  SUBCASE("another value") { padded = b.node("Pad", {x, b.int64s({0, 0, 1, 1, 0, 0, 1, 1}), b.scalar(0.5F)}); }
  SUBCASE("reflect") {
    padded = b.node("Pad", {x, b.int64s({0, 0, 1, 1, 0, 0, 1, 1})}, {{"mode", std::string("reflect")}});
  }
  SUBCASE("channels") {
    padded = b.node("Pad", {x, b.int64s({0, 1, 1, 1, 0, 0, 1, 1})});
    channels = 5;
  }
  SUBCASE("crops") { padded = b.node("Pad", {x, b.int64s({0, 0, -1, 1, 0, 0, 1, 1})}); }
  b.output(b.conv(padded, channels, 5, 3));
  const Graph before = b.build(), folded = after(before, "fold_pad");
  CHECK(folded.nodes.size() == 2);
  CHECK(worst_difference(before, folded) == 0);
}

TEST_CASE("fold_pad/other_readers_keep_it") {
  GraphBuilder b;
  const ValueId padded = b.node("Pad", {b.input("x", {1, 4, 6, 9}), b.int64s({0, 0, 1, 1, 0, 0, 1, 1})});
  b.output(b.conv(padded, 4, 5, 3));
  b.output(padded);
  const Graph before = b.build(), folded = after(before, "fold_pad");
  CHECK(folded.nodes.size() == 2);
  CHECK(worst_difference(before, folded) < 1e-6);
}

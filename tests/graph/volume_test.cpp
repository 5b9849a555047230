// 3-D networks through the passes.

#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("volume/passes_reach_3_d_convolutions") {
  using Ints = std::vector<std::int64_t>;
  GraphBuilder b;
  const auto conv = [&](ValueId x, std::int64_t c, std::int64_t k, std::int64_t pad) {
    return b.node("Conv", {x, b.weights({k, c, 3, 3, 3}, 0, 0.1)}, {{"pads", Ints(6, pad)}});
  };
  const ValueId x = b.input("x", {2, 3, 6, 9, 8});
  const ValueId padded =
      b.node("Pad", {x, b.int64s({0, 0, 1, 1, 1, 0, 0, 1, 1, 1}), b.scalar(0)}, {{"mode", std::string("constant")}});
  const ValueId first = b.node("Relu", {b.batch_norm(conv(padded, 3, 5, 0), 5)});
  const ValueId sum = b.node("Add", {b.batch_norm(conv(first, 5, 5, 1), 5), first});
  const ValueId pooled =
      b.node("MaxPool", {b.node("Relu", {sum})}, {{"kernel_shape", Ints{2, 2, 2}}, {"strides", Ints{2, 2, 2}}});
  const ValueId up = b.node("ConvTranspose", {pooled, b.weights({5, 4, 2, 2, 2}, 0, 0.2), b.weights({4})},
                            {{"strides", Ints{2, 2, 2}}});
  b.output(b.node("GlobalAveragePool", {b.node("Relu", {b.batch_norm(up, 4)})}));
  const Graph before = b.build(), all = after_all(before);
  CHECK(count(all, "BatchNormalization") == 0);
  CHECK(count(all, "Relu") == 0);
  CHECK(count(all, "Add") == 0);
  CHECK(count(all, "Pad") == 0);
  CHECK(count(all, "Conv") == 2);
  CHECK(only(all, "ConvTranspose").op->epilogue()->scale.size() == 4);
  CHECK(worst_difference(before, all) < 1e-5);
}

// fuse_pool_difference: residual + scale * (AveragePool(x) - x) becomes one step, with equal results; others stay.
#include <doctest/doctest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId pool(GraphBuilder& b, ValueId x, std::int64_t include = 0, Ints strides = {1, 1}, Ints pads = {1, 1, 1, 1}) {
  return b.node("AveragePool", {x},
                {{"kernel_shape", Ints{3, 3}}, {"strides", strides}, {"pads", pads}, {"count_include_pad", include}});
}

}  // namespace

TEST_CASE("fuse_pool_difference/forms") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 7, 5}), z = b.input("z", {2, 6, 7, 5});
  std::size_t nodes = 1, inputs = 3;
  SUBCASE("the difference alone") {
    inputs = 1;
    b.output(b.node("Sub", {pool(b, x), x}));
  }
  SUBCASE("with a scale") {
    inputs = 2;
    b.output(b.node("Mul", {b.weights({6, 1, 1}), b.node("Sub", {pool(b, x, 1), x})}));
  }
  SUBCASE("with a residual") { b.output(b.node("Add", {b.node("Sub", {pool(b, x), x}), z})); }
  SUBCASE("with both") {
    b.output(b.node("Add", {z, b.node("Mul", {b.node("Sub", {pool(b, x), x}), b.weights({1, 6, 1, 1})})}));
  }
  SUBCASE("with one scale") {
    b.output(b.node("Add", {z, b.node("Mul", {b.node("Sub", {pool(b, x, 1), x}), b.scalar(0.5F)})}));
  }
  SUBCASE("x is the residual") {
    b.output(b.node("Add", {x, b.node("Mul", {b.node("Sub", {pool(b, x), x}), b.weights({6, 1, 1})})}));
  }
  SUBCASE("twice") {
    nodes = 2;
    const ValueId y = b.node("Add", {x, b.node("Mul", {b.node("Sub", {pool(b, x), x}), b.weights({6, 1, 1})})});
    b.output(b.node("Add", {y, b.node("Sub", {pool(b, y), y})}));
  }
  SUBCASE("of two differences, one is the other's residual") {
    nodes = 2;
    b.output(b.node("Add", {b.node("Sub", {pool(b, x), x}), b.node("Sub", {pool(b, z), z})}));
  }
  SUBCASE("a scale for each pixel stays") {
    nodes = 2;
    inputs = 1;
    b.output(b.node("Mul", {b.node("Sub", {pool(b, x), x}), b.weights({7, 5})}));
  }
  SUBCASE("a second scale stays") {
    nodes = 2;
    inputs = 2;
    const ValueId scaled = b.node("Mul", {b.node("Sub", {pool(b, x), x}), b.weights({6, 1, 1})});
    b.output(b.node("Mul", {scaled, b.weights({6, 1, 1})}));
  }
  SUBCASE("a second residual stays") {
    nodes = 2;
    b.output(b.node("Add", {x, b.node("Add", {z, b.node("Sub", {pool(b, x), x})})}));
  }
  SUBCASE("a scale after the residual stays") {
    nodes = 2;
    b.output(b.node("Mul", {b.node("Add", {z, b.node("Sub", {pool(b, x), x})}), b.weights({6, 1, 1})}));
  }
  SUBCASE("a residual that broadcasts stays") {
    nodes = 2;
    inputs = 1;
    b.output(b.node("Add", {b.node("Sub", {pool(b, x), x}), b.input("row", {5})}));
  }
  SUBCASE("a constant residual stays") {
    nodes = 2;
    inputs = 1;
    b.output(b.node("Add", {b.node("Sub", {pool(b, x), x}), b.weights({2, 6, 7, 5})}));
  }
  SUBCASE("the sum with itself stays") {
    nodes = 2;
    inputs = 1;
    const ValueId d = b.node("Sub", {pool(b, x), x});
    b.output(b.node("Add", {d, d}));
  }
  SUBCASE("what others read stays") {
    nodes = 2;
    inputs = 1;
    const ValueId d = b.node("Sub", {pool(b, x), x});
    b.output(d);
    b.output(b.node("Mul", {d, b.weights({6, 1, 1})}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_pool_difference");
  CHECK(fused.nodes.size() == nodes);
  CHECK(count(fused, "Sub") == 0);
  std::size_t most = 0;
  for (const Node& node : fused.nodes)
    if (node.type() == "AveragePool") most = std::max(most, node.inputs.size());
  CHECK(most == inputs);
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("fuse_pool_difference/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 7, 5}), z = b.input("z", {2, 6, 7, 5});
  SUBCASE("of another value") { b.output(b.node("Sub", {pool(b, x), z})); }
  SUBCASE("the other way round") { b.output(b.node("Sub", {x, pool(b, x)})); }
  SUBCASE("a pool that others read") {
    const ValueId y = pool(b, x);
    b.output(y);
    b.output(b.node("Sub", {y, x}));
  }
  SUBCASE("a maximum") {
    b.output(b.node("Sub", {b.node("MaxPool", {x}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}}), x}));
  }
  SUBCASE("another shape, which broadcasts") {
    const ValueId row = b.input("row", {2, 6, 1, 3});
    b.output(b.node("Sub", {pool(b, row, 0, {1, 1}, {1, 0, 1, 0}), row}));
  }
  SUBCASE("strides of one pixel") {
    const ValueId pixel = b.input("pixel", {2, 6, 1, 1});
    b.output(b.node("Sub", {pool(b, pixel, 0, {2, 2}), pixel}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_pool_difference");
  CHECK(count(fused, "Sub") == 1);
  CHECK(fused.nodes.size() == before.nodes.size());
}

// Beside a convolution's value the sum is the convolution's epilogue's.
TEST_CASE("fuse_pool_difference/among_convolutions") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {1, 3, 8, 8}), 3, 8, 3, 1);
  const ValueId y = b.node("Add", {x, b.node("Mul", {b.node("Sub", {pool(b, x), x}), b.weights({8, 1, 1})})});
  const ValueId z = b.node("Add", {b.conv(y, 8, 8, 3, 1), b.node("Sub", {pool(b, y), y})});
  b.output(b.conv(z, 8, 4, 1));
  const Graph before = b.build(), all = after_all(before);
  CHECK(count(all, "Add") == 0);
  CHECK(count(all, "Sub") == 0);
  CHECK(count(all, "Mul") == 0);
  CHECK(count(all, "AveragePool") == 2);
  CHECK(worst_difference(before, all) < 1e-5);
}

// A block of PoolFormer: two normalisations of one group, the token mixer and two convolutions, one step each, with
// neither Casts nor conversions of formats between them.
TEST_CASE("fuse_pool_difference/a_block_of_poolformer") {
  GraphBuilder b;
  const auto norm = [&](ValueId x) {
    const ValueId rows = b.node("Reshape", {x, b.int64s({0, 1, -1})});
    const ValueId y = b.node("InstanceNormalization", {rows, b.weights({1}, 1, 0), b.weights({1}, 0, 0)});
    const ValueId back = b.node("Reshape", {y, b.int64s({1, 64, 28, 28})});
    return b.node("Add", {b.node("Mul", {back, b.weights({64, 1, 1}, 1)}), b.weights({64, 1, 1})});
  };
  const auto scaled = [&](ValueId x) { return b.node("Mul", {x, b.weights({64, 1, 1}, 0.1, 0.01)}); };
  const ValueId x = b.conv(b.input("x", {1, 16, 28, 28}), 16, 64, 3, 1), mixed = norm(x);
  const ValueId y = b.node("Add", {x, scaled(b.node("Sub", {pool(b, mixed), mixed}))});
  const ValueId hidden = b.node("Relu", {b.conv(norm(y), 64, 256, 1)});
  const ValueId z = b.node("Add", {y, scaled(b.conv(hidden, 256, 64, 1))});
  b.output(b.conv(z, 64, 16, 1));
  const Graph before = b.build();
  const auto check = [](const Graph& all) {
    INFO(all.dump());
    std::vector<std::string_view> types;
    for (const Node& node : all.nodes) types.push_back(node.type());
    const auto is_conv = [](std::string_view type) { return type == "Conv"; };
    const auto first = std::ranges::find_if(types, is_conv);
    REQUIRE(types.end() - first >= 7);
    CHECK(std::vector<std::string_view>(first, first + 7) ==
          std::vector<std::string_view>{"Conv", "GroupNormalization", "AveragePool", "GroupNormalization", "Conv",
                                        "Conv", "Conv"});
  };
  const Graph on_cpu = after_all(before);
  check(on_cpu);
  CHECK(worst_difference(before, on_cpu) < 1e-5);
  for (const char* precision : {"fp32", "fp16", "bf16"})
    check(after_all(before, {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"}));
}

// conv1d_to_conv2d: convolutions of [N,C,L] become convolutions of images, with equal results.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId conv1d(GraphBuilder& b, ValueId x, std::int64_t c, std::int64_t k, std::int64_t taps, std::int64_t groups = 1) {
  return b.node("Conv", {x, b.weights({k, c / groups, taps}), b.weights({k})},
                {{"group", groups}, {"pads", Ints{taps / 2, taps / 2}}, {"strides", Ints{1}}});
}
ValueId reshape(GraphBuilder& b, ValueId x, std::initializer_list<std::int64_t> shape) {
  return b.node("Reshape", {x, b.int64s(shape)});
}
/// Both parts of the channels of x.
std::pair<ValueId, ValueId> split(GraphBuilder& b, ValueId x) {
  const ValueId first = b.node("Split", {x}, {{"axis", std::int64_t{1}}}, 13, 2);
  return {first, first + 1};
}
/// The number of convolutions of three axes.
int of_sequences(const Graph& graph) {
  int found = 0;
  for (const Node& node : graph.nodes)
    found += node.type().starts_with("Conv") && graph.value(node.inputs[0]).shape.rank() == 3 ? 1 : 0;
  return found;
}

}  // namespace

TEST_CASE("conv1d_to_conv2d/what_lies_between_convolutions_joins_them") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 19});
  ValueId y = b.node("Relu", {b.batch_norm(conv1d(b, x, 6, 8, 5), 8)});
  const ValueId branch = b.node("Mul", {b.weights({8, 1}), conv1d(b, y, 8, 8, 3, 8)});
  y = b.node("Relu", {b.node("Add", {y, branch})});
  b.output(conv1d(b, y, 8, 4, 1));
  const Graph before = b.build(2), found = after(before, "conv1d_to_conv2d"), all = after_all(before);
  INFO(all.dump());
  CHECK(of_sequences(found) == 0);
  CHECK(count(found, "Reshape") == 2);  // of the input and of the output
  CHECK(count(all, "Conv") == 3);
  CHECK(count(all, "Add") + count(all, "Mul") + count(all, "Relu") + count(all, "BatchNormalization") == 0);
  CHECK(worst_difference(before, found) < 1e-6);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("conv1d_to_conv2d/a_pointwise_filter_reads_the_image_itself") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 5, 7});
  const ValueId y = conv1d(b, reshape(b, x, {2, 6, 35}), 6, 10, 1);
  const ValueId image = b.node("Relu", {reshape(b, b.node("Add", {y, b.weights({35})}), {2, 10, 5, 7})});
  b.output(b.conv(image, 10, 4, 3, 1));
  const Graph before = b.build(2), found = after(before, "conv1d_to_conv2d");
  INFO(found.dump());
  CHECK(of_sequences(found) == 0);
  CHECK(count(found, "Reshape") == 0);
  CHECK(worst_difference(before, found) < 1e-6);
}

TEST_CASE("conv1d_to_conv2d/other_readers_keep_their_sequence") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 3, 4});
  const ValueId line = reshape(b, x, {2, 6, 12});
  const ValueId y = conv1d(b, line, 6, 6, 1), wide = conv1d(b, y, 6, 6, 3);
  b.output(y);
  b.output(reshape(b, y, {2, 6, 3, 4}));
  b.output(b.node("Softmax", {wide}, {{"axis", std::int64_t{-1}}}));
  b.output(b.node("MatMul", {line, b.node("Transpose", {wide}, {{"perm", Ints{0, 2, 1}}})}));
  const Graph before = b.build(2), found = after(before, "conv1d_to_conv2d"), all = after_all(before);
  INFO(found.dump());
  CHECK(of_sequences(found) == 0);
  CHECK(worst_difference(before, found) < 1e-5);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("conv1d_to_conv2d/a_gate_splits_the_image") {
  GraphBuilder b;
  const auto [gate, x] = split(b, conv1d(b, b.input("x", {2, 6, 19}), 6, 16, 3));
  b.output(conv1d(b, b.node("Mul", {b.node("Sigmoid", {gate}), x}), 8, 5, 1));
  const Graph before = b.build(2), found = after(before, "conv1d_to_conv2d"), all = after_all(before);
  INFO(found.dump());
  CHECK(count(found, "Reshape") == 2);  // of the input and of the output
  CHECK(found.value(only(found, "Split").inputs[0]).shape == Shape{2, 16, 1, 19});
  CHECK(worst_difference(before, found) < 1e-6);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("conv1d_to_conv2d/splits_of_sequences_stay") {
  GraphBuilder b;
  const ValueId y = conv1d(b, b.input("x", {2, 6, 19}), 6, 16, 3);
  SUBCASE("a part is an output") {
    const auto [gate, x] = split(b, y);
    b.output(conv1d(b, x, 8, 5, 1));
    b.output(gate);
  }
  SUBCASE("another reader of a part") {
    const auto [gate, x] = split(b, y);
    b.output(conv1d(b, x, 8, 5, 1));
    b.output(b.node("Softmax", {gate}));
  }
  SUBCASE("along the sequence") {
    const ValueId x = b.node("Split", {y, b.int64s({9, 10})}, {{"axis", std::int64_t{2}}}, 13, 2);
    b.output(conv1d(b, x, 16, 5, 1));
    b.output(b.node("Relu", {x + 1}));
  }
  const Graph before = b.build(2), found = after(before, "conv1d_to_conv2d");
  CHECK(found.value(only(found, "Split").inputs[0]).shape == Shape{2, 16, 19});
  CHECK(worst_difference(before, found) < 1e-6);
}

TEST_CASE("conv1d_to_conv2d/strides_dilations_and_transposed_convolutions") {
  GraphBuilder b;
  const ValueId x = b.input("x", {3, 4, 21}), filter = b.weights({4, 4, 3});
  const ValueId y = b.node("Conv", {x, filter}, {{"strides", Ints{2}}, {"dilations", Ints{3}}, {"pads", Ints{2, 5}}});
  const ValueId z = b.node("Conv", {y, filter}, {{"auto_pad", std::string("SAME_UPPER")}});
  b.output(
      b.node("ConvTranspose", {z, b.weights({4, 2, 5})},
             {{"strides", Ints{3}}, {"pads", Ints{1, 2}}, {"output_padding", Ints{2}}, {"group", std::int64_t{2}}}));
  b.output(b.node("ConvTranspose", {z, filter}, {{"strides", Ints{2}}, {"output_shape", Ints{20}}}));
  const Graph before = b.build(3), found = after(before, "conv1d_to_conv2d"), all = after_all(before);
  INFO(found.dump());
  CHECK(of_sequences(found) == 0);
  CHECK(worst_difference(before, found) < 1e-6);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("conv1d_to_conv2d/convolutions_with_computed_filters_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 9});
  b.output(b.node("Conv", {x, b.input("filter", {4, 4, 3})}));
  const Graph before = b.build();
  CHECK(of_sequences(after(before, "conv1d_to_conv2d")) == 1);
}

TEST_CASE("conv1d_to_conv2d/drawn_networks") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 draw(seed);
    const auto one_of = [&](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
    const std::int64_t h = 1 + one_of(4), w = 1 + one_of(5), n = 1 + one_of(3);
    GraphBuilder b;
    const ValueId image = b.input("x", {n, 4, h, w});
    std::vector<ValueId> lines{reshape(b, image, {n, 4, h * w})};
    const auto any = [&] { return lines[draw() % lines.size()]; };
    const int steps = 3 + one_of(10);
    for (int step = 0; step < steps; ++step) {
      const ValueId x = any();
      switch (one_of(10)) {
        case 0:
          lines.push_back(conv1d(b, x, 4, 4, 1));
          break;
        case 1:
          lines.push_back(conv1d(b, x, 4, 4, 3, one_of(2) == 0 ? 1 : 4));
          break;
        case 2:
          lines.push_back(b.node("Add", {x, any()}));
          break;
        case 3:
          lines.push_back(b.node("Mul", {b.weights(one_of(2) == 0 ? Shape{4, 1} : Shape{h * w}), x}));
          break;
        case 4:
          lines.push_back(b.node("Tanh", {x}));
          break;
        case 5:
          lines.push_back(b.batch_norm(x, 4));
          break;
        case 6:
          lines.push_back(b.node("Softmax", {x}, {{"axis", std::int64_t{one_of(2) + 1}}}));
          break;
        case 8: {
          const auto [first, second] = split(b, x);
          const ValueId gate = b.node(one_of(4) == 0 ? "Softmax" : "Sigmoid", {first});
          lines.push_back(conv1d(b, b.node("Mul", {gate, second}), 2, 4, 1));
          break;
        }
        case 7:
          lines.push_back(b.node("Mul", {x, b.node("ReduceMean", {x}, {{"axes", Ints{2}}})}));
          break;
        default: {
          const ValueId seen = b.node("Tanh", {reshape(b, x, {n, 4, h, w})});
          lines.push_back(reshape(b, one_of(2) == 0 ? seen : b.conv(seen, 4, 4, 3, 1), {n, 4, h * w}));
        }
      }
      if (one_of(6) == 0) b.output(lines.back());
    }
    b.output(conv1d(b, any(), 4, 3, 1));
    const Graph before = b.build(n), found = after(before, "conv1d_to_conv2d"), all = after_all(before);
    CAPTURE(seed);
    CHECK(of_sequences(found) == 0);
    CHECK(worst_difference(before, found) < 1e-5);
    CHECK(worst_difference(before, all) < 1e-4);
  }
}

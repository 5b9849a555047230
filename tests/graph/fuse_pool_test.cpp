// fuse_pool: 2x2 maxima are stored by the convolution before them.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

const AttributeList maxima_of_four{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};

/// The number of pools left after all passes, which change no bit of the results.
int pools_left(GraphBuilder& b, std::int64_t batch = 1) {
  const Graph before = b.build(batch), all = after_all(before), apart = after_all(before, {"fuse_pool"});
  INFO(all.dump());
  CHECK(worst_difference(before, all) < 1e-4);
  CHECK(worst_difference(apart, all) == 0);
  return count(all, "MaxPool");
}

/// A convolution that Winograd accepts, on [2,16,h,w].
ValueId conv(GraphBuilder& b, std::int64_t h, std::int64_t w, std::int64_t k = 64) {
  return b.conv(b.input("x", {2, 16, h, w}), 16, k, 3, 1);
}

int left_of(std::int64_t h, std::int64_t w, const AttributeList& attributes, const char* activation = "Relu") {
  GraphBuilder b;
  b.output(b.node("MaxPool", {b.node(activation, {conv(b, h, w)})}, attributes));
  return pools_left(b, 2);
}

}  // namespace

TEST_CASE("fuse_pool/into_winograd") {
  CHECK(left_of(32, 32, maxima_of_four) == 0);
  CHECK(left_of(33, 31, maxima_of_four) == 0);  // drops the last row and column
  GraphBuilder b;  // without activation, and concatenated with another result: pooled in place
  const ValueId x = b.input("x", {1, 16, 32, 32});
  const ValueId pooled = b.node("MaxPool", {b.conv(x, 16, 64, 3, 1)}, maxima_of_four);
  const ValueId beside = b.conv(x, 16, 32, 1, 0, 2);
  b.output(b.conv(b.node("Concat", {pooled, beside}, {{"axis", std::int64_t{1}}}), 96, 8, 1));
  CHECK(pools_left(b) == 0);
}

TEST_CASE("fuse_pool/a_nan_stays") {
  GraphBuilder b;
  b.output(b.node("MaxPool", {b.node("Relu", {conv(b, 16, 16)})}, maxima_of_four));
  const Graph graph = b.build(2), all = after_all(graph);
  REQUIRE(count(all, "MaxPool") == 0);
  std::vector<Tensor> inputs = random_inputs(graph, 3);
  inputs[0].values<float>()[5 * 16 + 5] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = interpret(all, inputs)[0];
  const auto values = y.values<float>();
  for (const std::size_t image : {0U, 1U})
    for (std::size_t k = 0; k < 64; ++k) {
      const float* const plane = values.data() + (image * 64 + k) * 64;
      for (const std::int64_t at : {2 * 8 + 2, 3 * 8 + 3, 2 * 8 + 3}) CHECK((plane[at] != plane[at]) == (image == 0));
    }
}

// On CUDA the first layer of a network stores 3x3 maxima where that is faster; for one image it is not.
TEST_CASE("fuse_pool/into_stem") {
  struct Row {
    std::int64_t window, pad;
    Ints pool_pads;
    std::int64_t ceil_mode;
    Ints stored;  ///< the attribute: size, stride, pads
  };
  const Row rows[] = {{7, 3, {1, 1, 1, 1}, 0, {3, 2, 1, 1, 0, 0}},
                      {3, 0, {0, 0, 0, 0}, 1, {3, 2, 0, 0, 0, 0}},
                      {3, 1, {0, 0, 0, 0}, 1, {3, 2, 0, 0, 1, 1}}};
  for (const Row& row : rows) {
    GraphBuilder b;
    const ValueId x = b.input("x", {-1, 3, 224, 224});
    const ValueId first = b.node("Conv", {x, b.weights({64, 3, row.window, row.window}), b.weights({64})},
                                 {{"pads", Ints(4, row.pad)}, {"strides", Ints{2, 2}}});
    const ValueId pool = b.node(
        "MaxPool", {b.node("Relu", {first})},
        {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", row.pool_pads}, {"ceil_mode", row.ceil_mode}});
    b.output(b.conv(pool, 64, 16, 1));
    for (const std::string precision : {"fp32", "fp16", "bf16", "tf32"})
      for (const std::int64_t batch : {1, 64}) {
        const Graph graph =
            after_all(b.build(batch), {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
        INFO(precision, ", ", graph.dump());
        const bool joined = precision != "fp32" && batch == 64;
        CHECK(count(graph, "MaxPool") == (joined ? 0 : 1));
        for (const Node& node : graph.nodes)
          if (joined && node.type() == "Conv" && graph.value(node.outputs[0]).shape[1] == 64) {
            CHECK((integers_attribute(*node.op, "max_pool") == row.stored));
            CHECK(node.choice->kernel->name() == "stem");
          }
      }
  }
}

// auto_pad's pads are not in the list.
TEST_CASE("fuse_pool/a_stem_takes_no_pool_that_pads_by_itself") {
  for (const std::string pads : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {-1, 3, 224, 224});
    const ValueId first =
        b.node("Conv", {x, b.weights({64, 3, 7, 7}), b.weights({64})}, {{"pads", Ints(4, 3)}, {"strides", Ints{2, 2}}});
    const ValueId pool = b.node("MaxPool", {b.node("Relu", {first})},
                                {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"auto_pad", pads}});
    b.output(b.conv(pool, 64, 16, 1));
    const Graph graph =
        after_all(b.build(64), {.target = {reference_gpu(), parse_numerics("fp16")}, .device = "cuda:0"});
    CHECK(count(graph, "MaxPool") == (pads == "VALID" ? 0 : 1));
  }
}

TEST_CASE("fuse_pool/others_stay") {
  CHECK(left_of(32, 32, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}}) == 1);
  CHECK(left_of(32, 32, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{1, 1}}}) == 1);
  CHECK(left_of(32, 32, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}) == 1);
  CHECK(left_of(33, 33, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"ceil_mode", std::int64_t{1}}}) == 1);
  CHECK(left_of(32, 32, maxima_of_four, "Sigmoid") == 1);
  for (const Ints& other : {Ints{2, 1}, Ints{1, 2}, Ints{2, 3}, Ints{3, 2}}) {
    CHECK(left_of(32, 32, {{"kernel_shape", other}, {"strides", Ints{2, 2}}}) == 1);
    CHECK(left_of(32, 32, {{"kernel_shape", Ints{2, 2}}, {"strides", other}}) == 1);
  }
  for (const Ints& pads : {Ints{1, 0, 0, 0}, Ints{0, 1, 0, 0}, Ints{0, 0, 1, 0}, Ints{0, 0, 0, 1}})
    CHECK(left_of(33, 33, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", pads}}) == 1);
  for (const std::int64_t size : {32, 33})  // SAME adds a row to 33
    CHECK(left_of(size, 32,
                  {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}}) ==
          size - 32);
  CHECK(left_of(33, 33, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"dilations", Ints{2, 2}}}) == 1);
}

TEST_CASE("fuse_pool/neighbours_that_keep_it") {
  SUBCASE("of what others read") {
    GraphBuilder b;
    const ValueId y = b.node("Relu", {conv(b, 32, 32)});
    b.output(b.node("MaxPool", {y}, maxima_of_four));
    b.output(b.conv(y, 64, 8, 1));
    CHECK(pools_left(b, 2) == 1);
  }
  SUBCASE("of what a residual is added to") {
    GraphBuilder b;
    const ValueId x = b.node("Relu", {conv(b, 32, 32)});
    b.output(b.node("MaxPool", {b.node("Add", {b.conv(x, 64, 64, 3, 1), x})}, maxima_of_four));
    CHECK(pools_left(b, 2) == 1);
  }
  SUBCASE("of what is pooled already, and of what is no convolution") {
    GraphBuilder b;
    const ValueId y = conv(b, 32, 32), once = b.node("MaxPool", {y}, maxima_of_four);
    b.output(b.node("MaxPool", {once}, maxima_of_four));
    CHECK(pools_left(b, 2) == 1);
    b.output(b.node("MaxPool", {b.node("Sin", {b.input("z", {1, 4, 4, 4})})}, maxima_of_four));
    CHECK(pools_left(b, 2) == 2);
  }
  SUBCASE("whose indices it has") {
    GraphBuilder b;
    b.output(b.node("MaxPool", {conv(b, 32, 32)}, maxima_of_four, 13, 2) + 1);
    CHECK(count(after_all(b.build(2)), "MaxPool") == 1);
  }
  SUBCASE("larger than any kernel takes") {
    for (const auto& [size, stride] : {std::pair<std::int64_t, std::int64_t>{200, 1}, {1, 200}, {200, 200}}) {
      GraphBuilder b;
      b.output(b.node("MaxPool", {b.conv(b.input("x", {1, 1, 200, 200}), 1, 8, 3, 1)},
                      {{"kernel_shape", Ints(2, size)}, {"strides", Ints(2, stride)}}));
      CHECK(count(after_all(b.build()), "MaxPool") == 1);
    }
  }
  SUBCASE("of volumes") {
    GraphBuilder b;
    const ValueId y = b.node("Conv", {b.input("x", {1, 2, 4, 6, 8}), b.weights({4, 2, 3, 3, 3})});
    b.output(b.node("MaxPool", {y}, {{"kernel_shape", Ints{2, 2, 2}}, {"strides", Ints{2, 2, 2}}}));
    CHECK(pools_left(b) == 1);
  }
  SUBCASE("of what another algorithm computes") {
    GraphBuilder b;
    b.output(b.node("MaxPool", {b.conv(b.input("x", {1, 16, 32, 32}), 16, 64, 1)}, maxima_of_four));
    CHECK(pools_left(b) == 1);
  }
}

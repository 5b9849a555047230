// assign_formats: nhwc images that are flattened for products with constant weights are read in place.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "graph_builder.h"
#include "ops/core/op.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t height = 5, width = 3, columns = 7;

/// [N,channels,5,3], stored as nhwc by a convolution.
ValueId image(GraphBuilder& b, std::int64_t channels) {
  return b.node("Relu", {b.conv(b.input("x", {-1, 8, height, width}), 8, channels, 3, 1)});
}

ValueId product(GraphBuilder& b, ValueId rows, std::int64_t channels, bool trans_b = true, double alpha = 1) {
  const std::int64_t terms = channels * height * width;
  const ValueId weights = b.weights(trans_b ? Shape{columns, terms} : Shape{terms, columns});
  return b.node("Gemm", {rows, weights, b.weights({columns})},
                {{"transB", std::int64_t{trans_b}}, {"alpha", alpha}, {"beta", 0.5}});
}

/// The number of conversions of 4-D values to nchw, from which rows are made otherwise.
int to_nchw(const Graph& graph) {
  int conversions = 0;
  for (const Node& node : graph.nodes)
    if (node.type() == "LayoutConvert" && graph.value(node.outputs[0]).format == formats::nchw) ++conversions;
  return conversions;
}

int by_pixels(const Graph& graph) {
  int products = 0;
  for (const Node& node : graph.nodes)
    if (node.type() == "Gemm" && integer_attribute(*node.op, "a_channels").value_or(0) != 0) ++products;
  return products;
}

Graph on_gpu(const GraphBuilder& b, std::string_view precision, std::int64_t batch) {
  GraphBuilder copy = b;
  return after_all(copy.build(batch), {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
}

/// On the CPU at batch 1 and 3: `products` products read pixels, none or all values are converted, results are equal.
void check_cpu(const GraphBuilder& b, int products) {
  for (const std::int64_t batch : {1, 3}) {
    CAPTURE(batch);
    GraphBuilder copy = b;
    const Graph before = copy.build(batch), all = after_all(before);
    INFO(all.dump());
    CHECK(by_pixels(all) == products);
    CHECK((to_nchw(all) == 0) == (products > 0));
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

}  // namespace

TEST_CASE("assign_formats/products_read_images_as_they_lie") {
  for (const bool trans_b : {true, false})
    for (const double alpha : {1.0, 0.25}) {
      CAPTURE(trans_b);
      CAPTURE(alpha);
      GraphBuilder b;
      b.output(product(b, b.node("Flatten", {image(b, 16)}), 16, trans_b, alpha));
      check_cpu(b, 1);
    }
}

TEST_CASE("assign_formats/other_ways_to_rows_of_images") {
  GraphBuilder b;
  const ValueId x = image(b, 12);
  SUBCASE("Reshape") { b.output(product(b, b.node("Reshape", {x, b.int64s({0, -1})}), 12)); }
  SUBCASE("an adaptive pool that does nothing") {
    const ValueId pooled =
        b.node("AveragePool", {x}, {{"kernel_shape", Ints{1, 1}}, {"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}});
    b.output(product(b, b.node("Flatten", {pooled}), 12));
  }
  SUBCASE("an elementwise step between") { b.output(product(b, b.node("Sigmoid", {b.node("Flatten", {x})}), 12)); }
  check_cpu(b, 1);
}

TEST_CASE("assign_formats/two_products_of_one_image") {
  GraphBuilder b;
  const ValueId flat = b.node("Flatten", {image(b, 16)});
  b.output(product(b, flat, 16));
  b.output(b.node("Softmax", {product(b, flat, 16, false)}));
  check_cpu(b, 2);
}

TEST_CASE("assign_formats/rows_that_others_read_too_are_converted") {
  GraphBuilder b;
  const ValueId x = image(b, 16), flat = b.node("Flatten", {x});
  SUBCASE("an output") {
    b.output(flat);
    b.output(product(b, flat, 16));
  }
  SUBCASE("a step that mixes columns") { b.output(product(b, b.node("Softmax", {flat}), 16)); }
  SUBCASE("a step with a value for each column") {
    b.output(product(b, b.node("Mul", {flat, b.weights({16 * height * width})}), 16));
  }
  SUBCASE("a product that reads it as weights") {
    b.output(product(b, flat, 16));
    b.output(b.node("Gemm", {b.weights({2, 16 * height * width}), flat}, {{"transB", std::int64_t{1}}}));
  }
  SUBCASE("weights that are computed") {
    b.output(b.node("Gemm", {flat, b.input("w", {columns, 16 * height * width})}, {{"transB", std::int64_t{1}}}));
  }
  SUBCASE("weights that two products share") {
    const ValueId weights = b.weights({columns, 16 * height * width});
    const ValueId other = b.node("Sigmoid", {b.input("rows", {4, 16 * height * width})});
    b.output(b.node("Gemm", {flat, weights}, {{"transB", std::int64_t{1}}}));
    b.output(b.node("Gemm", {other, weights}, {{"transB", std::int64_t{1}}}));
  }
  SUBCASE("A transposed") {
    b.output(b.node("Gemm", {flat, b.input("w", {columns, -1})},
                    {{"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}}));
  }
  SUBCASE("channels by themselves") {
    const ValueId rows = b.node("Flatten", {x}, {{"axis", std::int64_t{2}}});
    b.output(b.node("Gemm", {rows, b.weights({height * width, columns})}));
  }
  SUBCASE("several rows an image") {
    const ValueId rows = b.node("Reshape", {x, b.int64s({-1, 8 * height * width})});
    b.output(b.node("Gemm", {rows, b.weights({8 * height * width, columns})}));
  }
  check_cpu(b, 0);
}

// With few rows, large weights are read in place: packed they would exist twice.
TEST_CASE("assign_formats/weights_that_the_cpu_reads_as_they_lie_stay") {
  GraphBuilder b;
  const ValueId x = b.node("Relu", {b.conv(b.input("x", {-1, 8, 16, 16}), 8, 64, 3, 1)});
  const ValueId flat = b.node("Flatten", {x});
  b.output(b.node("Gemm", {flat, b.weights({256, 64 * 256})}, {{"transB", std::int64_t{1}}}));
  const Graph few = after_all(b.build(1)), many = after_all(b.build(16));
  INFO(few.dump());
  CHECK(only(few, "Gemm").choice->kernel->name() == "few_rows");
  CHECK(by_pixels(few) == 0);
  CHECK(to_nchw(few) == 1);
  CHECK(only(many, "Gemm").choice->kernel->name() == "packed");
  CHECK(by_pixels(many) == 1);
  CHECK(to_nchw(many) == 0);
}

TEST_CASE("assign_formats/products_on_cuda_read_images_as_they_lie") {
  GraphBuilder b;
  const ValueId hidden = b.node("Relu", {product(b, b.node("Flatten", {image(b, 64)}), 64)});
  b.output(b.node("Gemm", {hidden, b.weights({columns, 4})}));
  for (const std::string precision : {"fp32", "tf32", "fp16", "bf16"})
    for (const std::int64_t batch : {1, 3, 16, 64}) {
      CAPTURE(precision);
      CAPTURE(batch);
      const Graph graph = on_gpu(b, precision, batch);
      INFO(graph.dump());
      CHECK(by_pixels(graph) == 1);
      CHECK(to_nchw(graph) == 0);
      for (const Node& node : graph.nodes)
        if (node.type() == "Gemm") CHECK((node.choice->candidate.reads & input_bit(1)) == no_inputs);
    }
}

// The only product stays in float32: few rows are read in 16 bits, others are cast first.
TEST_CASE("assign_formats/rows_are_cast_as_they_lie") {
  GraphBuilder b;
  b.output(product(b, b.node("Flatten", {image(b, 64)}), 64));
  for (const std::int64_t batch : {1, 16}) {
    const Graph graph = on_gpu(b, "fp16", batch);
    INFO(graph.dump());
    CHECK(by_pixels(graph) == 1);
    CHECK(to_nchw(graph) == 0);
    CHECK(graph.value(only(graph, "Gemm").inputs[0]).dtype == (batch == 1 ? DType::f16 : DType::f32));
  }
}

TEST_CASE("assign_formats/padded_pixels_are_converted") {
  GraphBuilder b;
  const ValueId x = b.node("Relu", {b.conv(b.input("x", {-1, 64, 20, 20}), 64, 100, 3, 1)});
  const ValueId y = b.node("Relu", {b.conv(x, 100, 100, 3, 1)});
  const ValueId hidden = b.node("Gemm", {b.node("Flatten", {y}), b.weights({100 * 400, 16})});
  b.output(b.node("Gemm", {hidden, b.weights({16, 4})}));
  const Graph graph = on_gpu(b, "fp16", 64);
  INFO(graph.dump());
  int padded = 0;
  for (const Node& node : graph.nodes)
    if (node.type() == "LayoutConvert" && graph.value(node.inputs[0]).format.pixel_pitch != 0) ++padded;
  CHECK(padded == 1);
  CHECK(by_pixels(graph) == 0);
}

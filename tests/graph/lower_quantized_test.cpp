// lower_quantized: what becomes an operator on codes, what stays, and how far results move.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "graph_builder.h"
#include "ops/core/epilogue.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

/// Numbers of 8-bit codes.
struct Step {
  float scale = 0.04F;
  int zero_point = 120;
  DType type = DType::u8;
};
constexpr Step of_x, other{0.05F, 128}, signed_x{0.04F, -5, DType::i8}, symmetric{0.05F, 0, DType::i8};

class Quantised : public GraphBuilder {
 public:
  ValueId quantize(ValueId x, const Step& to) { return node("QuantizeLinear", {x, scalar(to.scale), zero(to)}); }
  ValueId dequantize(ValueId codes, const Step& from) {
    return node("DequantizeLinear", {codes, scalar(from.scale), zero(from)});
  }
  /// x through codes.
  ValueId through(ValueId x, const Step& step) { return dequantize(quantize(x, step), step); }
  /// An input that is quantised.
  ValueId image(Ints dims, const Step& step = of_x) {
    return through(input(fmt::format("x{}", count_++), std::move(dims)), step);
  }
  ValueId zero(const Step& of) {
    Tensor code(of.type, Shape{});
    *static_cast<std::uint8_t*>(code.data()) = static_cast<std::uint8_t>(of.zero_point);
    return constant(std::move(code));
  }
  Tensor bytes(DType type, Shape shape, int low, int high) {
    Tensor codes(type, shape);
    std::uniform_int_distribution<int> draw(low, high);
    auto* const to = static_cast<std::uint8_t*>(codes.data());
    std::generate_n(to, codes.elems(), [&] { return static_cast<std::uint8_t>(draw(random_)); });
    return codes;
  }
  /// Filters [K,C,R,S] in 8 bits, by `axis` or for all, whose products with ordinary numbers are ordinary.
  ValueId filters(Shape shape, bool by_filter, DType type = DType::i8, int zero_point = 0, std::int64_t axis = 0) {
    const std::int64_t k = shape[static_cast<int>(axis)], terms = shape.elems() / k;
    const float scale = 0.012F / std::sqrt(static_cast<float>(terms));
    std::vector<float> scales(by_filter ? static_cast<std::size_t>(k) : 1, scale);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] *= 1 + 0.125F * static_cast<float>(i);
    const Shape parameters = by_filter ? Shape{k} : Shape{};
    Tensor zeros(type, parameters);
    std::fill_n(static_cast<std::uint8_t*>(zeros.data()), zeros.elems(), static_cast<std::uint8_t>(zero_point));
    const int low = type == DType::i8 ? -127 : zero_point - 128;
    const ValueId codes = constant(bytes(type, shape, low, low + 255));
    return node(
        "DequantizeLinear",
        {codes, constant(Tensor::of<float>(parameters, std::span<const float>(scales))), constant(std::move(zeros))},
        {{"axis", axis}});
  }
  ValueId conv8(ValueId x, Shape w, bool by_filter, AttributeList attributes = {}, bool bias = true) {
    const std::int64_t k = w[0];
    std::vector<ValueId> inputs{x, filters(w, by_filter)};
    if (bias) inputs.push_back(weights({k}, 0, 0.5));
    return node("Conv", std::move(inputs), std::move(attributes));
  }
  std::mt19937& random() { return random_; }

 private:
  int count_ = 0;
  std::mt19937 random_{7};
};

struct Difference {
  double most_steps = 0;
  std::int64_t differing = 0, elems = 0;
};

/// Of all outputs, in steps.
void compare(const Graph& before, const Graph& after, double step, Difference& difference) {
  const std::vector<Tensor> inputs = random_inputs(before, 11);
  const std::vector<Tensor> a = interpret(before, inputs), b = interpret(after, inputs);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].shape() == b[i].shape());
    REQUIRE(a[i].dtype() == b[i].dtype());
    const Tensor x = a[i].to_dtype(DType::f32), y = b[i].to_dtype(DType::f32);
    for (std::size_t e = 0; e < x.values<float>().size(); ++e) {
      const double apart = std::abs(double{x.values<float>()[e]} - double{y.values<float>()[e]});
      const double steps = a[i].dtype() == DType::f32 ? apart / step : apart;
      difference.most_steps = std::max(difference.most_steps, steps);
      difference.differing += steps > 0.01 ? 1 : 0;
      ++difference.elems;
    }
  }
}

/// The graph after the pass. The kernels that it ends in give results at most one step away, mostly the same.
Graph lowered(Quantised& b, double step = 0.05) {
  const Graph before = b.build();
  const Graph result = after(before, "lower_quantized");
  INFO(result.dump());
  Difference difference;
  compare(before, after_all(before), step, difference);
  CHECK(difference.most_steps < 1.01);
  CHECK(difference.differing <= 1 + difference.elems / 100);
  return result;
}

int floats(const Graph& graph) { return count(graph, "DequantizeLinear") + count(graph, "QuantizeLinear"); }

}  // namespace

TEST_CASE("lower_quantized/convolution") {
  for (const Step& x : {of_x, signed_x})
    for (const bool by_filter : {false, true}) {
      Quantised b;
      const AttributeList padded{{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 1}}};
      ValueId y = b.conv8(b.image({2, 5, 9, 8}, x), {7, 5, 3, 3}, by_filter, padded);
      y = b.node("Relu", {y});
      y = b.node("Clip", {y, b.scalar(-1), b.scalar(2)});
      b.output(b.through(y, other));
      const Graph graph = lowered(b);
      CHECK(floats(graph) == 2);
      const Node& conv = only(graph, "Conv");
      CHECK(conv.name.starts_with("Conv_"));
      CHECK(graph.value(conv.inputs[0]).dtype == DType::u8);
      CHECK(graph.value(conv.inputs[1]).dtype == DType::i8);
      const Epilogue::Requantize to = *conv.op->epilogue()->requantize;
      CHECK(to.multipliers.size() == 7);
      CHECK(to.x_zero_point == (x.type == DType::i8 ? 123 : 120));
      CHECK(to.zero_point == 128);
      CHECK(to.least == 128);
      CHECK(to.most == 168);
    }
}

TEST_CASE("lower_quantized/convolutions_that_stay") {
  Quantised b;
  const Ints image{1, 4, 6, 6};
  const ValueId x = b.image(image);
  int convolutions = 1;
  SUBCASE("weights in float32") { b.output(b.through(b.conv(x, 4, 3, 3), other)); }
  SUBCASE("float32 input") { b.output(b.through(b.conv8(b.input("f", image), {3, 4, 3, 3}, true), other)); }
  SUBCASE("weights far from their zero point, in groups") {
    const ValueId w = b.node("DequantizeLinear",
                             {b.constant(b.bytes(DType::u8, {4, 1, 3, 3}, 0, 255)), b.scalar(0.01F), b.zero({1, 3})});
    b.output(b.through(b.node("Conv", {x, w}, {{"group", std::int64_t{4}}}), other));
  }
  SUBCASE("scales by input channel") {
    b.output(b.through(b.node("Conv", {x, b.filters({4, 4, 3, 3}, true, DType::i8, 0, 1)}), other));
  }
  SUBCASE("an activation that is no bound") {
    b.output(b.through(b.node("Sigmoid", {b.conv8(x, {3, 4, 3, 3}, true)}), other));
  }
  SUBCASE("its result is an output") {
    const ValueId y = b.conv8(x, {3, 4, 3, 3}, true);
    b.output(y);
    b.output(b.through(y, other));
  }
  SUBCASE("its result is read in float32") {
    const ValueId y = b.conv8(x, {3, 4, 3, 3}, true);
    b.output(b.node("Softmax", {y}));
    b.output(b.through(y, other));
  }
  SUBCASE("a scale that is computed") {
    const ValueId y = b.conv8(x, {3, 4, 3, 3}, true),
                  scale = b.node("ReduceMax", {b.node("Abs", {y})}, {{"keepdims", std::int64_t{0}}});
    b.output(b.node("QuantizeLinear", {y, scale, b.zero(other)}));
  }
  SUBCASE("a coarse bias") {
    const ValueId w = b.node(
        "DequantizeLinear", {b.constant(b.bytes(DType::i8, {3, 4, 1, 1}, -128, 127)), b.scalar(50), b.zero(symmetric)});
    b.output(b.through(b.node("Conv", {x, w, b.weights({3})}), {0.5F, 128}));
  }
  SUBCASE("codes by channel") {
    const ValueId scales = b.constant(Tensor::of<float>(Shape{4}, {0.1F, 0.1F, 0.2F, 0.1F}));
    const ValueId zeros = b.constant(Tensor::of<std::uint8_t>(Shape{4}, {1, 2, 3, 4}));
    const AttributeList axis{{"axis", std::int64_t{1}}};
    const ValueId q = b.node("QuantizeLinear", {x, scales, zeros}, axis);
    const ValueId d = b.node("DequantizeLinear", {q, scales, zeros}, axis);
    b.output(b.through(b.conv8(d, {3, 4, 3, 3}, true), other));
  }
  const Graph graph = lowered(b, 0.04);
  CHECK(count(graph, "Conv") == convolutions);
  CHECK(!only(graph, "Conv").op->epilogue()->requantize);
  for (const Node& node : graph.nodes)
    if (node.type() == "QuantizeLinear") CHECK_MESSAGE(node.note.starts_with("float: "), node.name);
}

TEST_CASE("lower_quantized/reasons_name_the_node_that_needs_floats") {
  Quantised b;
  const ValueId y = b.through(b.conv8(b.image({1, 4, 6, 6}), {3, 4, 3, 3}, false), other);
  b.output(b.through(b.node("Softmax", {y}), other));
  const Graph graph = lowered(b);
  std::vector<std::string> notes;
  for (const Node& node : graph.nodes)
    if (!node.note.empty()) notes.push_back(node.note);
  CHECK(notes == std::vector<std::string>{"float: a network's input", "float: no int8 kernel of Softmax",
                                          "float: no int8 kernel of Softmax", "float: a network's output"});
}

TEST_CASE("lower_quantized/notes_say_what_to_change") {
  Quantised b;
  const ValueId x = b.image({1, 4, 6, 6});
  std::string expected;
  SUBCASE("a function of sums") {
    b.output(b.through(b.node("LeakyRelu", {b.conv8(x, {3, 4, 3, 3}, true)}), other));
    expected = "no kernel on codes computes LeakyRelu with it: quantise its result before that";
  }
  SUBCASE("a residual quantised twice") {
    const ValueId y = b.conv8(x, {3, 4, 3, 3}, true);
    b.output(b.through(y, other));
    b.output(b.through(y, of_x));
    expected = "its result is quantised with several scales: give its readers one";
  }
  SUBCASE("codes by channel") {
    const ValueId scales = b.constant(Tensor::of<float>(Shape{4}, {0.1F, 0.1F, 0.2F, 0.1F}));
    const ValueId zeros = b.constant(Tensor::of<std::uint8_t>(Shape{4}, {1, 2, 3, 4}));
    const AttributeList axis{{"axis", std::int64_t{1}}};
    const ValueId q = b.node("QuantizeLinear", {x, scales, zeros}, axis);
    b.output(b.node("DequantizeLinear", {q, scales, zeros}, axis));
    expected = "its codes have a scale for each channel or block: give all one";
  }
  const Graph graph = lowered(b, 0.04);
  CHECK(std::ranges::any_of(graph.nodes, [&](const Node& node) { return node.note.ends_with(expected); }));
}

TEST_CASE("lower_quantized/uint8_weights_around_128") {
  Quantised b;
  const ValueId w = b.filters({3, 4, 3, 3}, true, DType::u8, 128);
  b.output(b.through(b.node("Conv", {b.image({1, 4, 6, 6}), w}), other));
  const Graph graph = lowered(b);
  CHECK(graph.value(only(graph, "Conv").inputs[1]).dtype == DType::i8);
}

TEST_CASE("lower_quantized/uint8_weights_around_any_code") {
  for (const int zero : {1, 100, 240}) {
    Quantised b;
    const ValueId x = b.image({2, 4, 6, 6}), weights = b.constant(b.bytes(DType::u8, {3, 4, 3, 3}, 0, 255)),
                  w = b.node("DequantizeLinear", {weights, b.scalar(0.002F), b.zero({1, zero})});
    const ValueId y = b.through(b.node("Conv", {x, w}, {{"pads", Ints{1, 1, 1, 1}}}), other);
    const ValueId matrix = b.node(
        "DequantizeLinear", {b.constant(b.bytes(DType::u8, {108, 5}, 0, 255)), b.scalar(0.001F), b.zero({1, zero})});
    b.output(b.through(b.node("MatMul", {b.node("Flatten", {y}), matrix}), other));
    const Graph graph = lowered(b);
    CHECK(floats(graph) == 2);
    CHECK(count(graph, "Concat") == 2);
  }
}

TEST_CASE("lower_quantized/transposed_convolutions_of_blocks") {
  for (const bool by_filter : {false, true}) {
    Quantised b;
    const ValueId w = b.filters({6, 5, 2, 2}, by_filter, DType::i8, 0, 1);
    const ValueId y =
        b.node("ConvTranspose", {b.image({2, 6, 4, 3}), w, b.weights({5}, 0, 0.5)}, {{"strides", Ints{2, 2}}});
    b.output(b.through(b.node("Relu", {y}), other));
    const Graph graph = lowered(b);
    CHECK(floats(graph) == 2);
    CHECK(only(graph, "Conv").name.starts_with("ConvTranspose"));
    CHECK(count(graph, "DepthToSpace") == 1);
  }
  Quantised b;
  const ValueId w = b.filters({6, 5, 3, 3}, true, DType::i8, 0, 1);
  b.output(b.through(b.node("ConvTranspose", {b.image({2, 6, 4, 3}), w}, {{"strides", Ints{2, 2}}}), other));
  const Graph graph = lowered(b);
  CHECK(count(graph, "ConvTranspose") == 1);
  CHECK(only(graph, "ConvTranspose").name.starts_with("ConvTranspose"));
}

TEST_CASE("lower_quantized/qlinear_conv") {
  Quantised b;
  const ValueId q = b.quantize(b.input("x", {1, 4, 6, 6}), of_x);
  const ValueId w = b.constant(b.bytes(DType::i8, {3, 4, 3, 3}, -127, 127)), w_zero = b.zero(symmetric);
  const ValueId bias = b.constant(Tensor::of<std::int32_t>(Shape{3}, {100, -200, 30000}));
  const ValueId y = b.node("QLinearConv", {q, b.scalar(0.04F), b.zero(of_x), w, b.scalar(0.003F), w_zero,
                                           b.scalar(0.05F), b.zero(other), bias});
  SUBCASE("read as numbers") { b.output(b.dequantize(y, other)); }
  SUBCASE("an output itself") { b.output(y); }
  const Graph before = b.build(), graph = after(before, "lower_quantized");
  CHECK(count(graph, "QLinearConv") == 0);
  Difference difference;
  compare(before, after_all(before), 0.05, difference);
  CHECK(difference.most_steps == 0);  // the same arithmetic
}

TEST_CASE("lower_quantized/products_with_a_matrix") {
  for (const Step& step : {of_x, signed_x}) {
    Quantised b;
    ValueId x = b.image({3, 10}, step);
    SUBCASE("Gemm") { x = b.node("Gemm", {x, b.filters({10, 7}, false), b.weights({7})}); }
    SUBCASE("Gemm of a transposed matrix") {
      x = b.node("Gemm", {x, b.filters({7, 10}, true), b.weights({1, 7})}, {{"transB", std::int64_t{1}}});
    }
    SUBCASE("MatMul") { x = b.node("MatMul", {x, b.filters({10, 7}, true, DType::i8, 0, 1)}); }
    SUBCASE("MatMul plus bias") {
      x = b.node("Add", {b.weights({7}), b.node("MatMul", {x, b.filters({10, 7}, false)})});
      x = b.node("Relu", {x});
    }
    b.output(b.through(x, other));
    const Graph graph = lowered(b);
    CHECK(only(graph, "Conv").op->epilogue()->requantize);
    CHECK(floats(graph) == 2);
  }
  Quantised batched;
  const ValueId x = batched.image({2, 3, 10});
  batched.output(batched.through(batched.node("MatMul", {x, batched.filters({10, 7}, false)}), other));
  CHECK(only(lowered(batched), "Conv").op->epilogue()->requantize);
}

TEST_CASE("lower_quantized/q_gemm") {
  Quantised b;
  const ValueId q = b.quantize(b.input("x", {3, 10}), of_x);
  const ValueId sums = b.node("MatMulInteger", {q, b.constant(b.bytes(DType::i8, {10, 7}, -127, 127)), b.zero(of_x)});
  const ValueId bias = b.constant(Tensor::of<std::int32_t>(Shape{7}, {1, 2, 3, -4000, 5, 6, 7}));
  const ValueId real = b.node("Cast", {b.node("Add", {sums, bias})}, {{"to", std::int64_t{1}}});
  b.output(b.through(b.node("Mul", {real, b.scalar(0.04F * 0.004F)}), other));
  const Graph graph = lowered(b);
  CHECK(only(graph, "Conv").op->epilogue()->requantize);
  CHECK(count(graph, "MatMulInteger") == 0);
}

// A bias by row is none by filter, though it has as many numbers.
TEST_CASE("lower_quantized/integer_products_with_known_scales") {
  for (const DType type : {DType::u8, DType::i8}) {
    Quantised b;
    const Step of{0.04F, 5, type};
    const ValueId x = b.quantize(b.input("x", {2, 4, 6, 6}), of);
    const ValueId sums = b.node("ConvInteger", {x, b.constant(b.bytes(DType::i8, {3, 4, 3, 3}, -127, 127)), b.zero(of)},
                                {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}});
    const ValueId scales = b.constant(Tensor::of<float>(Shape{1, 3, 1, 1}, {0.0001F, 0.0002F, 0.00015F}));
    const AttributeList to_float{{"to", std::int64_t{1}}};
    ValueId y = b.node("Mul", {b.node("Cast", {sums}, to_float), scales});
    y = b.through(b.node("Relu", {b.node("Add", {y, b.weights({3, 1, 1}, 0, 0.5)})}), other);
    const ValueId codes = b.quantize(b.node("Flatten", {y}), other);
    const ValueId rows =
        b.node("MatMulInteger", {codes, b.constant(b.bytes(DType::i8, {27, 5}, -127, 127)), b.zero(other)});
    y = b.node("Mul", {b.node("Cast", {rows}, to_float), b.scalar(0.0002F)});
    b.output(b.through(b.node("Add", {y, b.weights({5}, 0, 0.5)}), other));
    const Graph graph = lowered(b);
    CHECK(floats(graph) == 2);
    CHECK(count(graph, "Conv") == 2);
  }
}

TEST_CASE("lower_quantized/q_gemm_with_a_bias_by_row") {
  Quantised b;
  const ValueId q = b.quantize(b.input("x", {5, 8}), of_x);
  const ValueId sums = b.node("MatMulInteger", {q, b.constant(b.bytes(DType::i8, {8, 5}, -127, 127)), b.zero(of_x)});
  const ValueId bias = b.constant(Tensor::of<std::int32_t>(Shape{5, 1}, {1, 2, 3000, -4000, 5}));
  const ValueId real = b.node("Cast", {b.node("Add", {sums, bias})}, {{"to", std::int64_t{1}}});
  b.output(b.through(b.node("Mul", {real, b.scalar(0.04F * 0.004F)}), other));
  CHECK(count(lowered(b), "MatMulInteger") == 1);
}

TEST_CASE("lower_quantized/what_has_no_elements_stays") {
  Quantised b;
  const ValueId y = b.through(b.conv8(b.image({0, 3, 6, 6}), {4, 3, 3, 3}, true), other);
  b.output(b.through(b.node("GlobalAveragePool", {y}), of_x));
  const Graph graph = lowered(b);
  CHECK(!only(graph, "Conv").op->epilogue()->requantize);
  CHECK(count(graph, "QuantizedGlobalAveragePool") == 0);
}

// Other modes read no number, which stays float32.
TEST_CASE("lower_quantized/a_pad_at_the_edge_with_a_number_stays") {
  Quantised b;
  const ValueId x = b.image({2, 4, 6, 6}, signed_x);
  b.output(
      b.through(b.node("Pad", {x, b.int64s({0, 0, 1, 1, 0, 0, 1, 1}), b.scalar(0.7F)}, {{"mode", std::string("edge")}}),
                signed_x));
  const Graph graph = lowered(b);
  CHECK(graph.value(only(graph, "Pad").outputs[0]).dtype == DType::f32);
}

TEST_CASE("lower_quantized/what_moves_elements_moves_codes") {
  for (const Step& step : {of_x, signed_x}) {
    Quantised b;
    const ValueId x = b.image({2, 4, 6, 6}, step);
    std::string op;
    ValueId y = no_id;
    const auto make = [&](std::string_view type, std::vector<ValueId> inputs, AttributeList attributes = {},
                          std::int64_t opset = 13) {
      op = type;
      y = b.node(type, std::move(inputs), std::move(attributes), opset);
    };
    SUBCASE("MaxPool") { make("MaxPool", {x}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}}); }
    SUBCASE("Reshape") { make("Reshape", {x, b.int64s({2, 144})}); }
    SUBCASE("Flatten") { make("Flatten", {x}); }
    SUBCASE("Transpose") { make("Transpose", {x}, {{"perm", Ints{0, 2, 3, 1}}}); }
    SUBCASE("Slice") { make("Slice", {x, b.int64s({1}), b.int64s({3}), b.int64s({1})}); }
    SUBCASE("DepthToSpace") { make("DepthToSpace", {x}, {{"blocksize", std::int64_t{2}}}); }
    SUBCASE("Pad") { make("Pad", {x, b.int64s({0, 0, 1, 1, 0, 0, 1, 1})}); }
    SUBCASE("Pad by a number") { make("Pad", {x, b.int64s({0, 0, 1, 1, 0, 0, 1, 1}), b.scalar(0.7F)}); }
    SUBCASE("Resize") {
      make("Resize", {x, no_id, b.constant(Tensor::of<float>(Shape{4}, {1, 1, 2, 2}))},
           {{"mode", std::string("nearest")}});
    }
    SUBCASE("Concat") { make("Concat", {x, b.image({2, 3, 6, 6}, other)}, {{"axis", std::int64_t{1}}}); }
    SUBCASE("Min by channel") { make("Min", {x, b.weights({1, 4, 1, 1})}); }
    SUBCASE("Max of two") { make("Max", {x, b.image({2, 4, 1, 1}, other)}); }
    SUBCASE("Concat with a constant") { make("Concat", {x, b.weights({2, 3, 6, 6})}, {{"axis", std::int64_t{1}}}); }
    b.output(b.through(y, step));
    const Graph graph = lowered(b, step.scale);
    const Node& moves = only(graph, op);
    CHECK(graph.value(moves.outputs[0]).dtype == DType::u8);
    CHECK(count(graph, "DequantizeLinear") == 1);
    CHECK(count(graph, "QuantizeLinear") == static_cast<int>(graph.inputs.size()));
    CHECK(count(graph, "QuantizedTable") == (graph.inputs.size() == 2 ? 1 : 0));
  }
}

TEST_CASE("lower_quantized/a_pad_by_the_zero_point_goes_into_the_convolution") {
  for (const Step& step : {of_x, signed_x, Step{0.04F, 0}}) {
    Quantised b;
    ValueId x = b.image({1, 4, 6, 6}, step);
    int pads = 0;
    SUBCASE("zeros") { x = b.node("Pad", {x, b.int64s({0, 0, 0, 1, 0, 0, 1, 2})}); }
    SUBCASE("another number") {
      x = b.node("Pad", {x, b.int64s({0, 0, 0, 1, 0, 0, 1, 2}), b.scalar(1)});
      pads = 1;
    }
    SUBCASE("channels, too") {
      x = b.node("Pad", {x, b.int64s({0, 1, 0, 1, 0, 0, 1, 2})});
      pads = 1;
    }
    const std::int64_t channels = b.build().values.back().shape[1];
    b.output(b.through(b.conv8(b.through(x, step), {3, channels, 3, 3}, true, {{"pads", Ints{1, 0, 0, 1}}}), other));
    CHECK(count(lowered(b), "Pad") == pads);
    CHECK(count(after_all(b.build()), "Pad") == pads);
  }
}

TEST_CASE("lower_quantized/parts_of_a_split") {
  Quantised b;
  const ValueId x = b.image({2, 4, 6, 6});
  const ValueId first = b.node("Split", {x}, {{"axis", std::int64_t{1}}}, 13, 2);
  for (const ValueId part : {first, first + 1}) b.output(b.through(part, of_x));
  const Graph graph = lowered(b, 0.04);
  CHECK(graph.value(only(graph, "Split").outputs[1]).dtype == DType::u8);
  CHECK(count(graph, "QuantizeLinear") == 1);
}

TEST_CASE("lower_quantized/parts_of_a_convolution") {
  Quantised b;
  const ValueId y = b.conv8(b.image({1, 4, 6, 6}), {5, 4, 1, 1}, true);
  const ValueId first = b.node("Split", {y}, {{"axis", std::int64_t{1}}, {"split", Ints{2, 3}}}, 11, 2);
  for (const ValueId part : {first, first + 1}) b.output(b.through(part, other));
  const Graph graph = lowered(b);
  CHECK(only(graph, "Conv").op->epilogue()->requantize);
}

TEST_CASE("lower_quantized/quantizers_go_above_what_follows_a_convolution") {
  Quantised b;
  ValueId y = b.node("Relu", {b.conv8(b.image({1, 4, 8, 8}), {3, 4, 3, 3}, true)});
  y = b.node("Flatten", {b.node("MaxPool", {y}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}})});
  b.output(b.through(y, other));
  const Graph graph = lowered(b);
  CHECK(only(graph, "Conv").op->epilogue()->requantize->least == 128);
  CHECK(floats(graph) == 2);
}

TEST_CASE("lower_quantized/sums_and_products") {
  for (const Step& step : {other, symmetric}) {
    Quantised b;
    const ValueId x = b.image({2, 4, 6, 6}), z = b.image({2, 4, 1, 1}, signed_x);
    ValueId y = no_id;
    int dequantized = 1;
    std::string op = "QuantizedAdd";
    SUBCASE("Add") { y = b.node("Add", {x, z}); }
    SUBCASE("Add, Relu") { y = b.node("Relu", {b.node("Add", {x, z})}); }
    SUBCASE("Sum") { y = b.node("Sum", {x, z}); }
    SUBCASE("Mul") {
      y = b.node("Mul", {x, z});
      op = "QuantizedMul";
    }
    SUBCASE("Add of known codes") {
      y = b.node("Add", {x, b.filters({1, 4, 1, 1}, false)});
      dequantized = 2;  // z, which nobody reads
    }
    b.output(b.through(y, step));
    const Graph graph = lowered(b);
    CHECK(graph.value(only(graph, op).outputs[0]).dtype == DType::u8);
    CHECK(count(graph, "DequantizeLinear") == dequantized);
  }
}

TEST_CASE("lower_quantized/channels_that_are_scaled_and_shifted") {
  for (const Step& step : {of_x, signed_x}) {
    Quantised b;
    const ValueId x = b.image({2, 4, 6, 6}, step);
    ValueId y = no_id;
    SUBCASE("BatchNormalization") { y = b.batch_norm(x, 4); }
    SUBCASE("Mul") { y = b.node("Mul", {b.weights({4, 1, 1}), x}); }
    SUBCASE("Add") { y = b.node("Relu", {b.node("Add", {x, b.weights({1, 4, 1, 1})})}); }
    SUBCASE("a factor of zero") {
      y = b.node("Mul", {x, b.constant(Tensor::of<float>(Shape{4, 1, 1}, {0, 1e-20F, -1, 2}))});
    }
    b.output(b.through(y, other));
    const Graph graph = lowered(b);
    CHECK(only(graph, "Conv").op->epilogue()->requantize);
    CHECK(floats(graph) == 2);
  }
}

TEST_CASE("lower_quantized/a_relu_without_codes_behind_it") {
  Quantised b;
  const ValueId y = b.through(b.conv8(b.image({1, 4, 6, 6}), {3, 4, 3, 3}, true), other);
  b.output(b.through(b.node("GlobalAveragePool", {b.node("Relu", {y})}), {0.01F, 100}));
  const Graph graph = lowered(b, 0.01);
  CHECK(floats(graph) == 2);
  CHECK(only(graph, "Conv").op->epilogue()->requantize->least == 128);
}

TEST_CASE("lower_quantized/means_of_images") {
  Quantised b;
  const ValueId x = b.image({2, 4, 6, 5});
  ValueId y = no_id;
  SUBCASE("GlobalAveragePool") { y = b.node("GlobalAveragePool", {x}); }
  SUBCASE("AveragePool") { y = b.node("AveragePool", {x}, {{"kernel_shape", Ints{6, 5}}}); }
  SUBCASE("ReduceMean") { y = b.node("ReduceMean", {x}, {{"axes", Ints{-1, 2}}}); }
  SUBCASE("ReduceMean without the axes") {
    y = b.node("ReduceMean", {x}, {{"axes", Ints{2, 3}}, {"keepdims", std::int64_t{0}}});
  }
  b.output(b.through(y, {0.01F, 100}));
  const Graph graph = lowered(b, 0.01);
  CHECK(count(graph, "QuantizedGlobalAveragePool") == 1);
  CHECK(floats(graph) == 2);
}

TEST_CASE("lower_quantized/linear_resize") {
  for (const char* const coordinates : {"half_pixel", "align_corners", "asymmetric"}) {
    Quantised b;
    const ValueId x = b.image({2, 6, 5, 4}, signed_x);
    const ValueId scales = b.constant(Tensor::of<float>(Shape{4}, {1, 1, 2, 1.5F}));
    const ValueId y =
        b.node("Resize", {x, no_id, scales},
               {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string(coordinates)}});
    b.output(b.through(b.node("Relu", {y}), other));
    const Graph graph = lowered(b);
    CHECK(floats(graph) == 2);
    CHECK(integers_attribute(*only(graph, "Resize").op, "stored_range") == Ints{128, 255});
  }
}

TEST_CASE("lower_quantized/differences_and_maxima") {
  for (const Step& of : {of_x, signed_x}) {
    Quantised b;
    const ValueId x = b.image({1, 6, 5, 4}, of), y = b.image({1, 6, 1, 1}, symmetric);
    b.output(b.through(b.node("Sub", {x, y}), other));
    b.output(b.through(b.node("GlobalMaxPool", {x}), of));
    const Graph graph = lowered(b);
    CHECK(floats(graph) == 4);
    CHECK(count(graph, "QuantizedAdd") == 1);
    CHECK(count(graph, "ReduceMax") == 1);
  }
}

TEST_CASE("lower_quantized/a_factor_goes_into_the_scale") {
  Quantised b;
  const ValueId x = b.node("Div", {b.image({1, 6, 5, 4}), b.scalar(6)});  // the end of a hard-swish
  const ValueId most = b.node("MaxPool", {b.node("Mul", {b.scalar(3), x})}, {{"kernel_shape", Ints{2, 2}}});
  const ValueId gate = b.through(b.node("GlobalAveragePool", {most}), other);
  b.output(b.through(b.node("Mul", {x, gate}), other));
  const Graph graph = lowered(b);
  CHECK(floats(graph) == 2);
  CHECK(count(graph, "QuantizedMul") == 1);
  CHECK(count(graph, "QuantizedGlobalAveragePool") == 1);
}

TEST_CASE("lower_quantized/means_of_windows") {
  Quantised b;
  const AttributeList attributes{{"kernel_shape", Ints{3, 3}},
                                 {"strides", Ints{2, 2}},
                                 {"pads", Ints{1, 1, 1, 1}},
                                 {"ceil_mode", std::int64_t{1}},
                                 {"count_include_pad", std::int64_t{1}}};
  b.output(b.through(b.node("Relu", {b.node("AveragePool", {b.image({2, 7, 6, 5}, signed_x)}, attributes)}), other));
  const Graph graph = lowered(b);
  CHECK(floats(graph) == 2);
  CHECK(only(graph, "QuantizedAveragePool").name.starts_with("AveragePool"));
}

TEST_CASE("lower_quantized/functions_of_one_number_are_tables") {
  for (const Step& step : {of_x, signed_x}) {
    Quantised b;
    const ValueId x = b.image({2, 3, 4, 4}, step);
    ValueId y = no_id;
    SUBCASE("Sigmoid") { y = b.node("Sigmoid", {x}); }
    SUBCASE("Elu") { y = b.node("Elu", {x}); }
    SUBCASE("a change of scale") { y = x; }
    SUBCASE("Min with the same number for all") {
      Tensor six(DType::f32, Shape{1, 3, 1, 1});
      std::ranges::fill(six.values<float>(), 1.5F);
      y = b.node("Min", {x, b.constant(std::move(six))});
    }
    SUBCASE("HardSwish in parts") {
      const ValueId part = b.node("Clip", {b.node("Add", {x, b.scalar(3)}), b.scalar(0), b.scalar(6)});
      y = b.node("Div", {b.node("Mul", {x, part}), b.scalar(6)});
    }
    SUBCASE("SiLU with codes in between") {
      y = b.node("Mul", {x, b.through(b.node("Sigmoid", {x}), {1 / 256.0F, 0})});
    }
    b.output(b.through(y, other));
    const Graph graph = lowered(b);
    CHECK(count(graph, "QuantizedTable") == 1);
    CHECK(graph.nodes.size() == 3);
  }
}

TEST_CASE("lower_quantized/no_tables") {
  Quantised b;
  const ValueId x = b.image({2, 3, 4, 4});
  SUBCASE("the same codes") { b.output(b.through(b.through(x, of_x), of_x)); }
  SUBCASE("a function of position, too") { b.output(b.through(b.node("Mul", {x, b.weights({3, 1, 1})}), other)); }
  CHECK(count(lowered(b), "QuantizedTable") == 0);
}

TEST_CASE("lower_quantized/a_clamp_behind_a_convolution_is_its_range") {
  Quantised b;
  const ValueId y = b.through(b.conv8(b.image({1, 4, 6, 6}), {3, 4, 3, 3}, true), symmetric);
  b.output(b.through(b.node("Relu", {y}), symmetric));
  const Graph graph = lowered(b);
  CHECK(count(graph, "QuantizedTable") == 0);
  CHECK(only(graph, "Conv").op->epilogue()->requantize->least == 128);
}

TEST_CASE("lower_quantized/values_with_several_readers") {
  Quantised b;
  const ValueId x = b.image({1, 4, 6, 6});
  const ValueId y = b.through(b.conv8(x, {4, 4, 1, 1}, true), other);
  b.output(b.through(b.conv8(y, {3, 4, 3, 3}, true), other));
  b.output(b.through(b.node("Add", {x, y}), other));
  b.output(b.node("Softmax", {y}));
  const Graph graph = lowered(b);
  CHECK(count(graph, "Conv") == 2);
  CHECK(count(graph, "QuantizedAdd") == 1);
  CHECK(count(graph, "DequantizeLinear") == 3);
}

TEST_CASE("lower_quantized/codes_that_are_outputs_stay") {
  for (const Step& step : {other, symmetric}) {
    Quantised b;
    const ValueId q = b.quantize(b.conv8(b.image({1, 4, 6, 6}), {4, 4, 1, 1}, true), step);
    b.output(q);
    b.output(b.through(b.conv8(b.dequantize(q, step), {3, 4, 3, 3}, true), step));
    const Graph graph = lowered(b);
    CHECK(graph.outputs[0] == q);
    CHECK(graph.value(q).dtype == step.type);
    CHECK(count(graph, "Conv") == 2);
    for (const Node& node : graph.nodes)
      if (node.type() == "Conv") CHECK(graph.value(node.inputs[0]).dtype == DType::u8);
    CHECK(count(graph, "QuantizedTable") == (step.type == DType::i8 ? 1 : 0));
  }
}

TEST_CASE("lower_quantized/a_value_quantised_for_each_reader") {
  Quantised b;
  const ValueId y = b.conv8(b.image({1, 4, 6, 6}), {4, 4, 1, 1}, true);
  b.output(b.through(b.conv8(b.through(y, other), {3, 4, 3, 3}, true), other));
  b.output(b.through(b.node("Relu", {b.through(y, other)}), other));
  const Graph graph = lowered(b);
  CHECK(count(graph, "Conv") == 2);
  CHECK(count(graph, "QuantizeLinear") == 1);
}

TEST_CASE("lower_quantized/not_on_a_gpu") {
  Quantised b;
  b.output(b.through(b.conv8(b.image({1, 4, 6, 6}), {4, 4, 1, 1}, true), other));
  const Graph before = b.build();
  DeviceProfile gpu = reference_gpu();
  const Graph graph = after(before, "lower_quantized", {.target = {gpu}});
  CHECK(graph.nodes.size() == before.nodes.size());
}

TEST_CASE("lower_quantized/random_layers_move_by_at_most_one_step") {
  Difference all;
  for (int draw = 0; draw < 40; ++draw) {
    Quantised b;
    std::mt19937 random(static_cast<unsigned>(draw));
    const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
    const auto step = [&] {
      const bool is_signed = random() % 2 == 0;
      return Step{0.02F + 0.001F * static_cast<float>(below(30)),
                  static_cast<int>(is_signed ? below(60) - 30 : 98 + below(60)), is_signed ? DType::i8 : DType::u8};
    };
    const std::int64_t c = 1 + below(9), k = 1 + below(9), h = 3 + below(6), w = 3 + below(6);
    const Step of_y = step();
    ValueId x = b.image({1 + below(2), c, h, w}, step()), y = x;
    switch (below(5)) {
      case 0:
        y = b.conv8(x, {k, c, 1 + below(3), 3}, below(2) == 0,
                    {{"pads", Ints{below(2), 1, 1, below(2)}}, {"strides", Ints{1 + below(2), 1}}}, below(2) == 0);
        break;
      case 1:
        y = b.conv8(x, {c, 1, 3, 3}, true, {{"pads", Ints{1, 1, 1, 1}}, {"group", c}});
        break;
      case 2:
        y = b.node(below(2) == 0 ? "Add" : "Mul", {x, b.image({1, c, h, w}, step())});
        break;
      case 3:
        y = b.node("Concat", {x, b.image({b.source().input_ports[0].dims[0], k, h, w}, step())},
                   {{"axis", std::int64_t{1}}});
        break;
      default:
        y = b.node(below(2) == 0 ? "Tanh" : "LeakyRelu", {x});
    }
    if (below(2) == 0 && b.source().nodes.back().type() != "Concat") y = b.node("Relu", {y});
    b.output(b.through(y, of_y));
    const Graph before = b.build(), graph = after(before, "lower_quantized");
    INFO(graph.dump());
    Difference difference;
    compare(before, after_all(before), of_y.scale, difference);
    CHECK(difference.most_steps < 1.01);
    CHECK(floats(graph) == 1 + static_cast<int>(graph.inputs.size()));
    all.differing += difference.differing;
    all.elems += difference.elems;
  }
  CHECK(all.differing <= all.elems / 200);
}

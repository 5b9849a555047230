// Operators that are read as several others (ops/expand.h): the replacements, and equal results.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lenslet/runner.h"
#include "models/load_onnx.h"
#include "oracle/oracle.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

constexpr const char* microsoft = "com.microsoft";
using Fill = std::function<void(pbf_writer&)>;
using Names = std::vector<std::string>;

/// An input of a node: a tensor in the file, or the network's input if `name` is "x".
struct Given {
  std::string name;
  int type;
  std::vector<std::int64_t> dims;
  std::vector<double> values;
};

Given real(std::string name, std::vector<std::int64_t> dims, std::vector<double> values) {
  return {std::move(name), f32, std::move(dims), std::move(values)};
}
Given byte(std::string name, std::vector<std::int64_t> dims, std::vector<double> values) {
  return {std::move(name), u8, std::move(dims), std::move(values)};
}
Given left_out() { return {"", 0, {}, {}}; }

std::string initializer(const Given& given) {
  const auto as = [&]<typename T>(T) {
    return raw_tensor<T>(given.name, given.type, given.dims, std::vector<T>(given.values.begin(), given.values.end()));
  };
  if (given.type == f32) return as(0.0F);
  if (given.type == i32) return as(std::int32_t{0});
  if (given.type == i8) return as(std::int8_t{0});
  return as(std::uint8_t{0});
}

/// One node; its inputs "x" and "z" are the network's.
ModelText model_of(std::string_view op, const std::string& domain, const std::vector<Given>& inputs, int y_type,
                   std::size_t y_rank, const Fill& attributes = {}, std::int64_t opset = 13) {
  ModelText model;
  model.opsets = {{"", opset}};
  if (!domain.empty()) model.opsets.emplace_back(domain, 1);
  Names names;
  for (const Given& given : inputs) {
    names.push_back(given.name);
    if (given.name == "x" || given.name == "z")
      model.inputs.push_back(port(given.name, given.type, given.dims));
    else if (!given.name.empty())
      model.initializers.push_back(initializer(given));
  }
  model.nodes = {node(op, names, {"y"}, "the_node", [&](pbf_writer& writer) {
    if (!domain.empty()) writer.add_string(7, domain);
    if (attributes) attributes(writer);
  })};
  model.outputs = {port("y", y_type, std::vector<std::int64_t>(y_rank, -1))};
  return model;
}

Tensor tensor_of(const Given& given) {
  oracle::Array array{.shape = Shape(given.dims), .values = given.values};
  array.dtype = given.type == f32   ? DType::f32
                : given.type == i32 ? DType::i32
                : given.type == i8  ? DType::i8
                                    : DType::u8;
  return oracle::to_tensor(array);
}

std::vector<double> run(const ModelText& text, const std::vector<Given>& inputs) {
  const std::string data = text.bytes();
  const Model model = Model::load_bytes(bytes_of(data));
  PlanOptions options;
  options.threads = 1;
  Runner runner(model, options);
  std::vector<Tensor> given;
  for (const Given& input : inputs)
    if (input.name == "x" || input.name == "z") given.push_back(tensor_of(input));
  return oracle::from_tensor(runner.run(given)[0]).values;
}

/// The operators that replace the file's nodes.
Names read_as(const ModelText& text) {
  const std::string data = text.bytes();
  Names types;
  for (const Node& one : load_onnx(bytes_of(data), nullptr, {}, "test").nodes) types.emplace_back(one.type());
  return types;
}

Fill number(std::string_view name, double value) {
  return [=](pbf_writer& writer) {
    attribute(writer, name, 1, [&](pbf_writer& a) { a.add_float(2, static_cast<float>(value)); });
  };
}
Fill integer(std::string_view name, std::int64_t value) {
  return [=](pbf_writer& writer) { attribute(writer, name, 2, [&](pbf_writer& a) { a.add_int64(3, value); }); };
}
Fill words(std::string_view name, std::string_view value) {
  return [=](pbf_writer& writer) {
    attribute(writer, name, 3, [&](pbf_writer& a) { a.add_string(4, value.data(), value.size()); });
  };
}

double quantized(double value, double scale, double zero) {
  return std::clamp(std::nearbyint(value / scale) + zero, 0.0, 255.0);
}

std::vector<double> ramp(int count, double first, double step) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(first + step * i);
  return values;
}

const Given x = byte("x", {2, 3}, {0, 40, 100, 128, 200, 255});

}  // namespace

// Scales are powers of two, so that products are exact.
TEST_CASE("expand/linear_elementwise") {
  const Given other = byte("b", {3}, {7, 130, 250});
  const std::vector<Given> inputs{x,
                                  real("xs", {}, {0.25}),
                                  byte("xz", {}, {100}),
                                  other,
                                  real("bs", {}, {0.5}),
                                  byte("bz", {}, {128}),
                                  real("ys", {}, {1}),
                                  byte("yz", {}, {64})};
  const auto a = [&](std::size_t i) { return 0.25 * (x.values[i] - 100); };
  const auto b = [&](std::size_t i) { return 0.5 * (other.values[i % 3] - 128); };
  for (const bool adds : {true, false}) {
    const ModelText model = model_of(adds ? "QLinearAdd" : "QLinearMul", microsoft, inputs, u8, 2);
    CHECK(read_as(model) == Names{"DequantizeLinear", "DequantizeLinear", adds ? "Add" : "Mul", "QuantizeLinear"});
    const std::vector<double> y = run(model, inputs);
    REQUIRE(y.size() == 6);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] == quantized(adds ? a(i) + b(i) : a(i) * b(i), 1, 64));
  }
  const std::vector<Given> one{x, real("xs", {}, {0.25}), byte("xz", {}, {100}), real("ys", {}, {0.125}),
                               byte("yz", {}, {10})};
  const std::vector<double> leaky = run(model_of("QLinearLeakyRelu", microsoft, one, u8, 2, number("alpha", 0.5)), one);
  const std::vector<double> sigmoid = run(model_of("QLinearSigmoid", microsoft, one, u8, 2), one);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(leaky[i] == quantized(a(i) < 0 ? a(i) / 2 : a(i), 0.125, 10));
    CHECK(sigmoid[i] == quantized(1 / (1 + std::exp(-a(i))), 0.125, 10));
  }
}

// Before opset 13 Softmax flattens all axes from its own on.
TEST_CASE("expand/linear_softmax") {
  const Given cube = byte("x", {1, 2, 2}, {100, 100, 108, 108});
  const std::vector<Given> inputs{cube, real("xs", {}, {0.125}), byte("xz", {}, {100}), real("ys", {}, {1.0 / 256}),
                                  byte("yz", {}, {0})};
  const auto of_opset = [&](std::int64_t opset) {
    return run(model_of("QLinearSoftmax", microsoft, inputs, u8, 3,
                        [&](pbf_writer& writer) {
                          integer("opset", opset)(writer);
                          integer("axis", 1)(writer);
                        }),
               inputs);
  };
  const double small = 1 / (1 + std::exp(1.0)), large = 1 - small;
  const auto all = [](double a, double b) {
    return std::vector<double>{quantized(a, 1.0 / 256, 0), quantized(a, 1.0 / 256, 0), quantized(b, 1.0 / 256, 0),
                               quantized(b, 1.0 / 256, 0)};
  };
  CHECK(of_opset(13) == all(small, large));
  CHECK(of_opset(11) == all(small / 2, large / 2));
}

TEST_CASE("expand/linear_pools_and_concat") {
  const Given image = byte("x", {1, 2, 2, 2}, {0, 4, 8, 12, 100, 104, 108, 116});
  const std::vector<Given> inputs{image, real("xs", {}, {0.5}), byte("xz", {}, {4}), real("ys", {}, {0.25}),
                                  byte("yz", {}, {1})};
  const std::vector<double> mean{quantized(0.5 * (6 - 4), 0.25, 1), quantized(0.5 * (107 - 4), 0.25, 1)};
  CHECK(run(model_of("QLinearGlobalAveragePool", microsoft, inputs, u8, 4), inputs) == mean);
  const auto window = [](pbf_writer& writer) {
    attribute(writer, "kernel_shape", 7, [](pbf_writer& a) {
      a.add_int64(8, 2);
      a.add_int64(8, 2);
    });
  };
  CHECK(run(model_of("QLinearAveragePool", microsoft, inputs, u8, 4, window), inputs) == mean);
  // The same pixels with their channels last.
  std::vector<Given> last = inputs;
  last[0].values = {0, 100, 4, 104, 8, 108, 12, 116};
  for (const std::vector<std::int64_t>& dims :
       std::vector<std::vector<std::int64_t>>{{1, 2, 2, 2}, {1, 4, 2}, {1, 1, 2, 2, 2}}) {
    last[0].dims = dims;
    const std::size_t rank = dims.size();
    CHECK(run(model_of("QLinearGlobalAveragePool", microsoft, last, u8, rank, integer("channels_last", 1)), last) ==
          mean);
  }
  last[0].dims = {4, 2};  // one pixel an image
  std::vector<double> same;
  for (const double value : last[0].values) same.push_back(quantized(0.5 * (value - 4), 0.25, 1));
  CHECK(run(model_of("QLinearGlobalAveragePool", microsoft, last, u8, 2, integer("channels_last", 1)), last) == same);
  last[0].dims = {1, 2, 2, 2};
  CHECK(run(model_of("QLinearAveragePool", microsoft, last, u8, 4,
                     [&](pbf_writer& writer) {
                       integer("channels_last", 1)(writer);
                       window(writer);
                     }),
            last) == mean);
  CHECK(run(model_of("NhwcMaxPool", microsoft, {last[0]}, u8, 4, window), {last[0]}) == std::vector<double>{12, 116});

  const std::vector<Given> joined{real("ys", {}, {0.25}), byte("yz", {}, {1}),   x,
                                  real("xs", {}, {0.5}),  byte("xz", {}, {100}), byte("b", {2, 1}, {9, 30}),
                                  real("bs", {}, {0.25}), byte("bz", {}, {8})};
  const std::vector<double> y = run(model_of("QLinearConcat", microsoft, joined, u8, 2, integer("axis", 1)), joined);
  CHECK(y == std::vector<double>{0, 0, 1, 2, 57, 201, 255, 23});
}

TEST_CASE("expand/linear_gemm") {
  const Given b = Given{"b", i8, {2, 3}, {1, -2, 3, 4, 5, -6}};  // transposed
  std::vector<Given> inputs{x,
                            real("xs", {}, {0.25}),
                            byte("xz", {}, {100}),
                            b,
                            real("bs", {2}, {0.5, 0.125}),
                            Given{"bz", i8, {2}, {0, 1}},
                            Given{"c", i32, {2}, {10, -20}},
                            real("ys", {}, {0.5}),
                            byte("yz", {}, {100})};
  std::vector<double> sums;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 2; ++j) {
      double sum = inputs[6].values[j];
      for (std::size_t l = 0; l < 3; ++l)
        sum += (x.values[i * 3 + l] - 100) * (b.values[j * 3 + l] - inputs[5].values[j]);
      sums.push_back(2 * 0.25 * inputs[4].values[j] * sum);
    }
  const auto attributes = [](pbf_writer& writer) {
    integer("transB", 1)(writer);
    number("alpha", 2)(writer);
  };
  const std::vector<double> y = run(model_of("QGemm", microsoft, inputs, u8, 2, attributes), inputs);
  REQUIRE(y.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(y[i] == quantized(sums[i], 0.5, 100));
  inputs.resize(7);
  CHECK(run(model_of("QGemm", microsoft, inputs, f32, 2, attributes), inputs) == sums);
}

TEST_CASE("expand/fused_conv") {
  const std::vector<Given> inputs{real("x", {1, 1, 2, 2}, {1, -2, 3, -4}), real("w", {1, 1, 1, 1}, {2}), left_out(),
                                  real("z", {1, 1, 2, 2}, {1, 1, -9, 9})};
  const ModelText model = model_of("FusedConv", microsoft, inputs, f32, 4, words("activation", "Relu"));
  CHECK(read_as(model) == Names{"Conv", "Add", "Relu"});
  CHECK(run(model, inputs) == std::vector<double>{3, 0, 0, 1});
  const ModelText unknown = model_of("FusedConv", microsoft, inputs, f32, 4, words("activation", "Swirl"));
  CHECK_ERROR(Model::load_bytes(bytes_of(unknown.bytes())), unsupported, "Swirl");
}

TEST_CASE("expand/gelus") {
  const std::vector<Given> one{real("x", {2, 3}, {-3, -1, -0.25, 0, 0.5, 2})};
  std::vector<Given> two = one;
  two.push_back(real("b", {3}, {0.5, -0.5, 1}));
  const auto exact = [](double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2.0))); };
  const auto fast = [](double v) {
    return v / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
  };
  const auto check = [](const char* op, const std::vector<Given>& inputs, const std::function<double(double)>& gelu,
                        const Fill& attributes = {}) {
    const std::vector<double> y = run(model_of(op, microsoft, inputs, f32, 2, attributes), inputs);
    REQUIRE(y.size() == 6);
    for (std::size_t i = 0; i < 6; ++i) {
      const double v = inputs[0].values[i] + (inputs.size() > 1 ? inputs[1].values[i % 3] : 0);
      CHECK(std::abs(y[i] - gelu(v)) < 1e-6);
    }
  };
  check("Gelu", one, exact);
  check("BiasGelu", two, exact);
  check("FastGelu", one, fast);
  check("FastGelu", two, fast);
  check("QuickGelu", one, [](double v) { return v / (1 + std::exp(-1.702 * v)); });
  const std::vector<Given> product{real("x", {1, 2}, {1, 2}), real("w", {2, 2}, {1, 0, -1, 0.5}),
                                   real("b", {2}, {0.5, 1})};
  const std::vector<double> y = run(model_of("GemmFastGelu", microsoft, product, f32, 2), product);
  CHECK(y[0] == doctest::Approx(fast(-0.5)));
  CHECK(y[1] == doctest::Approx(fast(2)));
  check(
      "QuickGelu", one, [](double v) { return v / (1 + std::exp(-v)); }, number("alpha", 1));
}

TEST_CASE("expand/dynamic_quantize") {
  const std::vector<Given> inputs{real("x", {4}, {-2, 0, 1, 6})};
  // In addition to y, which alone is requested.
  const ModelText model = model_of("DynamicQuantizeLinear", "", inputs, u8, 1);
  const double scale = static_cast<double>(8.0F / 255.0F);
  CHECK(run(model, inputs) == std::vector<double>{0, 64, 64 + std::nearbyint(1 / scale), 255});
}

TEST_CASE("expand/linear_conv_of_channels_last") {
  // Two 1x1 filters, of which the second takes the difference of the channels.
  const std::vector<Given> inputs{byte("x", {1, 2, 2, 2}, {0, 100, 4, 104, 8, 108, 12, 116}),
                                  real("xs", {}, {0.5}),
                                  byte("xz", {}, {4}),
                                  Given{"w", i8, {2, 2, 1, 1}, {2, 0, -1, 1}},
                                  real("ws", {2}, {0.25, 0.5}),
                                  Given{"wz", i8, {2}, {0, 0}},
                                  real("ys", {}, {0.5}),
                                  byte("yz", {}, {10}),
                                  Given{"b", i32, {2}, {4, -8}}};
  std::vector<double> expected;
  for (std::size_t i = 0; i < 4; ++i) {
    const double first = inputs[0].values[2 * i] - 4, second = inputs[0].values[2 * i + 1] - 4;
    expected.push_back(quantized(0.125 * (2 * first + 4), 0.5, 10));
    expected.push_back(quantized(0.25 * (second - first - 8), 0.5, 10));
  }
  const ModelText model = model_of("QLinearConv", microsoft, inputs, u8, 4, integer("channels_last", 1));
  CHECK(read_as(model) == Names{"Transpose", "QLinearConv", "Transpose"});
  CHECK(run(model, inputs) == expected);
  CHECK(read_as(model_of("QLinearConv", microsoft, inputs, u8, 4)) == Names{"QLinearConv"});
}

TEST_CASE("expand/fused_gemm") {
  const std::vector<Given> inputs{real("x", {2, 2}, {1, -2, 3, 4}), real("w", {2, 2}, {1, 2, -3, 1}),
                                  real("c", {2}, {2, -40})};
  const std::vector<double> sums{2 * 7 + 2, 2 * 0 - 40, -2 * 9 + 2, 2 * 10 - 40};
  const auto activated = [&](const char* activation, const char* name, double value) {
    return run(model_of("FusedGemm", microsoft, inputs, f32, 2,
                        [&](pbf_writer& writer) {
                          number("alpha", 2)(writer);
                          words("activation", activation)(writer);
                          if (name != nullptr) number(name, value)(writer);
                        }),
               inputs);
  };
  const std::vector<double> relu = activated("Relu", nullptr, 0),
                            leaky = activated("LeakyRelu", "activation_alpha", 0.25);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(relu[i] == std::max(0.0, sums[i]));
    CHECK(leaky[i] == (sums[i] < 0 ? sums[i] / 4 : sums[i]));
  }
  const ModelText unknown = model_of("FusedGemm", microsoft, inputs, f32, 2, words("activation", "Swirl"));
  CHECK_ERROR(Model::load_bytes(bytes_of(unknown.bytes())), unsupported, "Swirl");
  CHECK(read_as(model_of("TransposeMatMul", microsoft, {inputs[0], inputs[1]}, f32, 2)) == Names{"FusedMatMul"});
}

TEST_CASE("expand/skip_normalization") {
  const std::vector<Given> inputs{real("x", {1, 4}, {1, 0, 2, 3}), real("s", {4}, {0, 1, 1, 2}),
                                  real("g", {4}, {1, 2, 1, 2}), real("b", {4}, {0, 0, 1, 1}),
                                  real("c", {4}, {0, 1, 0, 1})};
  // (1, 2, 3, 6) has mean 3; an epsilon of 0.5 makes its deviation 2.
  CHECK(run(model_of("SkipLayerNormalization", microsoft, inputs, f32, 2, number("epsilon", 0.5)), inputs) ==
        std::vector<double>{-1, -1, 1, 4});
  // (1, 7, 5, 5) has the root mean square 5.
  const std::vector<Given> rms{real("x", {1, 4}, {1, 6, 5, 5}), real("s", {1, 4}, {0, 1, 0, 0}),
                               real("g", {4}, {5, 10, 1, -1})};
  CHECK(run(model_of("SkipSimplifiedLayerNormalization", microsoft, rms, f32, 2, number("epsilon", 0)), rms) ==
        std::vector<double>{1, 14, 1, -1});
  const std::vector<Given> plain{real("x", {1, 4}, {1, 7, 5, 5}), rms[2]};
  CHECK(run(model_of("SimplifiedLayerNormalization", "", plain, f32, 2, number("epsilon", 0)), plain) ==
        std::vector<double>{1, 14, 1, -1});
}

TEST_CASE("expand/products_to_float") {
  const std::vector<Given> inputs{byte("x", {1, 2}, {10, 200}), Given{"w", i8, {2, 2}, {1, -2, 3, 4}},
                                  real("xs", {}, {0.5}),        real("ws", {2}, {0.25, 2}),
                                  byte("xz", {}, {100}),        Given{"wz", i8, {2}, {1, 0}},
                                  real("b", {2}, {1, -1})};
  CHECK(run(model_of("MatMulIntegerToFloat", microsoft, inputs, f32, 2), inputs) ==
        std::vector<double>{0.125 * (-90 * 0 + 100 * 2) + 1, 1.0 * (-90 * -2 + 100 * 4) - 1});
  // From -2 to 6: 64 is 0, at 8/255 each.
  const std::vector<Given> reals{real("x", {1, 2}, {-2, 6}), Given{"w", i8, {2, 1}, {3, 1}}, real("ws", {}, {0.5})};
  const double scale = static_cast<double>(8.0F / 255.0F);
  const std::vector<double> y = run(model_of("DynamicQuantizeMatMul", microsoft, reals, f32, 2), reals);
  CHECK(y[0] == doctest::Approx(0.5 * scale * (3 * (0 - 64) + (255 - 64))));
}

// Nodes of opsets before 7, and operators that ONNX had temporarily.
TEST_CASE("expand/batch_norm_in_training_mode") {
  // Channels of mean 2 and 5, variance 1 and 4.
  const auto given = [](std::vector<std::int64_t> dims, std::vector<double> values) {
    return std::vector<Given>{real("x", std::move(dims), std::move(values)), real("scale", {2}, {10, 1}),
                              real("bias", {2}, {0.5, 0}), real("mean", {2}, {0, 0}), real("var", {2}, {9, 9})};
  };
  const auto model = [](const std::vector<Given>& inputs, std::int64_t training) {
    return model_of(
        "BatchNormalization", "", inputs, f32, inputs[0].dims.size(),
        [&](pbf_writer& writer) { integer("training_mode", training)(writer), number("epsilon", 0)(writer); }, 15);
  };
  const std::vector<Given> lines = given({2, 2, 2}, {1, 3, 3, 7, 3, 1, 7, 3});
  CHECK(run(model(lines, 1), lines) == std::vector<double>{-9.5, 10.5, -1, 1, 10.5, -9.5, 1, -1});
  const std::vector<Given> points = given({4, 2}, {1, 3, 3, 7, 3, 7, 1, 3});
  CHECK(run(model(points, 1), points) == std::vector<double>{-9.5, -1, 10.5, 1, 10.5, 1, -9.5, -1});
  CHECK(read_as(model(lines, 0)) == Names{"BatchNormalization"});
}

TEST_CASE("expand/old_opsets") {
  const Given image = real("x", {2, 3, 1, 2}, ramp(12, -4, 1.25));
  const auto ints = [](std::string_view name, std::vector<std::int64_t> values) {
    return [=](pbf_writer& writer) {
      attribute(writer, name, 7, [&](pbf_writer& a) {
        for (const std::int64_t value : values) a.add_int64(8, value);
      });
    };
  };
  const auto several = [](std::vector<Fill> fills) {
    return [=](pbf_writer& writer) {
      for (const Fill& fill : fills) fill(writer);
    };
  };
  const auto channel = [](std::size_t i) { return i / 2 % 3; };

  // An operand aligned at an axis: at the channels, or at images and channels.
  const std::vector<Given> by_channel{image, real("b", {3}, {1, -2, 4})},
      by_image{image, real("b", {2, 3}, ramp(6, -2, 1.5))};
  const Fill from_1 = several({integer("broadcast", 1), integer("axis", 1), ints("consumed_inputs", {0, 0})});
  const Fill from_0 = several({integer("broadcast", 1), integer("axis", 0)});
  const std::vector<double> sum = run(model_of("Add", "", by_channel, f32, 4, from_1, 1), by_channel);
  const std::vector<double> product = run(model_of("Mul", "", by_image, f32, 4, from_0, 6), by_image);
  const std::vector<double> prelu =
      run(model_of("PRelu", "", by_channel, f32, 4, ints("consumed_inputs", {0, 0}), 1), by_channel);
  for (std::size_t i = 0; i < 12; ++i) {
    const double v = image.values[i], b = by_channel[1].values[channel(i)];
    CHECK(sum[i] == v + b);
    CHECK(product[i] == v * by_image[1].values[i / 2]);
    CHECK(prelu[i] == (v < 0 ? b * v : v));
  }
  const std::vector<Given> at_end{image, real("b", {2}, {3, 5})};
  const std::vector<double> difference = run(model_of("Sub", "", at_end, f32, 4, integer("broadcast", 1), 6), at_end);
  for (std::size_t i = 0; i < 12; ++i) CHECK(difference[i] == image.values[i] - at_end[1].values[i % 2]);

  // Statistics by channel, by element of an image, and by channel although the file says by element.
  const auto normalised = [&](std::vector<std::int64_t> dims, std::int64_t spatial, std::int64_t opset) {
    const auto count = static_cast<int>(Shape(dims).elems());
    std::vector<double> variance = ramp(count, 1, 2);
    for (double& v : variance) v = v * v - 0.5;
    const std::vector<Given> inputs{image, real("s", dims, ramp(count, 1, 0.5)), real("b", dims, ramp(count, -1, 1)),
                                    real("m", dims, ramp(count, 0, 0.25)), real("v", dims, variance)};
    std::vector<Fill> fills{number("epsilon", 0.5), integer("spatial", spatial)};
    if (opset < 7) fills.push_back(integer("is_test", 1));
    const std::vector<double> y =
        run(model_of("BatchNormalization", "", inputs, f32, 4, several(fills), opset), inputs);
    for (std::size_t i = 0; i < 12; ++i) {
      const std::size_t p = count == 3 ? channel(i) : i % 6;
      const double want =
          (image.values[i] - inputs[3].values[p]) / (1 + 2.0 * static_cast<double>(p)) * inputs[1].values[p] +
          inputs[2].values[p];
      CHECK(std::abs(y[i] - want) < 2e-6);
    }
  };
  for (const std::int64_t opset : {1, 6, 8}) {
    normalised({3}, 1, opset);
    normalised({3}, 0, opset);
    normalised({3, 1, 2}, 0, opset);
  }
  const std::vector<Given> five{image, real("s", {3}, {1, 1, 1}), real("b", {3}, {1, 1, 1}), real("m", {3}, {1, 1, 1}),
                                real("v", {3}, {1, 1, 1})};
  CHECK_ERROR(Model::load_bytes(bytes_of(model_of("BatchNormalization", "", five, f32, 4, {}, 6).bytes())), unsupported,
              "is_test");

  const std::vector<Given> one{image};
  const auto of_one = [&](const char* op, std::size_t rank, const Fill& attributes, std::int64_t opset) {
    return run(model_of(op, "", one, f32, rank, attributes, opset), one);
  };
  CHECK(of_one("Dropout", 4, integer("is_test", 1), 6) == image.values);
  CHECK(of_one("Reshape", 2, ints("shape", {2, -1}), 1) == image.values);
  CHECK(of_one("Relu", 4, ints("consumed_inputs", {0}), 1)[0] == 0);
  CHECK(of_one("Concat", 4, {}, 1) == image.values);
  CHECK(of_one("Pad", 4, several({ints("paddings", {0, 0, 0, 1, 0, 0, 0, 0}), number("value", 9)}), 1)[0] == 9);
  CHECK(of_one("Upsample", 4, several({number("height_scale", 1), number("width_scale", 2)}), 1)[3] == image.values[1]);
  CHECK(run(model_of("Cast", "", one, i32, 4, words("to", "INT32"), 1), one)[1] == -2);
  CHECK_ERROR(Model::load_bytes(bytes_of(model_of("Cast", "", one, i32, 4, words("to", "INT33"), 1).bytes())),
              invalid_model, "INT33");
  const std::vector<double> selu = of_one("Selu", 4, {}, 1),
                            affine = of_one("Affine", 4, several({number("alpha", 3), number("beta", 2)}), 1);
  CHECK(selu[0] == doctest::Approx(1.0507 * 1.6732 * (std::exp(-4.0) - 1)).epsilon(1e-6));
  CHECK(affine[2] == 3 * image.values[2] + 2);
  const std::vector<double> centred = of_one("MeanVarianceNormalization", 4, integer("normalize_variance", 0), 1);
  CHECK(centred[0] == -4.375);  // channel 0 is (-4, -2.75) and (3.5, 4.75)
  const Fill bias = [](pbf_writer& writer) {
    attribute(writer, "bias", 6, [](pbf_writer& a) {
      for (const float value : {1.0F, 2.0F, 3.0F}) a.add_float(7, value);
    });
  };
  const std::vector<double> scaled = of_one("ImageScaler", 4, several({number("scale", 2), bias}), 1);
  CHECK(scaled[2] == 2 * image.values[2] + 2);
  CHECK(of_one("ScaledTanh", 4, several({number("alpha", 2), number("beta", 3)}), 1)[0] ==
        doctest::Approx(2 * std::tanh(-12.0)));

  const std::vector<Given> repeated{image, real("n", {}, {2}), real("a", {}, {3})};
  const std::vector<double> tiled = run(model_of("Tile", "", repeated, f32, 4, {}, 1), repeated);
  REQUIRE(tiled.size() == 24);
  CHECK(tiled[2] == image.values[0]);
  CHECK(tiled[5] == image.values[3]);
  const std::vector<Given> product_of{real("x", {2, 2}, {1, 2, 3, 4}), real("w", {2, 2}, {1, 0, 0, 1}),
                                      real("c", {2}, {10, 20})};
  CHECK(run(model_of("Gemm", "", product_of, f32, 2, integer("broadcast", 1), 6), product_of) ==
        std::vector<double>{11, 22, 13, 24});
}

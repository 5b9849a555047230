// Operators that are read as several others (ops/expand.h): which, and that these compute what the one means.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lenslet/runner.h"
#include "models/load_onnx.h"
#include "oracle/oracle.h"
#include "tests/models/expect_error.h"
#include "tests/models/onnx_writer.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

constexpr const char* microsoft = "com.microsoft";
using Fill = std::function<void(pbf_writer&)>;
using Names = std::vector<std::string>;

/// An input of a node: a tensor in the file, or the network's when `name` is "x".
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

/// One node whose inputs "x" and "z" are the network's.
ModelText model_of(std::string_view op, const std::string& domain, const std::vector<Given>& inputs, int y_type,
                   std::size_t y_rank, const Fill& attributes = {}) {
  ModelText model;
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

/// What the nodes of the file are read as.
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

// Scales are powers of two, so that every product is exact.
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

// Before opset 13 Softmax takes all axes from its own on as one.
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
  const ModelText last = model_of("QLinearGlobalAveragePool", microsoft, inputs, u8, 4, integer("channels_last", 1));
  CHECK_ERROR(Model::load_bytes(bytes_of(last.bytes())), unsupported, "channels_last");

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
  check(
      "QuickGelu", one, [](double v) { return v / (1 + std::exp(-v)); }, number("alpha", 1));
}

TEST_CASE("expand/dynamic_quantize") {
  const std::vector<Given> inputs{real("x", {4}, {-2, 0, 1, 6})};
  // Beside y, which alone is asked for.
  const ModelText model = model_of("DynamicQuantizeLinear", "", inputs, u8, 1);
  const double scale = static_cast<double>(8.0F / 255.0F);
  CHECK(run(model, inputs) == std::vector<double>{0, 64, 64 + std::nearbyint(1 / scale), 255});
}

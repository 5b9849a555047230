#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "ops/elementwise/unary_kinds.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

struct Function {
  std::string op;
  std::int64_t opset;
  AttributeList attributes;
  double tolerance;
  double low, high;  // of the inputs
};

// What the rows of unary_kinds.h do not contain; other operators get the cases of by_default(). The tolerance is by
// element: CUDA documents up to 4 units in the last place (Tan, Acosh), each 1.2e-7.
const Function functions[] = {
    {"Relu", 13, {}, 0, -4, 4},
    {"LeakyRelu", 13, {}, 1e-7, -4, 4},
    {"LeakyRelu", 6, {{"alpha", 0.1}}, 1e-7, -4, 4},
    {"Sigmoid", 13, {}, 3e-7, -20, 20},
    {"SiLU", 1, {}, 3e-7, -20, 20},
    {"AffineRelu", 1, {}, 0, -4, 4},
    {"AffineRelu", 1, {{"alpha", 0.9}, {"beta", -0.4}}, 3e-7, -4, 4},
    {"StarRelu", 1, {}, 3e-7, -4, 4},
    {"StarRelu", 1, {{"alpha", 0.9}, {"beta", -0.4}}, 3e-7, -4, 4},
    {"Tanh", 13, {}, 3e-7, -12, 12},
    {"HardSigmoid", 6, {}, 3e-7, -6, 6},
    {"HardSigmoid", 6, {{"alpha", 0.5}, {"beta", 0.25}}, 3e-7, -6, 6},
    {"HardSwish", 14, {}, 3e-7, -6, 6},
    {"Elu", 6, {{"alpha", 1.5}}, 3e-7, -9, 5},
    {"Selu", 6, {}, 3e-7, -9, 5},
    {"Selu", 6, {{"alpha", 2.0}, {"gamma", 3.0}}, 3e-7, -9, 5},
    {"Softplus", 1, {}, 3e-7, -30, 30},
    {"Mish", 18, {}, 4e-7, -20, 30},
    {"Abs", 13, {}, 0, -4, 4},
    {"Neg", 13, {}, 0, -4, 4},
    {"Exp", 13, {}, 3e-7, -3, 3},
    {"Log", 13, {}, 2e-7, 0.01, 9},
    {"Sqrt", 13, {}, 0, 0, 9},
    {"Reciprocal", 13, {}, 0, 0.1, 9},
    {"Floor", 13, {}, 0, -5, 5},
    {"Ceil", 13, {}, 0, -5, 5},
    {"Erf", 13, {}, 2.4e-7, -4, 4},
    {"Swish", 24, {}, 3e-7, -20, 20},
    {"Swish", 24, {{"alpha", 1.702}}, 1.2e-6, -10, 10},  // alpha x is rounded before e^x
    {"Celu", 12, {}, 3e-7, -9, 5},
    {"Celu", 28, {{"alpha", 2.5}}, 3e-7, -9, 5},
    {"Celu", 12, {{"alpha", -1.5}}, 3e-7, 0.1, 4},
    {"Softsign", 1, {}, 2e-7, -9, 9},
    {"ThresholdedRelu", 22, {}, 0, -4, 4},
    {"ThresholdedRelu", 10, {{"alpha", -0.5}}, 0, -4, 4},
    {"Shrink", 9, {}, 0, -4, 4},
    {"Shrink", 9, {{"lambd", 1.5}, {"bias", 1.25}}, 1e-7, -4, 4},
    {"Sign", 13, {}, 0, -4, 4},
    {"Round", 22, {}, 0, -9, 9},
    {"Sin", 22, {}, 3e-7, -30, 30},
    {"Cos", 22, {}, 3e-7, -30, 30},
    {"Tan", 22, {}, 4.8e-7, -1.4, 1.4},
    {"Asin", 22, {}, 3e-7, -1, 1},
    {"Acos", 22, {}, 3e-7, -1, 0.9},
    {"Atan", 22, {}, 3e-7, -30, 30},
    {"Sinh", 22, {}, 3.6e-7, -9, 9},
    {"Cosh", 22, {}, 3.6e-7, -9, 9},
    {"Asinh", 22, {}, 3.6e-7, -30, 30},
    {"Acosh", 22, {}, 4.8e-7, 1.01, 30},
    {"Atanh", 22, {}, 3.6e-7, -0.99, 0.99},
};

// The tolerance of the kernels' rows, with each value of a string attribute. A lone element is judged by its own
// magnitude, so it must not be one where a function cancels.
std::vector<Function> by_default(const UnaryRow& row, bool lone) {
  std::vector<Function> cases{{std::string(row.name), row.min_opset, {}, 2e-6, lone ? 0.5 : -6, 6}};
  for (const UnaryParameter& parameter : row.parameters)
    for (const std::string_view word : parameter.words)
      if (!word.empty()) {
        cases.push_back(cases.front());
        cases.back().attributes = {{std::string(parameter.name), std::string(word)}};
      }
  return cases;
}

std::vector<Function> cases_of(const UnaryRow& row, bool lone) {
  std::vector<Function> cases;
  std::copy_if(std::begin(functions), std::end(functions), std::back_inserter(cases),
               [&](const Function& f) { return f.op == row.name; });
  return cases.empty() ? by_default(row, lone) : cases;
}

// Lengths around the vector widths, two of them above one thread's grain, different layouts.
const Shape shapes[] = {{}, {1}, {7}, {3, 5}, {2, 3, 5, 7}, {1, 16, 13, 9}, {17, 1025}, {0, 4}};

float scalar(const char* op, std::int64_t opset, float x) {
  return run_op({.op = op, .opset = opset, .inputs = {Tensor::of<float>({1}, {x})}})[0].values<float>()[0];
}

}  // namespace

TEST_CASE("unary/functions_awkward_shapes") {
  unsigned seed = 1;
  for (const UnaryRow& row : unary_table)
    for (const Shape& shape : shapes)
      for (const Function& f : cases_of(row, shape.elems() < 100)) {
        if (!row.types.contains(DType::f32)) continue;
        check_op({.op = f.op,
                  .domain = std::string(row.domain),
                  .opset = f.opset,
                  .attributes = f.attributes,
                  .inputs = {random_of(DType::f32, shape, seed++, f.low, f.high)},
                  .tolerance = f.tolerance});
      }
  check_op({.op = "SiLU", .domain = "lenslet", .inputs = {random_f32({2, 5, 7, 3}, 77, 0, 4)}, .tolerance = 3e-7});
  for (const Shape& shape : shapes)
    check_op({.op = "Clip",
              .opset = 6,
              .attributes = {{"min", -0.5}, {"max", 0.75}},
              .inputs = {random_of(DType::f32, shape, seed++, -4, 4)}});
}

TEST_CASE("unary/every_kind") {
  const Tensor nan = Tensor::of<float>({1}, {std::numeric_limits<float>::quiet_NaN()});
  for (const UnaryRow& row : unary_table)
    for (const Function& f : cases_of(row, true)) {
      CAPTURE(f.op);
      const OpCase c{
          .op = f.op, .domain = std::string(row.domain), .opset = f.opset, .attributes = f.attributes, .inputs = {nan}};
      if (row.types.contains(DType::f32)) CHECK(std::isnan(run_op(c)[0].values<float>()[0]));
      const auto op = make_op(c);
      const auto again = make_normalised_op(f.op, op->attributes(), 1);
      CHECK(again->type() == row.name);
      CHECK(to_string(again->attributes()) == to_string(op->attributes()));
      for (const auto& [name, value] : f.attributes)
        CHECK(to_string(op->attributes()).find(to_string(AttributeList{{name, value}})) != std::string::npos);
    }
}

TEST_CASE("unary/special_values") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(scalar("Sigmoid", 13, 1000) == 1.0f);
  CHECK(scalar("Sigmoid", 13, -1000) == 0.0f);
  CHECK(scalar("Sigmoid", 13, -80) == doctest::Approx(1.8048513878454153e-35).epsilon(1e-6));
  CHECK(scalar("Tanh", 13, 1e30f) == 1.0f);
  CHECK(scalar("Tanh", 13, -inf) == -1.0f);
  CHECK(scalar("Exp", 13, 89) == inf);
  CHECK(scalar("Exp", 13, inf) == inf);
  CHECK(scalar("Exp", 13, -inf) == 0.0f);
  CHECK(scalar("Exp", 13, 88) == doctest::Approx(1.6516362549940018e38).epsilon(1e-6));
  CHECK(scalar("Log", 13, 0) == -inf);
  CHECK(std::isnan(scalar("Log", 13, -1)));
  CHECK(scalar("Softplus", 1, 200) == 200.0f);
  CHECK(scalar("Softplus", 1, -50) == doctest::Approx(1.9287498479639178e-22).epsilon(1e-5));
  CHECK(scalar("Mish", 18, 1e6f) == 1e6f);
  CHECK(scalar("Mish", 18, -1000) == 0.0f);
  CHECK(scalar("Gelu", 20, 1000) == 1000.0f);
  CHECK(std::abs(scalar("Gelu", 20, -1000)) < 1e-35F);
  CHECK(scalar("Elu", 6, -1000) == -1.0f);
  CHECK(scalar("Elu", 6, -1e-6f) == doctest::Approx(-9.999995e-7).epsilon(1e-6));
  CHECK(scalar("Elu", 6, 1e30f) == 1e30f);
  CHECK(scalar("Reciprocal", 13, 0) == inf);
  CHECK(std::isnan(scalar("Clip", 10, nan)));
  CHECK(scalar("Sign", 13, 0) == 0.0f);
  CHECK(scalar("Sign", 13, -0.0f) == 0.0f);
  CHECK(scalar("Sign", 13, -inf) == -1.0f);
  CHECK(scalar("Round", 11, 2.5f) == 2.0f);
  CHECK(scalar("Round", 11, -1.5f) == -2.0f);
  CHECK(scalar("Round", 11, 0x1p23f + 1) == 0x1p23f + 1);
  CHECK(scalar("Celu", 12, -1000) == -1.0f);
  CHECK(scalar("Celu", 12, inf) == inf);
  CHECK(scalar("ThresholdedRelu", 10, -inf) == 0.0f);
  CHECK(scalar("ThresholdedRelu", 10, 1) == 0.0f);
  CHECK(scalar("ThresholdedRelu", 10, inf) == inf);
  CHECK(scalar("Shrink", 9, 0.5f) == 0.0f);
  CHECK(scalar("Shrink", 9, -inf) == -inf);
  CHECK(scalar("Swish", 24, 1000) == 1000.0f);
  CHECK(scalar("Cosh", 9, 100) == inf);
  CHECK(scalar("Atan", 7, inf) == doctest::Approx(1.5707963267948966));
  CHECK(std::isnan(scalar("Acosh", 9, 0.5f)));
}

TEST_CASE("unary/integers_and_doubles") {
  for (const UnaryRow& row : unary_table)
    for (const DType dtype :
         {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64, DType::f64}) {
      if (!row.types.contains(dtype)) continue;
      check_op({.op = std::string(row.name),
                .opset = std::max(row.min_opset, 14),
                .inputs = {random_of(dtype, {3, 7}, 5, is_unsigned(dtype) ? 0 : -99, 99)}});
    }
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  CHECK(run_op({.op = "Neg", .inputs = {int64s({least})}})[0].values<std::int64_t>()[0] == least);
}

TEST_CASE("unary/types_and_attributes_that_are_unknown_are_refused") {
  CHECK_ERROR(infer_op({.op = "Sigmoid", .inputs = {Tensor(DType::i32, {2})}}), unsupported,
              "input 0 has element type int32 (supported: float32, float16, bfloat16)");
  CHECK_ERROR(infer_op({.op = "Neg", .inputs = {Tensor(DType::u8, {2})}}), unsupported, "uint8");
  CHECK_ERROR(infer_op({.op = "Clip", .inputs = {Tensor(DType::boolean, {2})}}), unsupported, "bool");
  CHECK_THROWS_WITH_AS(make_op({.op = "Relu", .attributes = {{"surprise", std::int64_t{1}}}, .inputs = {Tensor()}}),
                       doctest::Contains("surprise"), Error);
  CHECK_THROWS_WITH_AS(
      make_op({.op = "Gelu", .opset = 20, .attributes = {{"approximate", std::string("fast")}}, .inputs = {Tensor()}}),
      doctest::Contains("attribute 'approximate' is 'fast'"), Error);
}

TEST_CASE("clip/bounds_as_inputs") {
  for (const DType dtype : {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32,
                            DType::u32, DType::i64, DType::u64}) {
    const Tensor x = random_of(dtype, {2, 3, 5, 7}, 3, 0, 99);
    const Tensor low = random_of(dtype, {}, 4, 20, 30), high = random_of(dtype, {}, 5, 60, 80);
    for (const std::vector<Tensor>& inputs :
         {std::vector<Tensor>{x, low, high}, {x, Tensor(), high}, {x, low}, {x}, {x, high, low}})
      check_op({.op = "Clip", .inputs = inputs, .maybe_constant = {1, 2}});
  }
  check_op({.op = "Clip", .inputs = {random_f32({5}, 1), Tensor::of<float>({1}, {0.5f})}});
  CHECK_THROWS_WITH_AS(infer_op({.op = "Clip", .inputs = {Tensor(DType::f32, {5}), Tensor(DType::f32, {2})}}),
                       doctest::Contains("input min has shape [2], expected a scalar"), Error);
  CHECK_THROWS_WITH_AS(
      infer_op({.op = "Clip", .inputs = {Tensor(DType::f32, {5}), Tensor(DType::f32, {1}), Tensor(DType::f32, {2})}}),
      doctest::Contains("input max has shape [2], expected a scalar"), Error);
  CHECK_THROWS_WITH_AS(infer_op({.op = "Clip", .inputs = {Tensor(DType::f32, {5}), Tensor(DType::i64, Shape{})}}),
                       doctest::Contains("int64"), Error);
  CHECK_ERROR(make_op({.op = "Clip", .opset = 10, .inputs = {Tensor(), Tensor()}}), invalid_model,
              "opset 10 has the bounds as attributes, not inputs");
}

TEST_CASE("unary/as_activation") {
  const Tensor low = Tensor::of<float>(Shape{}, {0.0f}), high = Tensor::of<float>(Shape{}, {6.0f});
  const TensorType f32{DType::f32, {2}}, bound{DType::f32, {}};
  const std::vector<InputInfo> one{{true, f32, nullptr}};
  const auto clip = make_op({.op = "Clip", .inputs = {Tensor(), Tensor(), Tensor()}});
  using Kind = Activation::Kind;
  CHECK(clip->as_activation(std::vector<InputInfo>{one[0], {true, bound, &low}, {true, bound, &high}}) ==
        Activation{Kind::clip, 0, 6});
  CHECK(clip->as_activation(std::vector<InputInfo>{one[0], {true, bound, &low}}) == Activation{Kind::relu, 0, 0});
  const Tensor largest = Tensor::of<float>(Shape{}, {std::numeric_limits<float>::max()});
  CHECK(clip->as_activation(std::vector<InputInfo>{one[0], {true, bound, &low}, {true, bound, &largest}}) ==
        Activation{Kind::relu, 0, 0});
  CHECK_FALSE(clip->as_activation(std::vector<InputInfo>{one[0], {true, bound, nullptr}}).has_value());
  const auto of = [&](const char* op, std::int64_t opset) {
    return make_op({.op = op, .opset = opset, .inputs = {Tensor()}})->as_activation(one);
  };
  CHECK(of("Relu", 13) == Activation{Kind::relu, 0, 0});
  CHECK(of("LeakyRelu", 13) == Activation{Kind::leaky_relu, 0.01f, 0});
  CHECK(of("HardSwish", 14) == Activation{Kind::hard_swish, 1.0f / 6.0f, 0.5f});
  CHECK(of("HardSigmoid", 13) == Activation{Kind::hard_sigmoid, 0.2f, 0.5f});
  CHECK(of("Sigmoid", 13) == Activation{Kind::sigmoid, 0, 0});
  CHECK(of("Gelu", 20) == Activation{Kind::gelu, 0, 0});
  const AttributeList tanh{{"approximate", std::string("tanh")}};
  CHECK(make_op({.op = "Gelu", .opset = 20, .attributes = tanh, .inputs = {Tensor()}})->as_activation(one) ==
        Activation{Kind::gelu_tanh, 0, 0});
  CHECK_FALSE(of("Exp", 13).has_value());
  const auto relu = make_op({.op = "Relu", .opset = 14, .inputs = {Tensor()}});
  CHECK_FALSE(relu->as_activation(std::vector<InputInfo>{{true, {DType::i32, {2}}, nullptr}}).has_value());
}

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

// Probabilities near 1 and thousands near 0, each relative to its own magnitude.
void check_rows(OpCase c) {
  c.tolerance = 5e-7;
  check_op(c);
}

}  // namespace

TEST_CASE("softmax/every_axis_of_both_definitions") {
  unsigned seed = 1;
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (const std::int64_t opset : {7, 11, 13})
      for (const Shape& shape :
           {Shape{2, 5, 3, 7}, Shape{3, 1000}, Shape{1, 21, 9, 70}, Shape{9}, Shape{2, 3, 4, 5, 6}})
        for (std::int64_t axis = -shape.rank(); axis < shape.rank(); ++axis)
          check_rows(
              {.op = op, .opset = opset, .attributes = {{"axis", axis}}, .inputs = {random_f32(shape, seed++, 0, 3)}});
}

// Short rows are computed side by side: strips of rows and a tail.
TEST_CASE("softmax/rows_of_every_length") {
  unsigned seed = 200;
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (const std::int64_t length : {1, 2, 3, 5, 8, 17, 31, 32, 33, 49})
      for (const std::int64_t rows : {1, 63, 64, 65, 600})
        check_rows({.op = op, .inputs = {random_f32({rows, length}, seed++, 0, 3)}});
}

TEST_CASE("softmax/defaults_by_opset") {
  const Tensor x = random_f32({2, 5, 3, 7}, 1);
  check_op({.op = "Softmax", .opset = 11, .inputs = {x}, .tolerance = 2e-6});
  check_op({.op = "Softmax", .opset = 13, .inputs = {x}, .tolerance = 2e-6});
  const auto of = [&](std::int64_t opset, AttributeList attributes) {
    return run_op({.op = "Softmax", .opset = opset, .attributes = std::move(attributes), .inputs = {x}})[0];
  };
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.values<float>().begin(), a.values<float>().end(), b.values<float>().begin());
  };
  CHECK(same(of(11, {}), of(11, {{"axis", std::int64_t{1}}})));
  CHECK(same(of(13, {}), of(13, {{"axis", std::int64_t{3}}})));
  CHECK_FALSE(same(of(11, {}), of(13, {{"axis", std::int64_t{1}}})));
}

// Masked scores: subnormal probabilities would slow down the product that reads them.
TEST_CASE("softmax/no_subnormal_results") {
  if (op_runner().device() == DeviceKind::cuda) return;  // at full speed there
  for (const Shape& shape : {Shape{3, 49}, Shape{9, 31}, Shape{3, 40, 2}}) {
    Tensor x = random_f32(shape, 7, 0, 3);
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.elems()); i += 3)
      x.values<float>()[i] -= 70 + static_cast<float>(i % 50);
    const OpCase c{.op = "Softmax", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x}};
    check_rows(c);
    const Tensor y = run_op(c)[0];
    for (const float value : y.values<float>()) CHECK((value == 0 || std::isnormal(value)));
  }
}

TEST_CASE("softmax/large_values") {
  for (const char* op : {"Softmax", "LogSoftmax"})
    for (const std::int64_t axis : {0, 1})
      check_op({.op = op,
                .attributes = {{"axis", axis}},
                .inputs = {Tensor::of<float>({2, 4}, {0, 1, 2, 3, 10000, 10001, 10002, -3e38f})},
                .tolerance = 2e-6});
}

TEST_CASE("hardmax") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  unsigned seed = 1;
  for (const std::int64_t opset : {7, 11, 13})
    for (const Shape& shape : {Shape{2, 5, 3, 7}, Shape{3, 1000}, Shape{1, 21, 9, 70}, Shape{9}, Shape{3, 1, 4}})
      for (std::int64_t axis = -shape.rank(); axis < shape.rank(); ++axis) {
        // Few different values, so that ties are common.
        Tensor x = random_of(DType::f32, shape, seed++, -3, 3);
        for (float& value : x.values<float>()) value = std::floor(value);
        check_op({.op = "Hardmax", .opset = opset, .attributes = {{"axis", axis}}, .inputs = {x}});
      }
  check_op({.op = "Hardmax", .opset = 11, .inputs = {random_f32({2, 3, 4}, 1)}});
  check_op({.op = "Hardmax", .inputs = {random_f32({0, 3}, 1)}});
  check_op({.op = "Hardmax", .inputs = {Tensor::of<float>({3, 3}, {1, nan, nan, -inf, -inf, -inf, -inf, inf, 3})}});
}

TEST_CASE("softmax/axes_outside_and_integers_are_refused") {
  CHECK_THROWS_WITH_AS(
      infer_op({.op = "Softmax", .attributes = {{"axis", std::int64_t{2}}}, .inputs = {Tensor(DType::f32, {2, 3})}}),
      doctest::Contains("axis 2"), Error);
  CHECK_ERROR(infer_op({.op = "Softmax", .inputs = {Tensor(DType::i32, {2, 3})}}), unsupported,
              "input 0 has element type int32");
}

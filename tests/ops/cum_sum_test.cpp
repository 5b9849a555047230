// CumSum and CumProd.

#include <doctest/doctest.h>

#include <limits>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

TEST_CASE("cum_sum/sums_along_any_axis_are_the_oracles_and_wrap") {
  for (const std::int64_t exclusive : {0, 1})
    for (const std::int64_t reverse : {0, 1}) {
      const AttributeList attributes{{"exclusive", exclusive}, {"reverse", reverse}};
      const auto check = [&](const Tensor& x, std::int64_t axis, double tolerance = 0) {
        check_op({.op = "CumSum",
                  .attributes = attributes,
                  .inputs = {x, int64_scalar(axis)},
                  .constant = {1},
                  .tolerance = tolerance});
      };
      for (std::int64_t axis = -4; axis < 4; ++axis) check(random_f32({3, 7, 5, 70}, 1), axis, 1e-6);
      for (const std::int64_t length : {1, 63, 64, 255, 257, 5000}) check(random_f32({3, length}, 2), 1, 1e-6);
      for (const std::int64_t length : {64, 255, 256, 600}) check(random_f32({2, length, 33}, 2), 1, 1e-6);
      for (const DType dtype : {DType::i32, DType::i64})
        for (const std::int64_t axis : {0, 1}) check(random_of(dtype, {70, 300}, 3, -1000, 1000), axis);
      for (const DType dtype : {DType::u32, DType::u64}) check(random_of(dtype, {70, 300}, 3, 0, 1000), 1);
      check(random_of(DType::f64, {70, 300}, 3, -1, 1), 1, 1e-14);
      check(random_f32({3, 0, 2}, 1), 1);
      check(random_f32({3, 0, 2}, 1), 0);
      // An infinity and a NaN affect only later elements.
      Tensor x = random_f32({2, 200}, 4);
      x.values<float>()[100] = std::numeric_limits<float>::infinity();
      x.values<float>()[200 + 70] = std::numeric_limits<float>::quiet_NaN();
      check(x, 1, 1e-6);
      check(x, 0, 1e-6);
    }
  check_op({.op = "CumSum",
            .inputs = {random_f32({9}, 1), Tensor::of<std::int32_t>(Shape{1}, {0})},
            .constant = {1},
            .tolerance = 1e-6});
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto wrapped = run_op({.op = "CumSum", .inputs = {int64s({most, 1}), int64_scalar(0)}, .constant = {1}});
  CHECK(wrapped[0].values<std::int64_t>()[1] == std::numeric_limits<std::int64_t>::min());
  CHECK(infer_error({.op = "CumSum", .inputs = {random_f32({9}, 1), int64_scalar(0)}}) == ErrorKind::unsupported);
  CHECK(infer_error({.op = "CumSum", .inputs = {random_f32({9}, 1), int64_scalar(1)}, .constant = {1}}) ==
        ErrorKind::invalid_model);
  CHECK(infer_error({.op = "CumSum", .inputs = {random_f32({9}, 1), int64s({0, 0})}, .constant = {1}}) ==
        ErrorKind::invalid_model);
}

TEST_CASE("cum_prod/products_along_any_axis_are_the_oracles_and_wrap") {
  for (const std::int64_t exclusive : {0, 1})
    for (const std::int64_t reverse : {0, 1}) {
      const auto check = [&](const Tensor& x, std::int64_t axis, double tolerance = 0) {
        check_op({.op = "CumProd",
                  .opset = 26,
                  .attributes = {{"exclusive", exclusive}, {"reverse", reverse}},
                  .inputs = {x, int64_scalar(axis)},
                  .constant = {1},
                  .tolerance = tolerance});
      };
      const auto near_one = [](DType dtype, const Shape& shape) { return random_of(dtype, shape, 2, 0.95, 1.05); };
      for (std::int64_t axis = -4; axis < 4; ++axis) check(near_one(DType::f32, {3, 7, 5, 70}), axis, 1e-6);
      for (const std::int64_t length : {1, 63, 64, 255, 257, 5000}) check(near_one(DType::f32, {3, length}), 1, 1e-6);
      for (const DType dtype : {DType::i32, DType::i64}) check(random_of(dtype, {70, 12}, 3, -3, 4), 1);
      for (const DType dtype : {DType::u32, DType::u64}) check(random_of(dtype, {12, 70}, 3, 1, 4), 0);
      check(near_one(DType::f64, {70, 300}), 1, 1e-12);
      check(random_f32({3, 0, 2}, 1), 1);
    }
  // Wraps around.
  const auto wrapped = run_op({.op = "CumProd",
                               .opset = 26,
                               .inputs = {int64s({std::int64_t{1} << 62, 2, 3}), int64_scalar(0)},
                               .constant = {1}});
  CHECK(wrapped[0].values<std::int64_t>()[2] == std::numeric_limits<std::int64_t>::min());
  CHECK(infer_error({.op = "CumProd", .opset = 25, .inputs = {int64s({1}), int64_scalar(0)}, .constant = {1}}) ==
        ErrorKind::unsupported);
  CHECK(infer_error({.op = "CumProd", .opset = 26, .inputs = {int64s({1}), int64_scalar(0)}}) ==
        ErrorKind::unsupported);
}

}  // namespace lenslet::test

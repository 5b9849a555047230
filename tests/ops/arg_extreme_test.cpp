// ArgMax and ArgMin.

#include <doctest/doctest.h>

#include <cmath>

#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

TEST_CASE("arg_extreme/ties_go_to_the_first_or_the_last") {
  // Few different values, so that ties are common.
  const Tensor x = random_of(DType::i32, {2, 5, 3, 37}, 6, 0, 4);
  Tensor f(DType::f32, x.shape());
  for (std::size_t i = 0; i < f.values<float>().size(); ++i)
    f.values<float>()[i] = static_cast<float>(x.values<std::int32_t>()[i]);
  for (const char* op : {"ArgMax", "ArgMin"})
    for (std::int64_t axis = -4; axis < 4; ++axis)
      for (const std::int64_t last : {0, 1})
        for (const std::int64_t keep_dims : {0, 1})
          for (const Tensor& input : {f, x})
            check_op({.op = op,
                      .attributes = {{"axis", axis}, {"keepdims", keep_dims}, {"select_last_index", last}},
                      .inputs = {input}});
  for (const DType dtype : {DType::u8, DType::i8, DType::i64})
    check_op({.op = "ArgMax", .opset = 11, .inputs = {random_of(dtype, {7, 3}, 7, 0, 9)}});
  check_op({.op = "ArgMax", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {random_f32({3, 1000}, 7)}});
}

TEST_CASE("arg_extreme/of_no_element_is_refused") {
  CHECK_ERROR(infer_op({.op = "ArgMax", .inputs = {random_f32({0, 3}, 7)}}), invalid_model,
              "no element to choose from in [0,3]");
  CHECK_ERROR(infer_op({.op = "ArgMax", .inputs = {random_f32({}, 7)}}), invalid_model,
              "axis 0 is outside a tensor of rank 0");
}

TEST_CASE("arg_extreme/the_first_nan_is_the_extreme") {
  Tensor x = random_f32({2, 300}, 5);
  for (const std::size_t at : {100U, 200U, 598U}) x.values<float>()[at] = std::nanf("");
  for (const char* op : {"ArgMax", "ArgMin"}) {
    const OpCase c{.op = op, .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x}};
    check_op_on_every_instruction_set(c);
    CHECK(run_op(c)[0].values<std::int64_t>()[0] == 100);
  }
}

}  // namespace lenslet::test

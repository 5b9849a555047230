// Unique: compared with the oracle, by hand where the oracle does not decide, and refusals.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

TEST_CASE("unique/values_places_and_counts_are_the_oracle's") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i64, DType::boolean})
    for (const std::int64_t sorted : {1, 0})
      for (const Shape& shape : {Shape{1}, Shape{40}, Shape{3, 0, 2}, Shape{6, 2, 2}, Shape{2, 9, 1}}) {
        const Tensor x = random_of(dtype, shape, 1, 0, 2);
        for (const std::size_t outputs : {1U, 2U, 4U})
          check_op(
              {.op = "Unique", .attributes = {{"sorted", sorted}}, .inputs = {x}, .outputs = outputs, .constant = {0}});
        for (int axis = -1; axis < shape.rank(); ++axis)
          check_op({.op = "Unique",
                    .attributes = {{"axis", std::int64_t{axis}}, {"sorted", sorted}},
                    .inputs = {x},
                    .outputs = 4,
                    .constant = {0}});
      }
}

TEST_CASE("unique/nan_is_one_value_behind_all_numbers") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>(Shape{8}, {2, nan, -1, 0.0F, nan, -0.0F, 2, -1});
  const auto y = run_op({.op = "Unique", .inputs = {x}, .outputs = 4, .constant = {0}});
  CHECK(y[0].shape() == Shape{4});
  CHECK(std::isnan(y[0].values<float>()[3]));
  CHECK(y[1].values<std::int64_t>()[1] == 3);
  CHECK(y[3].values<std::int64_t>()[3] == 2);
}

TEST_CASE("unique/integers_beyond_2_to_the_53_stay_apart") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Tensor wide = Tensor::of<std::int64_t>(Shape{3}, {most, most - 1, most});
  CHECK(run_op({.op = "Unique", .inputs = {wide}, .constant = {0}})[0].values<std::int64_t>()[0] == most - 1);
}

TEST_CASE("unique/computed_input_and_an_axis_outside_are_refused") {
  const Tensor x = random_f32({8}, 1);
  CHECK(infer_error({.op = "Unique", .inputs = {x}}) == ErrorKind::unsupported);
  CHECK(infer_error({.op = "Unique", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x}, .constant = {0}}) ==
        ErrorKind::invalid_model);
}

}  // namespace lenslet::test

// TopK.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

namespace {

void check_top_k(const Tensor& x, std::int64_t axis, std::int64_t k) {
  for (const std::int64_t largest : {0, 1})
    check_op({.op = "TopK",
              .opset = 11,
              .attributes = {{"axis", axis}, {"largest", largest}},
              .inputs = {x, int64s({k})},
              .outputs = 2,
              .constant = {1}});
}

}  // namespace

TEST_CASE("top_k/axes_and_ties") {
  // Few different values, so that ties are common, also at the last position taken.
  for (const DType dtype : {DType::f32, DType::i32}) {
    const Tensor x = random_of(dtype, {2, 9, 3, 37}, 6, -3, 4);
    for (std::int64_t axis = -4; axis < 4; ++axis)
      for (const std::int64_t k :
           {std::int64_t{0}, std::int64_t{1}, x.shape()[static_cast<int>(axis < 0 ? axis + 4 : axis)]})
        check_top_k(x, axis, k);
  }
  for (const DType dtype : {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16, DType::i32,
                            DType::u32, DType::i64, DType::u64})
    for (const std::int64_t k : {1, 5, 100, 257})
      check_top_k(random_of(dtype, {3, 257}, 7, is_unsigned(dtype) ? 0 : -100, 100), 1, k);
}

TEST_CASE("top_k/long_lines") {
  // On the device: sorted whole up to 2048 elements, else selected; k beyond 2048 in global memory.
  for (const std::int64_t length : {2047, 2048, 2049, 3001})
    for (const std::int64_t k : {1, 300, 2040}) check_top_k(random_f32({2, length}, 8), 1, k);
  check_top_k(random_f32({3, 3001}, 8), 1, 2500);
  check_top_k(random_f32({2500, 2}, 8), 0, 100);
  Tensor few = random_of(DType::i64, {2, 3000}, 9, -2, 3);
  for (const std::int64_t k : {500, 1000, 2200}) check_top_k(few, 1, k);
  check_top_k(random_of(DType::f64, {3000}, 9, -1, 1), 0, 77);
  check_top_k(random_of(DType::i8, {5000}, 9, -128, 128), 0, 77);
}

TEST_CASE("top_k/few_of_a_line") {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t length : {127, 128, 131, 1024})
    for (const std::int64_t k : {1, 5, 16, 17}) {
      Tensor x = random_f32({4, length}, 10);
      float* const values = x.values<float>().data();
      std::fill(values, values + length, 2.0F);  // the first k of equal elements
      for (std::int64_t i = 0; i < length; i += 7) values[2 * length + i] = i % 2 == 0 ? nan : -nan;
      values[3 * length + length / 2] = inf;
      values[3 * length + length - 1] = -inf;
      check_top_k(x, 1, k);
      check_top_k(random_of(DType::u64, {3, length}, 11, 0, 2), 1, k);  // nothing follows the last
      check_top_k(random_of(DType::i8, {3, length}, 12, -128, 128), 1, k);
    }
}

TEST_CASE("top_k/nan_zeros_and_extremes") {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>(Shape{10}, {0.0F, -0.0F, nan, inf, -inf, -nan, 0.0F, 1e-45F, 3e38F, -1e-45F});
  for (const std::int64_t k : {1, 2, 3, 6, 10}) check_top_k(x, 0, k);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto top = run_op({.op = "TopK",
                           .opset = 11,
                           .inputs = {int64s({most - 1, -most - 1, most, -most}), int64s({4})},
                           .outputs = 2,
                           .constant = {1}});
  const std::int64_t expected[] = {2, 0, 3, 1};
  CHECK(std::equal(std::begin(expected), std::end(expected), top[1].values<std::int64_t>().begin()));
  Tensor beyond(DType::u64, {3});
  beyond.values<std::uint64_t>()[0] = 5;
  beyond.values<std::uint64_t>()[1] = ~std::uint64_t{0};
  beyond.values<std::uint64_t>()[2] = std::uint64_t{1} << 63;
  const auto of_unsigned =
      run_op({.op = "TopK", .opset = 24, .inputs = {beyond, int64s({3})}, .outputs = 2, .constant = {1}});
  const std::int64_t order[] = {1, 2, 0};
  CHECK(std::equal(std::begin(order), std::end(order), of_unsigned[1].values<std::int64_t>().begin()));
}

TEST_CASE("top_k/forms_and_refusals") {
  const Tensor x = random_f32({3, 8}, 1);
  check_op({.op = "TopK", .opset = 7, .attributes = {{"k", std::int64_t{3}}}, .inputs = {x}, .outputs = 2});
  check_op({.op = "TopK", .opset = 10, .inputs = {x, int64s({3})}, .outputs = 2, .constant = {1}});
  check_op({.op = "TopK",
            .opset = 24,
            .attributes = {{"sorted", std::int64_t{0}}},
            .inputs = {x, int64s({3})},
            .outputs = 1,
            .constant = {1}});
  const auto error = [&](const Tensor& k, bool known = true) {
    return infer_error({.op = "TopK",
                        .opset = 11,
                        .inputs = {x, k},
                        .outputs = 2,
                        .constant = known ? std::vector<int>{1} : std::vector<int>{}});
  };
  CHECK(error(int64s({9})) == ErrorKind::invalid_model);
  CHECK(error(int64s({-1})) == ErrorKind::invalid_model);
  CHECK(error(int64s({1, 1})) == ErrorKind::invalid_model);
  CHECK(error(int64s({1}), false) == ErrorKind::unsupported);
  CHECK_ERROR(make_op({.op = "TopK", .opset = 9, .inputs = {x}, .outputs = 2}), invalid_model,
              "attribute 'k' is missing");
  CHECK(infer_error({.op = "TopK", .opset = 11, .inputs = {x}, .outputs = 2}) == ErrorKind::invalid_model);
}

}  // namespace lenslet::test

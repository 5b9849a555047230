#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "ops/elementwise/quantize.h"
#include "ops/elementwise/quantize_kernels.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

AttributeList axis(std::int64_t value) { return {{"axis", value}}; }

}  // namespace

TEST_CASE("quantize/by_tensor_and_axis") {
  const OpCase quantize_linear{.op = "QuantizeLinear", .maybe_constant = {1, 2}};
  unsigned seed = 1;
  for (const DType dtype : {DType::i8, DType::u8, DType::i16, DType::u16}) {
    const auto zeros = [&](const Shape& shape) {
      return random_of(dtype, shape, seed++, is_unsigned(dtype) ? 0 : -20, 20);
    };
    // Beyond both ends of 8 bits.
    const Tensor x = random_of(DType::f32, {2, 3, 5, 7}, seed++, -300, 300);
    check_op(with(quantize_linear, {x, Tensor::of<float>(Shape{}, {0.7F}), zeros(Shape{})}));
    check_op({.op = "QuantizeLinear", .inputs = {x, Tensor::of<float>(Shape{1}, {0.7F}), zeros({1})}});
    for (const std::int64_t a : {0, 1, 2, 3, -1, -3}) {
      const std::int64_t d = x.shape()[static_cast<int>(a < 0 ? a + 4 : a)];
      check_op(with(quantize_linear, {x, random_of(DType::f32, {d}, seed++, 0.5, 2), zeros({d})}, axis(a)));
      check_op({.op = "DequantizeLinear",
                .attributes = axis(a),
                .inputs = {random_of(dtype, x.shape(), seed++, is_unsigned(dtype) ? 0 : -100, 100),
                           random_of(DType::f32, {d}, seed++, 0.5, 2), zeros({d})},
                .maybe_constant = {1, 2},
                .tolerance = 3e-7});
    }
    check_op(
        {.op = "DequantizeLinear", .inputs = {zeros({7, 3}), Tensor::of<float>(Shape{}, {0.01F})}, .tolerance = 3e-7});
  }
  check_op({.op = "QuantizeLinear", .inputs = {random_f32({5}, 1, -300, 300), Tensor::of<float>(Shape{}, {1.0F})}});
  check_op({.op = "QuantizeLinear",
            .opset = 21,
            .attributes = {{"output_dtype", 5}},
            .inputs = {random_f32({5}, 1, -300, 300), Tensor::of<float>(Shape{}, {0.001F})}});
  check_op({.op = "DequantizeLinear",
            .opset = 10,
            .inputs = {random_of(DType::i32, {4, 5}, 2, -100000, 100000), Tensor::of<float>(Shape{}, {0.125F})},
            .tolerance = 3e-7});
}

TEST_CASE("quantize/blocks") {
  unsigned seed = 1;
  const Shape x{2, 6, 4, 5};
  for (const DType dtype : {DType::i8, DType::u16})
    for (const auto& [a, block] :
         {std::pair<std::int64_t, std::int64_t>{1, 2}, {1, 3}, {1, 6}, {-1, 5}, {0, 1}, {2, 2}, {-1, 1}}) {
      const int blocked = static_cast<int>(a < 0 ? a + 4 : a);
      const Shape by = x.with(blocked, x[blocked] / block);
      const AttributeList attributes{{"axis", a}, {"block_size", block}};
      const Tensor scale = random_of(DType::f32, by, seed++, 0.5, 2);
      const Tensor zero = random_of(dtype, by, seed++, is_unsigned(dtype) ? 0 : -20, 20);
      check_op({.op = "QuantizeLinear",
                .opset = 21,
                .attributes = attributes,
                .inputs = {random_of(DType::f32, x, seed++, -300, 300), scale, zero},
                .maybe_constant = {1, 2}});
      check_op({.op = "DequantizeLinear",
                .opset = 21,
                .attributes = attributes,
                .inputs = {random_of(dtype, x, seed++, is_unsigned(dtype) ? 0 : -100, 100), scale, zero},
                .maybe_constant = {1, 2},
                .tolerance = 3e-7});
      check_op({.op = "DequantizeLinear",
                .opset = 21,
                .attributes = attributes,
                .inputs = {random_of(dtype, x, seed++, is_unsigned(dtype) ? 0 : -100, 100), scale},
                .tolerance = 3e-7});
    }
}

TEST_CASE("quantize/ties_and_what_is_no_number") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::of<float>(Shape{8}, {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, inf, -inf, std::nanf("")});
  Tensor zero(DType::i8, Shape{});
  zero.values<std::int8_t>()[0] = 0;
  const Tensor y = run_op({.op = "QuantizeLinear", .inputs = {x, Tensor::of<float>(Shape{}, {1}), zero}})[0];
  const std::int8_t expected[] = {0, 2, 2, 0, -2, 127, -128, 0};
  for (std::size_t i = 0; i < std::size(expected); ++i) CHECK(y.values<std::int8_t>()[i] == expected[i]);
}

TEST_CASE("quantize/far_values") {
  // Whole vectors of each: numbers beyond 16 bits, and extreme zero points.
  for (const float value : {200.4F, 32767.6F, 32768.0F, 40000.0F, 65535.4F, 140000.0F, 3e9F, 1e30F})
    for (const float sign : {1.0F, -1.0F})
      for (const DType dtype : {DType::i8, DType::u8, DType::i16, DType::u16})
        dispatch(dtype, QuantizedTypes(), [&]<typename T>(std::type_identity<T>) {
          constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
          for (const T zero_point : {least, most}) {
            Tensor x(DType::f32, Shape{70}), zero(dtype, Shape{});
            std::ranges::fill(x.values<float>(), sign * value);
            zero.values<T>()[0] = zero_point;
            const Tensor y = run_op({.op = "QuantizeLinear", .inputs = {x, Tensor::of<float>(Shape{}, {1}), zero}})[0];
            const double exact = std::nearbyint(static_cast<double>(sign * value)) + zero_point;
            const auto expected = static_cast<T>(std::clamp<double>(exact, least, most));
            CHECK(std::ranges::all_of(y.values<T>(), [&](T element) { return element == expected; }));
          }
        });
}

TEST_CASE("quantize/quotients_next_to_ties") {
  // Scales that divide and scales with an exact reciprocal; x a few units around (i + 1/2) * scale.
  std::mt19937 random(1);
  std::uniform_real_distribution<float> mantissa(1, 2);
  std::vector<float> x(1 << 10);
  const auto count = static_cast<std::int64_t>(x.size());
  for (const int exponent : {-140, -110, -41, -40, -20, -7, 0, 3, 39, 40, 90, 120})
    for (int round = 0; round < 20; ++round) {
      const float scale = round == 0 ? -1.5F : round == 1 ? 0.0F : std::ldexp(mantissa(random), exponent);
      for (float& value : x) {
        value = (static_cast<float>(random() % 1024) - 511.5F) * scale;
        for (auto steps = random() % 4; steps > 0; --steps)
          value = std::nextafter(value, random() % 2 == 0 ? -INFINITY : INFINITY);
      }
      const auto check = [&]<typename T>(T zero_point) {
        std::vector<T> expected(x.size());
        std::ranges::transform(x, expected.begin(), [&](float v) { return Quantize<T>()(v, scale, zero_point); });
        for_each_target(HWY_TARGETS, [&] {
          std::vector<T> got(x.size());
          quantize_run(x.data(), scale, zero_point, count, got.data());
          CHECK(got == expected);
        });
      };
      check(std::int16_t{-3});
      check(std::uint8_t{128});
    }
}

TEST_CASE("quantize/scales_and_zero_points_of_other_shapes_and_types_are_refused") {
  const Tensor x = random_f32({2, 3}, 1), scale = Tensor::of<float>(Shape{}, {1});
  const auto refused = [&](const OpCase& c, const char* text) {
    CHECK_THROWS_WITH_AS(infer_op(c), doctest::Contains(text), Error);
  };
  refused({.op = "QuantizeLinear", .inputs = {x, random_f32({2}, 1)}}, "input scale has shape [2], expected [3]");
  refused({.op = "QuantizeLinear", .inputs = {x, scale, Tensor(DType::u8, {2})}}, "input zero_point");
  refused({.op = "QuantizeLinear", .inputs = {x, scale, Tensor(DType::i32, Shape{})}}, "int32");
  refused({.op = "DequantizeLinear", .inputs = {Tensor(DType::i8, {2}), scale, Tensor(DType::u8, Shape{})}}, "uint8");
  const auto blocks = [&](std::int64_t size, const Shape& scales, const char* text) {
    refused({.op = "QuantizeLinear",
             .opset = 21,
             .attributes = {{"block_size", size}},
             .inputs = {x, random_f32(scales, 1)}},
            text);
  };
  blocks(2, {2, 1}, "input scale has shape [2,1], expected [2,2]");
  blocks(3, {1}, "input scale");
  blocks(2, {2, 2}, "the last one is cut");
  blocks(-1, {2, 3}, "block_size");
}

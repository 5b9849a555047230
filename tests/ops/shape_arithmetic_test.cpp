// Shape, Size, Constant, ConstantOfShape, Range and Cast.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/small_types.h"
#include "ops/core/onnx_types.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

namespace {

constexpr DType all_types[] = {DType::f32,    DType::f64,        DType::f16,     DType::bf16,     DType::i8,
                               DType::u8,     DType::i16,        DType::u16,     DType::i32,      DType::u32,
                               DType::i64,    DType::u64,        DType::boolean, DType::f8e4m3fn, DType::f8e4m3fnuz,
                               DType::f8e5m2, DType::f8e5m2fnuz, DType::f8e8m0,  DType::f4e2m1,   DType::i4,
                               DType::u4,     DType::i2,         DType::u2};

const OpCase cast{.op = "Cast"};

}  // namespace

TEST_CASE("shape/ranges_of_axes") {
  const Tensor x = random_f32({2, 3, 4, 5}, 1);
  check_op({.op = "Shape", .opset = 13, .inputs = {x}});
  check_op({.op = "Shape", .inputs = {random_f32({}, 1)}});
  for (std::int64_t start = -6; start <= 6; ++start)
    for (std::int64_t end = -6; end <= 6; ++end)
      check_op({.op = "Shape", .opset = 15, .attributes = {{"start", start}, {"end", end}}, .inputs = {x}});
  check_op({.op = "Size", .inputs = {x}});
  check_op({.op = "Size", .inputs = {random_f32({}, 1)}});
}

TEST_CASE("constant/forms") {
  check_op({.op = "Constant", .attributes = {{"value", random_f32({2, 3}, 2)}}});
  const auto only = [](const std::string& name, AttributeValue value) {
    return run_op({.op = "Constant", .attributes = {{name, std::move(value)}}})[0];
  };
  CHECK(only("value_float", 1.5).values<float>()[0] == 1.5F);
  CHECK(only("value_float", 1.5).shape() == Shape{});
  CHECK(only("value_floats", std::vector<double>{1, 2}).shape() == Shape{2});
  CHECK(only("value_int", std::int64_t{-7}).values<std::int64_t>()[0] == -7);
  CHECK(only("value_ints", std::vector<std::int64_t>{4, 5, 6}).values<std::int64_t>()[2] == 6);
  for (const char* name : {"sparse_value", "value_string", "value_strings"})
    CHECK(refusal({.op = "Constant", .attributes = {{name, std::string("x")}}}) ==
          "attribute '" + std::string(name) + "': strings and sparse tensors are not supported");
  CHECK_FALSE(refusal({.op = "Constant"}).empty());
}

TEST_CASE("constant_of_shape") {
  const OpCase constant_of_shape{.op = "ConstantOfShape", .constant = {0}};
  check_op(with(constant_of_shape, {int64s({2, 3})}));
  check_op(with(constant_of_shape, {int64s({5})}, {{"value", Tensor::of<std::int64_t>(Shape{1}, {7})}}));
  check_op(with(constant_of_shape, {Tensor::of<std::int64_t>(Shape{0}, {})}));
  check_op(with(constant_of_shape, {int64s({0, 3})}));
  const std::int64_t huge = std::int64_t{1} << 40;
  CHECK_FALSE(refusal(with(constant_of_shape, {int64s({huge, huge})})).empty());
  CHECK_FALSE(refusal(with(constant_of_shape, {int64s({-1})})).empty());
  CHECK_FALSE(refusal({.op = "ConstantOfShape", .inputs = {int64s({3})}}).empty());
}

TEST_CASE("range") {
  const auto range = [](Tensor start, Tensor limit, Tensor delta, double tolerance = 0) {
    return OpCase{.op = "Range",
                  .inputs = {std::move(start), std::move(limit), std::move(delta)},
                  .constant = {0, 1, 2},
                  .tolerance = tolerance};
  };
  const auto real = [](float value) { return Tensor::of<float>(Shape{}, {value}); };
  check_op(range(int64_scalar(3), int64_scalar(20), int64_scalar(4)));
  check_op(range(int64_scalar(3), int64_scalar(-20), int64_scalar(-4)));
  check_op(range(int64_scalar(3), int64_scalar(3), int64_scalar(1)));
  check_op(range(int64_scalar(3), int64_scalar(9), int64_scalar(-1)));
  check_op(range(real(0.5F), real(7.1F), real(0.3F), 1e-7));
  OpCase staged = range(real(1), real(3), real(0.5F), 1e-7);
  staged.opset = 27;
  staged.attributes = {{"stash_type", 1}};
  check_op(staged);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_FALSE(refusal(range(int64_scalar(-most), int64_scalar(most), int64_scalar(1))).empty());
  CHECK_FALSE(refusal(range(int64_scalar(0), int64_scalar(5), int64_scalar(0))).empty());
  CHECK_FALSE(refusal(range(real(0), real(std::nanf("")), real(1))).empty());
  CHECK_FALSE(refusal(range(real(0), real(1), real(1e-30F))).empty());
  CHECK_FALSE(refusal(range(int64s({1, 2}), int64_scalar(5), int64_scalar(1))).empty());
}

TEST_CASE("cast/every_pair_of_types") {
  for (const DType from : all_types)
    for (const DType to : all_types) {
      const AttributeList attributes{{"to", dtype_to_onnx(to)}};
      const SmallType* const small = small_type(from);
      const double top = small != nullptr && small->integer_bits != 0 ? small->most + 1
                         : from == DType::boolean                     ? 2
                         : from == DType::i8                          ? 127
                         : from == DType::u8                          ? 255
                                                                      : 300;
      check_op({.op = "Cast",
                .attributes = attributes,
                .inputs = {random_of(from, {3, 5, 7, 2}, 9, is_unsigned(from) ? 0 : -top, top)}});
    }
}

// Where TMA needs it, pixels of 33 channels are padded to 40 in 16 bits, to 36 in 32.
TEST_CASE("cast/channels_that_fill_no_16_bytes") {
  for (const DType from : {DType::f16, DType::bf16, DType::f32, DType::i64, DType::u8})
    for (const DType to : all_types)
      check_op({.op = "Cast",
                .attributes = {{"to", dtype_to_onnx(to)}},
                .inputs = {random_of(from, {2, 33, 3, 5}, 11, is_unsigned(from) ? 0 : -100, 100)}});
}

TEST_CASE("cast/wide_values") {
  for (const DType from : {DType::f32, DType::f64, DType::i64, DType::i32})
    for (const DType to : all_types)
      for (const double scale : {1e-6, 1e3, 1e5, 1e9})
        check_op(with(cast, {random_of(from, {997}, 10, -scale, scale)}, {{"to", dtype_to_onnx(to)}}));
  for (const DType to : all_types)
    check_op(with(cast, {random_of(DType::f64, {997}, 10, -1e39, 1e39)}, {{"to", dtype_to_onnx(to)}}));
}

TEST_CASE("cast/what_is_true") {
  std::vector<float> values;
  for (int i = 0; i < 11; ++i)
    for (const float value : {0.0F, -0.0F, std::nanf(""), 1e-42F, -std::numeric_limits<float>::infinity()})
      values.push_back(value);
  const Tensor x = Tensor::of<float>(Shape{55}, std::span<const float>(values));
  const Tensor y = run_op({.op = "Cast", .attributes = {{"to", dtype_to_onnx(DType::boolean)}}, .inputs = {x}})[0];
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(y.values<bool>()[i] == !(values[i] == 0));
}

TEST_CASE("cast/like_another_tensor") {
  for (const DType from : {DType::f32, DType::f16, DType::i64, DType::boolean})
    for (const DType to : all_types)
      check_op({.op = "CastLike",
                .opset = 25,
                .attributes = {{"saturate", 0}, {"round_mode", "up"}},
                .inputs = {random_of(from, {2, 3, 4, 5}, 1, 0, from == DType::boolean ? 2 : 99), Tensor(to, {7})},
                .maybe_constant = {1}});
}

TEST_CASE("cast/special_values") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::of<double>(
      Shape{12}, {0.0, -0.0, inf, -inf, std::nan(""), 65504, 65519.999, 65520, 5.9e-8, 2.9e-8, 0.5, -0.9});
  for (const DType to : all_types)
    check_op({.op = "Cast",
              .opset = 24,
              .attributes = {{"to", dtype_to_onnx(to)}, {"saturate", 1}, {"round_mode", "down"}},
              .inputs = {x}});
  // One rounding, not two: via float this is 1 + 2^-11, a tie that would round down to even.
  const Tensor tie = Tensor::of<double>(Shape{1}, {1 + 0x1p-11 + 0x1p-40});
  check_op({.op = "Cast", .attributes = {{"to", 10}}, .inputs = {tie}});
}

TEST_CASE("cast/element_types_that_there_are_not_are_refused") {
  const Tensor x = random_f32({3}, 1);
  const auto to = [&x](std::int64_t type) { return refusal(with(cast, {x}, {{"to", type}})); };
  CHECK(to(8) == "element type string is not supported");
  CHECK(to(27) == "element type float6e2m3 is not supported");
  CHECK(to(28) == "element type float6e3m2 is not supported");
  CHECK(to(0) == "0 is not an ONNX element type");
  CHECK(to(99) == "99 is not an ONNX element type");
  CHECK(refusal(with(cast, {x})) == "attribute 'to' is missing");
}

}  // namespace lenslet::test

// Types that are only stored and converted: floats of 8 and 4 bits, integers of 4 and 2.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/small_types.h"
#include "ops/core/onnx_types.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr DType small_floats[] = {DType::f8e4m3fn,   DType::f8e4m3fnuz, DType::f8e5m2,
                                  DType::f8e5m2fnuz, DType::f8e8m0,     DType::f4e2m1};
constexpr DType every_small[] = {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f8e8m0,
                                 DType::f4e2m1,   DType::i4,         DType::u4,     DType::i2,         DType::u2};
// Targets of quantisation.
constexpr DType quantized[] = {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1,
                               DType::i4,       DType::u4,         DType::i2,     DType::u2};

/// All elements of a type.
Tensor every_element(DType dtype) {
  const int count = 1 << dtype_bits(dtype);
  Tensor x(dtype, Shape{count});
  for (int i = 0; i < count; ++i)
    static_cast<std::uint8_t*>(x.data())[i] =
        static_cast<std::uint8_t>(stored_as(dtype) == DType::i8 ? i - count / 2 : i);
  return x;
}

AttributeList cast_to(DType dtype, bool saturate = true, const char* mode = "up") {
  return {{"to", dtype_to_onnx(dtype)}, {"saturate", std::int64_t{saturate}}, {"round_mode", std::string(mode)}};
}

std::vector<int> bytes_of_cast(DType dtype, bool saturate, std::initializer_list<float> values,
                               const char* mode = "up") {
  const Tensor x = Tensor::of<float>(Shape{static_cast<std::int64_t>(values.size())}, values);
  const Tensor y = run_op({.op = "Cast", .opset = 24, .attributes = cast_to(dtype, saturate, mode), .inputs = {x}})[0];
  const auto* bytes = static_cast<const std::uint8_t*>(y.data());
  return {bytes, bytes + y.elems()};
}

using Bytes = std::vector<int>;

}  // namespace

TEST_CASE("small_types/every_element_goes_there_and_back") {
  for (const DType dtype : every_small) {
    const Tensor x = every_element(dtype);
    for (const DType to : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i64,
                           DType::boolean, DType::f8e5m2, DType::f4e2m1, DType::i4, DType::u2})
      check_op({.op = "Cast", .opset = 24, .attributes = cast_to(to), .inputs = {x}});
    for (const bool saturate : {true, false}) {
      const Tensor wide = run_op({.op = "Cast", .opset = 24, .attributes = cast_to(DType::f32), .inputs = {x}})[0];
      const Tensor back =
          run_op({.op = "Cast", .opset = 24, .attributes = cast_to(dtype, saturate), .inputs = {wide}})[0];
      int differing = 0;
      for (std::size_t i = 0; i < x.bytes(); ++i) {
        const float value = wide.values<float>()[i];
        if (std::isnan(value) || (std::isinf(value) && saturate)) continue;
        differing += static_cast<const std::uint8_t*>(x.data())[i] != static_cast<const std::uint8_t*>(back.data())[i];
      }
      CHECK_MESSAGE(differing == 0, std::string(to_string(dtype)));
    }
  }
}

// Midpoints of neighbours, values on both sides of them, and beyond the ends.
TEST_CASE("small_types/ties_and_values_beyond_the_ends_round_as_cast_says") {
  for (const DType dtype : small_floats) {
    const Tensor all = every_element(dtype).to_dtype(DType::f64);
    std::vector<double> values{0.0, -0.0, inf, -inf, std::nan(""), 1e-300, -1e-30, 1e30, -1e300, 0x1p-150, 0x1.8p127};
    for (const double value : all.values<double>()) {
      if (!std::isfinite(value)) continue;
      for (const double factor : {1.0, 1.03125, 1.0625, 1.125, 1.25, 1.5, 1.75})
        for (const double off : {0.0, 0x1p-40, -0x1p-40}) values.push_back(value * factor * (1 + off));
    }
    const Tensor x =
        Tensor::of<double>(Shape{static_cast<std::int64_t>(values.size())}, std::span<const double>(values));
    for (const bool saturate : {true, false})
      for (const char* mode : {"up", "down", "nearest"}) {
        if (dtype != DType::f8e8m0 && mode != std::string_view("up")) continue;
        for (const Tensor& input : {x, x.to_dtype(DType::f32)})
          check_op({.op = "Cast", .opset = 24, .attributes = cast_to(dtype, saturate, mode), .inputs = {input}});
      }
  }
}

// The tables of ONNX's Cast.
TEST_CASE("small_types/special_values") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto table = [&](DType dtype, bool saturate) {
    return bytes_of_cast(dtype, saturate, {0.0F, -0.0F, nan, -nan, infinity, -infinity, 1e6F, -1e6F});
  };
  CHECK(table(DType::f8e4m3fn, true) == Bytes{0, 0x80, 0x7F, 0xFF, 0x7E, 0xFE, 0x7E, 0xFE});
  CHECK(table(DType::f8e4m3fnuz, true) == Bytes{0, 0, 0x80, 0x80, 0x7F, 0xFF, 0x7F, 0xFF});
  CHECK(table(DType::f8e5m2, true) == Bytes{0, 0x80, 0x7E, 0xFE, 0x7B, 0xFB, 0x7B, 0xFB});
  CHECK(table(DType::f8e5m2fnuz, true) == Bytes{0, 0, 0x80, 0x80, 0x7F, 0xFF, 0x7F, 0xFF});
  CHECK(table(DType::f8e4m3fn, false) == Bytes{0, 0x80, 0x7F, 0xFF, 0x7F, 0xFF, 0x7F, 0xFF});
  CHECK(table(DType::f8e4m3fnuz, false) == Bytes{0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80});
  CHECK(table(DType::f8e5m2, false) == Bytes{0, 0x80, 0x7E, 0xFE, 0x7C, 0xFC, 0x7C, 0xFC});
  CHECK(table(DType::f8e5m2fnuz, false) == Bytes{0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80});
  CHECK(table(DType::f4e2m1, false) == Bytes{0, 0x8, 0x8, 0x8, 0x7, 0xF, 0x7, 0xF});
  // The last one that rounds down to the largest number, and the first that does not.
  CHECK(bytes_of_cast(DType::f8e4m3fn, false, {464, 464.001F}) == Bytes{0x7E, 0x7F});
  CHECK(bytes_of_cast(DType::f8e5m2, false, {61439, 61440}) == Bytes{0x7B, 0x7C});

  const auto scale = [&](bool saturate, const char* mode) {
    return bytes_of_cast(DType::f8e8m0, saturate,
                         {0, 1, 1.25F, 1.5F, 2, -2, 0x1p-127F, 0x1p-149F, 0x1.8p127F, infinity, nan}, mode);
  };
  CHECK(scale(true, "up") == Bytes{0, 127, 128, 128, 128, 128, 0, 0, 254, 254, 255});
  CHECK(scale(true, "down") == Bytes{0, 127, 127, 127, 128, 128, 0, 0, 254, 254, 255});
  CHECK(scale(true, "nearest") == Bytes{0, 127, 127, 128, 128, 128, 0, 0, 254, 254, 255});
  CHECK(scale(false, "nearest") == Bytes{255, 127, 127, 128, 128, 128, 0, 255, 255, 255, 255});

  // Truncated towards zero, then the integer's low bits.
  CHECK(bytes_of_cast(DType::i4, true, {-9, -1.9F, 7, 8, 300, nan}) == Bytes{7, 255, 7, 248, 252, 0});
  CHECK(bytes_of_cast(DType::u2, true, {-3, 3.9F, 4}) == Bytes{1, 3, 0});
}

TEST_CASE("small_types/big_integers") {
  const Tensor x = Tensor::of<std::int64_t>(Shape{5}, {(std::int64_t{1} << 40) + 1, 57344, 61440, -448, -479});
  for (const DType dtype : every_small)
    for (const bool saturate : {true, false})
      check_op({.op = "Cast", .opset = 24, .attributes = cast_to(dtype, saturate), .inputs = {x}});
  Tensor huge(DType::u64, Shape{1});
  huge.values<std::uint64_t>()[0] = ~std::uint64_t{0};
  for (const auto& [dtype, byte] : {std::pair{DType::f8e5m2, 0x7B}, {DType::f8e8m0, 127 + 64}, {DType::i4, 255}})
    CHECK(static_cast<const std::uint8_t*>(
              run_op({.op = "Cast", .opset = 24, .attributes = cast_to(dtype), .inputs = {huge}})[0].data())[0] ==
          byte);
}

TEST_CASE("small_types/carried") {
  for (const DType dtype : every_small) {
    const Tensor x = random_of(dtype, {2, 3, 4, 5}, 1, is_unsigned(dtype) ? 0 : -2, 2);
    const auto check = [&](const char* op, AttributeList attributes, std::vector<Tensor> inputs,
                           std::vector<int> constant = {}) {
      check_op({.op = op, .attributes = std::move(attributes), .inputs = std::move(inputs), .constant = constant});
    };
    const std::vector<std::int64_t> perm{0, 2, 3, 1};
    check("Identity", {}, {x});
    check("Reshape", {}, {x, int64s({6, 20})}, {1});
    check("Transpose", {{"perm", perm}}, {x});
    check("Concat", {{"axis", std::int64_t{1}}}, {x, x});
    check("Slice", {}, {x, int64s({1}), int64s({3}), int64s({2})}, {1, 2, 3});
    check("Gather", {{"axis", std::int64_t{3}}}, {x, int64s({4, 0, 0})});
    check("Expand", {}, {random_of(dtype, {3, 1}, 2, 0, 2), int64s({3, 7})}, {1});
    check("Tile", {}, {x, int64s({1, 1, 2, 1})}, {1});
  }
}

TEST_CASE("small_types/quantize") {
  unsigned seed = 1;
  const Shape shape{2, 6, 4, 5};
  for (const DType dtype : quantized) {
    const bool is_float = is_small_float(dtype);
    const auto zeros = [&](const Shape& s) { return random_of(dtype, s, seed++, 0, is_float ? 0 : 2); };
    const auto some = [&](const Shape& s) { return random_of(dtype, s, seed++, is_unsigned(dtype) ? 0 : -2, 2); };
    const Tensor x = random_of(DType::f32, shape, seed++, is_float ? -500 : -12, is_float ? 500 : 12);
    const auto both = [&](const AttributeList& attributes, const Tensor& scale, const Tensor& zero) {
      for (const bool with_zero : {true, false}) {
        AttributeList told = attributes;
        if (!with_zero) told.emplace_back("output_dtype", dtype_to_onnx(dtype));
        for (const bool saturate : {true, false}) {
          AttributeList all = told;
          all.emplace_back("saturate", std::int64_t{saturate});
          check_op({.op = "QuantizeLinear",
                    .opset = 25,
                    .attributes = all,
                    .inputs = with_zero ? std::vector<Tensor>{x, scale, zero} : std::vector<Tensor>{x, scale},
                    .maybe_constant = {1}});
        }
        check_op({.op = "DequantizeLinear",
                  .opset = 25,
                  .attributes = attributes,
                  .inputs = with_zero ? std::vector<Tensor>{some(shape), scale, zero}
                                      : std::vector<Tensor>{some(shape), scale},
                  .maybe_constant = {1},
                  .tolerance = 3e-7});
      }
    };
    both({}, Tensor::of<float>(Shape{}, {1.7F}), zeros(Shape{}));
    both({}, Tensor::of<float>(Shape{}, {1.7F}), zeros({1}));
    both({{"axis", std::int64_t{2}}}, random_of(DType::f32, {4}, seed++, 0.5, 2), zeros({4}));
    both({{"axis", std::int64_t{1}}, {"block_size", std::int64_t{3}}},
         random_of(DType::f32, shape.with(1, 2), seed++, 0.5, 2), zeros(shape.with(1, 2)));
  }
}

TEST_CASE("small_types/computing_with_them_is_refused") {
  const Tensor x = random_f32({3}, 1), scale = Tensor::of<float>(Shape{}, {1});
  CHECK(infer_error({.op = "QuantizeLinear", .opset = 25, .inputs = {x, scale, Tensor(DType::f8e8m0, Shape{})}}) ==
        ErrorKind::unsupported);
  CHECK(infer_error({.op = "DequantizeLinear", .opset = 25, .inputs = {Tensor(DType::f8e8m0, {3}), scale}}) ==
        ErrorKind::unsupported);
  for (const char* op : {"Relu", "NonZero"})
    for (const DType dtype : every_small)
      CHECK(infer_error({.op = op, .inputs = {Tensor(dtype, {3})}}) == ErrorKind::unsupported);
  CHECK(infer_error({.op = "Add", .inputs = {Tensor(DType::i4, {3}), Tensor(DType::i4, {3})}}) ==
        ErrorKind::unsupported);
  CHECK(infer_error({.op = "Cast", .opset = 24, .attributes = cast_to(DType::f8e8m0, true, "odd"), .inputs = {x}}) ==
        ErrorKind::invalid_model);
}

TEST_CASE("bit_cast") {
  const auto bit_cast = [](const Tensor& x, DType to) {
    return OpCase{.op = "BitCast", .opset = 26, .attributes = {{"to", dtype_to_onnx(to)}}, .inputs = {x}};
  };
  const Tensor x = random_f32({2, 3, 4, 5}, 1);
  for (const DType to : {DType::f32, DType::i32, DType::u32}) check_op(bit_cast(x, to));
  const Tensor bytes = random_of(DType::u8, {3, 7}, 1, 0, 255);
  for (const DType to : {DType::i8, DType::f8e4m3fn, DType::f8e8m0}) check_op(bit_cast(bytes, to));
  check_op(bit_cast(random_of(DType::f64, {5}, 1, -1, 1), DType::i64));
  check_op(bit_cast(random_of(DType::i16, {5}, 1, -99, 99), DType::u16));
  CHECK(run_op(bit_cast(Tensor::of<float>(Shape{1}, {1.0F}), DType::i32))[0].values<std::int32_t>()[0] == 0x3F800000);
  CHECK(infer_error(bit_cast(bytes, DType::i32)) == ErrorKind::invalid_model);
  CHECK(infer_error(bit_cast(bytes, DType::i4)) == ErrorKind::invalid_model);
  CHECK(infer_error(bit_cast(Tensor(DType::u4, {3}), DType::i4)) == ErrorKind::unsupported);
  // The loader stores a file's float64 as float32.
  CHECK(infer_error(bit_cast(x, DType::i64)) == ErrorKind::unsupported);
}

}  // namespace lenslet::test

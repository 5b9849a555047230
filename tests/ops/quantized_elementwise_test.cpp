// Operators on 8-bit codes against the oracle, whose float32 arithmetic they have to the bit.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/ops/op_harness.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

Tensor codes(DType dtype, const Shape& shape, unsigned seed) {
  const double least = dtype == DType::i8 ? -128 : 0;
  return random_of(dtype, shape, seed, least, least + 255.9);
}

/// Draws scales and zero points, at the ends of the codes as often as within, and ranges as of Relu and Clip.
class Drawn {
 public:
  explicit Drawn(unsigned seed) : random_(seed) {}

  std::int64_t zero_point(DType dtype) {
    const std::int64_t least = dtype == DType::i8 ? -128 : 0;
    const auto kind = random_() % 4;
    return least + (kind == 0 ? 0 : kind == 1 ? 255 : static_cast<std::int64_t>(random_() % 256));
  }
  double scale(double least, double most) {
    return static_cast<double>(
        std::uniform_real_distribution<float>(static_cast<float>(least), static_cast<float>(most))(random_));
  }
  void add_y(AttributeList& list, DType dtype, double least_scale, double most_scale) {
    const std::int64_t zero = zero_point(dtype), least = dtype == DType::i8 ? -128 : 0;
    list.emplace_back("y_scale", scale(least_scale, most_scale));
    list.emplace_back("y_zero_point", zero);
    list.emplace_back("stored_type", std::string(to_string(dtype)));
    if (random_() % 2 == 0)
      list.emplace_back("stored_range", std::vector<std::int64_t>{zero, std::min(least + 255, zero + 90)});
  }

 private:
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("quantized_elementwise/add_and_mul") {
  Drawn drawn(random_seed());
  unsigned seed = random_seed();
  const std::pair<Shape, Shape> shapes[] = {
      {{2, 5, 3, 7}, {2, 5, 3, 7}},     {{1, 67, 5, 3}, {1, 67, 1, 1}},
      {{2, 1, 1, 1}, {2, 33, 2, 9}},    {{2, 16, 9, 8}, {16, 1, 1}},
      {{1, 3, 40, 41}, {1, 1, 40, 41}}, {{300}, {1}},
      {{2, 130, 1, 1}, {2, 130, 7, 3}}, {{4, 6}, {3, 1, 6}},
  };
  for (const char* const name : {"QuantizedAdd", "QuantizedMul"})
    for (const auto& [a, b] : shapes)
      for (const auto& [of_a, of_b, of_y] : {std::tuple(DType::u8, DType::u8, DType::u8),
                                             {DType::i8, DType::i8, DType::i8},
                                             {DType::u8, DType::i8, DType::u8},
                                             {DType::i8, DType::u8, DType::i8}}) {
        if (of_a != of_b && a.rank() != 4) continue;
        AttributeList list{{"a_scale", drawn.scale(0.01, 0.1)},
                           {"a_zero_point", drawn.zero_point(of_a)},
                           {"b_scale", drawn.scale(0.01, 0.1)},
                           {"b_zero_point", drawn.zero_point(of_b)}};
        drawn.add_y(list, of_y, 0.01, 0.3);
        check_op({.op = name,
                  .domain = "lenslet",
                  .attributes = list,
                  .inputs = {codes(of_a, a, seed++), codes(of_b, b, seed++)},
                  .maybe_constant = {1}});
      }
}

TEST_CASE("quantized_elementwise/scales_at_the_ends") {
  // Scales whose reciprocals are no normal numbers, quotients on ties, and far beyond y's range.
  for (const char* const name : {"QuantizedAdd", "QuantizedMul"})
    for (const auto& [scale, y_scale] :
         {std::pair(1e-38, 1e-38), {1e-40, 1e-40}, {0.5, 1.0}, {1e30, 1e-30}, {1e18, 1e36}})
      check_op({.op = name,
                .domain = "lenslet",
                .attributes = {{"a_scale", scale},
                               {"a_zero_point", 3},
                               {"b_scale", scale},
                               {"b_zero_point", 128},
                               {"y_scale", y_scale},
                               {"y_zero_point", 77}},
                .inputs = {codes(DType::u8, {2, 5, 9}, 1), codes(DType::u8, {2, 5, 9}, 2)}});
}

TEST_CASE("quantized_elementwise/every_pair_of_codes_on_every_instruction_set") {
  Tensor a(DType::u8, Shape{256, 256}), b(DType::u8, Shape{256, 256});
  for (std::size_t i = 0; i < 65536; ++i) {
    a.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(i / 256);
    b.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 256);
  }
  for (const char* const name : {"QuantizedAdd", "QuantizedMul"})
    for (const auto& [scale, y_scale] : {std::pair(0.5, 1.0), {0.0123, 0.0234}})
      check_op_on_every_instruction_set({.op = name,
                                         .domain = "lenslet",
                                         .attributes = {{"a_scale", scale},
                                                        {"a_zero_point", 9},
                                                        {"b_scale", scale},
                                                        {"b_zero_point", 255},
                                                        {"y_scale", y_scale},
                                                        {"y_zero_point", 130},
                                                        {"stored_range", std::vector<std::int64_t>{5, 250}}},
                                         .inputs = {a, b}});
}

TEST_CASE("quantized_elementwise/sums_in_fixed_point_are_off_by_one_next_to_ties_alone") {
  Drawn drawn(random_seed());
  Tensor a(DType::u8, Shape{256, 256}), b(DType::u8, Shape{256, 256});
  for (std::size_t i = 0; i < 65536; ++i) {
    a.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(i / 256);
    b.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 256);
  }
  for (int times = 0; times < 20; ++times) {
    const double of_a = drawn.scale(0.001, 0.1), of_b = drawn.scale(0.01, 0.1), of_y = drawn.scale(0.01, 0.2);
    const std::int64_t zeros[] = {drawn.zero_point(DType::u8), drawn.zero_point(DType::u8),
                                  drawn.zero_point(DType::u8)};
    const AttributeList list{{"a_scale", of_a},          {"a_zero_point", zeros[0]}, {"b_scale", of_b},
                             {"b_zero_point", zeros[1]}, {"y_scale", of_y},          {"y_zero_point", zeros[2]}};
    const Tensor y = run_op({.op = "QuantizedAdd", .domain = "lenslet", .attributes = list, .inputs = {a, b}})[0];
    double worst = 0;
    for (std::int64_t i = 0; i < 65536; ++i) {
      const double exact =
          (static_cast<double>(i / 256 - zeros[0]) * of_a + static_cast<double>(i % 256 - zeros[1]) * of_b) / of_y +
          static_cast<double>(zeros[2]);
      worst = std::max(worst, std::abs(std::clamp(exact, 0.0, 255.0) -
                                       static_cast<double>(y.values<std::uint8_t>()[static_cast<std::size_t>(i)])));
    }
    CHECK_MESSAGE(worst < 0.51, to_string(list), ": ", worst);
  }
}

TEST_CASE("quantized_elementwise/table") {
  unsigned seed = random_seed();
  for (const DType from : {DType::u8, DType::i8})
    for (const DType to : {DType::u8, DType::i8}) {
      const Tensor drawn = codes(to, {256}, seed++);
      std::vector<std::int64_t> table;
      for (std::size_t i = 0; i < 256; ++i)
        table.push_back(to == DType::i8 ? std::int64_t{drawn.values<std::int8_t>()[i]}
                                        : std::int64_t{drawn.values<std::uint8_t>()[i]});
      for (const Shape& x : {Shape{2, 5, 9, 7}, Shape{1, 64, 4, 4}, Shape{3}})
        check_op_on_every_instruction_set(
            {.op = "QuantizedTable",
             .domain = "lenslet",
             .attributes = {{"table", table}, {"stored_type", std::string(to_string(to))}},
             .inputs = {codes(from, x, seed++)}});
    }
}

TEST_CASE("quantized_elementwise/global_average_pool") {
  Drawn drawn(random_seed());
  unsigned seed = random_seed();
  for (const Shape& x : {Shape{2, 5, 7, 7}, Shape{1, 131, 3, 5}, Shape{1, 64, 1, 1}, Shape{2, 3, 33, 40}})
    for (const DType from : {DType::u8, DType::i8})
      for (const DType to : {DType::u8, DType::i8}) {
        AttributeList list{{"x_scale", drawn.scale(0.01, 0.1)}, {"x_zero_point", drawn.zero_point(from)}};
        drawn.add_y(list, to, 0.005, 0.05);
        check_op_on_every_instruction_set({.op = "QuantizedGlobalAveragePool",
                                           .domain = "lenslet",
                                           .attributes = list,
                                           .inputs = {codes(from, x, seed++)}});
      }
  // The largest sums.
  Tensor white(DType::u8, Shape{1, 2, 1 << 11, 1 << 11});
  std::ranges::fill(white.values<std::uint8_t>(), std::uint8_t{255});
  const OpCase most{.op = "QuantizedGlobalAveragePool",
                    .domain = "lenslet",
                    .attributes = {{"x_scale", 0.5}, {"y_scale", 1.0}, {"x_zero_point", 0}, {"y_zero_point", 0}},
                    .inputs = {white}};
  CHECK(run_op(most)[0].values<std::uint8_t>()[1] == 128);
}

TEST_CASE("quantized_elementwise/average_pool") {
  using Ints = std::vector<std::int64_t>;
  Drawn drawn(random_seed());
  unsigned seed = random_seed();
  const std::pair<Shape, AttributeList> cases[] = {
      {{2, 5, 7, 6}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}},
      {{1, 37, 9, 8}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"count_include_pad", 1}}},
      {{1, 300, 8, 5}, {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{3, 2}}, {"ceil_mode", 1}}},
      {{2, 17, 9, 9},
       {{"kernel_shape", Ints{3, 3}},
        {"strides", Ints{2, 3}},
        {"dilations", Ints{2, 1}},
        {"pads", Ints{2, 0, 1, 2}},
        {"ceil_mode", 1},
        {"count_include_pad", 1}}},
      {{1, 16, 6, 5}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}}},
      {{3, 4, 11}, {{"kernel_shape", Ints{5}}, {"pads", Ints{2, 2}}}},
      {{1, 3, 4, 5, 6}, {{"kernel_shape", Ints{2, 3, 2}}, {"pads", Ints{1, 1, 0, 0, 1, 1}}}}};
  for (const auto& [x, geometry] : cases)
    for (const DType from : {DType::u8, DType::i8})
      for (const DType to : {DType::u8, DType::i8}) {
        AttributeList list = geometry;
        list.emplace_back("x_scale", drawn.scale(0.01, 0.1));
        list.emplace_back("x_zero_point", drawn.zero_point(from));
        drawn.add_y(list, to, 0.005, 0.1);
        check_op_on_every_instruction_set({.op = "QuantizedAveragePool",
                                           .domain = "lenslet",
                                           .attributes = list,
                                           .inputs = {codes(from, x, seed++)}});
      }
}

TEST_CASE("quantized_elementwise/refusals") {
  const Tensor x = codes(DType::u8, {1, 2, 3, 4}, 1);
  const auto why = [&](const char* op, std::vector<Tensor> inputs, AttributeList attributes) {
    try {
      infer_op({.op = op, .domain = "lenslet", .attributes = std::move(attributes), .inputs = std::move(inputs)});
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK(why("QuantizedAdd", {x, x}, {{"a_scale", 0.0}}) == "attribute 'a_scale' is 0");
  CHECK(why("QuantizedMul", {x, x}, {{"b_zero_point", 256}}) == "attribute 'b_zero_point' is 256");
  CHECK(why("QuantizedAdd", {x, x}, {{"stored_type", std::string("int16")}}) == "attribute 'stored_type' is \"int16\"");
  CHECK(why("QuantizedAdd", {x, x}, {{"stored_range", std::vector<std::int64_t>{9, 8}}}) ==
        "attribute 'stored_range' has no code of 'stored_type'");
  CHECK(why("QuantizedAdd", {x, random_f32({2}, 1, 0, 1)}, {}) ==
        "input b has element type float32 (supported: uint8, int8)");
  CHECK(why("QuantizedAdd", {x, codes(DType::u8, {3}, 1)}, {}) != "");
  CHECK(why("QuantizedTable", {x}, {{"table", std::vector<std::int64_t>(255)}}) ==
        "attribute 'table' has 255 codes, not 256");
  CHECK(why("QuantizedTable", {x}, {{"table", std::vector<std::int64_t>(256, -1)}}) ==
        "attribute 'table' has -1, which is no uint8");
  CHECK(why("QuantizedAveragePool", {x}, {}) == "attribute 'kernel_shape' is missing");
  CHECK(why("QuantizedAveragePool", {Tensor(DType::u8, Shape{1, 1, 2049, 2048})},
            {{"kernel_shape", std::vector<std::int64_t>{2049, 2048}}}) == "a window has more than 2^22 elements");
  CHECK(why("QuantizedGlobalAveragePool", {codes(DType::u8, {1, 2, 3}, 1)}, {}) != "");
  CHECK(why("QuantizedGlobalAveragePool", {Tensor(DType::u8, Shape{1, 2, 0, 3})}, {}) == "input x [1,2,0,3] is empty");
}

}  // namespace lenslet::test

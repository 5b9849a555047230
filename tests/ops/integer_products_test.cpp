// Products of 8-bit integers: exact sums, and the results of QLinear operators.

#include <doctest/doctest.h>

#include <array>

#define LENSLET_SIMD_BYTE_PRODUCTS
#include "base/simd/targets.h"
// After targets.h:
#include <hwy/highway.h>

#include "base/device_profile.h"
#include "ops/core/kernel.h"
#include "tests/ops/for_each_target.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::array<std::array<DType, 2>, 4> pairs{
    {{DType::u8, DType::u8}, {DType::u8, DType::i8}, {DType::i8, DType::u8}, {DType::i8, DType::i8}}};

Tensor integers(DType dtype, const Shape& shape, unsigned seed) {
  return random_of(dtype, shape, seed, dtype == DType::u8 ? 0 : -128, dtype == DType::u8 ? 255 : 127);
}
Tensor scale(float value, const Shape& shape = {}) { return random_of(DType::f32, shape, 7, value, value * 1.5); }

OpCase matmul_integer(Tensor a, Tensor b, Tensor a_zero = {}, Tensor b_zero = {}) {
  OpCase c{.op = "MatMulInteger", .inputs = {std::move(a), std::move(b)}, .maybe_constant = {1}};
  if (!a_zero.empty() || !b_zero.empty()) c.inputs.push_back(std::move(a_zero));
  if (!b_zero.empty()) {
    c.inputs.push_back(std::move(b_zero));
    c.maybe_constant.push_back(3);
  }
  return c;
}

OpCase qlinear_matmul(DType dtype, const Tensor& a, const Shape& a_lines, const Tensor& b, const Shape& b_lines) {
  return {.op = "QLinearMatMul",
          .inputs = {a, scale(0.02F, a_lines), integers(a.dtype(), a_lines, 3), b, scale(0.01F, b_lines),
                     integers(b.dtype(), b_lines, 4), scale(0.3F), integers(dtype, {}, 5)},
          .maybe_constant = {3, 4, 5}};
}

OpCase qlinear_conv(DType dtype, const Tensor& x, const Tensor& w, AttributeList attributes, bool by_channel,
                    bool bias) {
  const Shape lines = by_channel ? Shape{w.shape()[0]} : Shape{};
  OpCase c{.op = "QLinearConv",
           .attributes = std::move(attributes),
           .inputs = {x, scale(0.02F), integers(x.dtype(), {}, 3), w, scale(0.01F, lines),
                      integers(w.dtype(), lines, 4), scale(0.2F), integers(dtype, {}, 5)},
           .maybe_constant = {3, 4, 5}};
  if (bias) c.inputs.push_back(random_of(DType::i32, {w.shape()[0]}, 6, -5000, 5000));
  return c;
}

}  // namespace

TEST_CASE("integer_products/matmul_integer") {
  unsigned seed = 1;
  for (const auto& [left, right] : pairs)
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {3, 5, 7}, {1, 70, 64}, {13, 1, 33}, {65, 67, 129}}) {
      const Tensor a = integers(left, {m, k}, seed++), b = integers(right, {k, n}, seed++);
      check_op(matmul_integer(a, b));
      check_op(matmul_integer(a, b, integers(left, {}, seed + 1), integers(right, {}, seed + 2)));
      check_op(matmul_integer(a, b, integers(left, {m}, seed + 1), integers(right, {n}, seed + 2)));
      check_op(matmul_integer(a, b, {}, integers(right, {1}, seed++)));
    }
}

TEST_CASE("integer_products/batches_and_vectors") {
  const auto u8 = [](const Shape& shape, unsigned seed) { return integers(DType::u8, shape, seed); };
  const auto i8 = [](const Shape& shape, unsigned seed) { return integers(DType::i8, shape, seed); };
  check_op(matmul_integer(u8({2, 3, 5, 7}, 1), i8({2, 3, 7, 9}, 2), u8({2, 3, 5, 1}, 3), i8({2, 3, 1, 9}, 4)));
  check_op(matmul_integer(u8({2, 3, 5, 7}, 1), i8({7, 9}, 2), u8({2, 3, 5, 1}, 3), i8({9}, 4)));
  check_op(matmul_integer(u8({3, 5, 7}, 1), i8({2, 1, 7, 9}, 2), u8({}, 3), i8({2, 1, 1, 9}, 4)));
  check_op(matmul_integer(u8({7}, 1), i8({7, 9}, 2), u8({}, 3), i8({9}, 4)));
  check_op(matmul_integer(u8({5, 7}, 1), i8({7}, 2), u8({5}, 3), i8({}, 4)));
  check_op(matmul_integer(u8({7}, 1), i8({7}, 2)));
  check_op(matmul_integer(u8({0, 7}, 1), i8({7, 3}, 2)));
}

// Keys distinguish blobs by their content: inputs that run() does not read.
TEST_CASE("integer_products/prepared") {
  for (const OpCase& c :
       {qlinear_matmul(DType::u8, integers(DType::u8, {3, 4}, 1), {}, integers(DType::i8, {4, 5}, 2), {5}),
        qlinear_conv(DType::u8, integers(DType::u8, {1, 4, 5, 5}, 1), integers(DType::i8, {6, 4, 3, 3}, 2), {}, true,
                     false)})
    for (const bool zero_known : {true, false}) {
      const std::vector<InputInfo> infos =
          infos_of(c.inputs, zero_known ? std::vector<int>{3, 5} : std::vector<int>{3});
      const Problem problem(make_op(c), infos);
      const Kernel& kernel = *kernels_of(c.op, DeviceKind::cpu).front();
      const Candidate candidate = kernel.offer(problem, {cpu_profile(1)}).candidates.at(0);
      CHECK(kernel.blob(problem, candidate).has_value() == zero_known);
      CHECK((candidate.reads & input_bit(3)) == (zero_known ? 0 : input_bit(3)));
    }
}

// More products of the largest magnitude than 31 bits hold: overflow wraps.
TEST_CASE("integer_products/wraps") {
  constexpr std::int64_t k = 40000;
  Tensor a(DType::u8, {1, k}), b(DType::u8, {k, 1});
  for (std::uint8_t& value : a.values<std::uint8_t>()) value = 255;
  for (std::uint8_t& value : b.values<std::uint8_t>()) value = 255;
  CHECK(run_op(matmul_integer(a, b))[0].values<std::int32_t>()[0] == static_cast<std::int32_t>(65025U * k));
}

TEST_CASE("integer_products/qlinear_matmul") {
  unsigned seed = 1;
  for (const DType y : {DType::u8, DType::i8})
    for (const auto& [left, right] : pairs)
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{3, 5, 7}, {1, 70, 64}, {65, 67, 129}}) {
        const Tensor a = integers(left, {m, k}, seed++), b = integers(right, {k, n}, seed++);
        check_op(qlinear_matmul(y, a, {}, b, {}));
        check_op(qlinear_matmul(y, a, {1}, b, {n}));
        check_op(qlinear_matmul(y, a, {m}, b, {1}));
        check_op(qlinear_matmul(y, a, {m}, b, {n}));
      }
  const Tensor a = integers(DType::u8, {2, 3, 5, 7}, 1), b = integers(DType::i8, {2, 3, 7, 9}, 2);
  check_op(qlinear_matmul(DType::i8, a, {2, 3, 5, 1}, b, {2, 3, 1, 9}));
}

// Halves round to even before the zero point is added; overflow is clamped.
TEST_CASE("integer_products/rounding") {
  const auto one = [](DType dtype, double value) { return random_of(dtype, Shape{1}, 1, value, value); };
  const auto result = [&](double a, float factor, double zero, DType dtype) {
    const Tensor y = run_op({.op = "QLinearMatMul",
                             .inputs = {one(DType::i8, a).reshaped({1, 1}), one(DType::f32, factor), one(DType::i8, 0),
                                        one(DType::i8, 1).reshaped({1, 1}), one(DType::f32, 1), one(DType::i8, 0),
                                        one(DType::f32, 1), one(dtype, zero)}})[0];
    return dtype == DType::i8 ? y.values<std::int8_t>()[0] : y.values<std::uint8_t>()[0];
  };
  CHECK(result(1, 0.5F, 1, DType::u8) == 1);
  CHECK(result(3, 0.5F, 1, DType::u8) == 3);
  CHECK(result(-3, 0.5F, 1, DType::i8) == -1);
  CHECK(result(100, 4, 3, DType::u8) == 255);
  CHECK(result(-100, 4, 3, DType::u8) == 0);
  CHECK(result(-100, 4, 3, DType::i8) == -128);
  CHECK(result(100, 1e38F, 3, DType::i8) == 127);
  CHECK(result(1, std::nanf(""), 3, DType::u8) == 0);
}

TEST_CASE("integer_products/conv_integer") {
  const OpCase conv_integer{.op = "ConvInteger", .maybe_constant = {1, 3}};
  unsigned seed = 1;
  for (const auto& [of_x, of_w] : pairs) {
    const Tensor x = integers(of_x, {2, 3, 9, 7}, seed++), w = integers(of_w, {5, 3, 3, 2}, seed++);
    const AttributeList odd{{"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 2, 1}}, {"dilations", Ints{1, 2}}};
    check_op({.op = "ConvInteger", .inputs = {x, w}, .maybe_constant = {1}});
    check_op(
        {.op = "ConvInteger", .attributes = odd, .inputs = {x, w, integers(of_x, {}, seed++)}, .maybe_constant = {1}});
    check_op(with(conv_integer, {x, w, integers(of_x, {1}, seed++), integers(of_w, {5}, seed++)}, odd));
    check_op(with(conv_integer, {x, w, {}, integers(of_w, {}, seed++)}));
  }
}

TEST_CASE("integer_products/qlinear_conv") {
  unsigned seed = 1;
  const AttributeList padded{{"pads", Ints{1, 1, 1, 1}}};
  for (const DType y : {DType::u8, DType::i8})
    for (const auto& types : pairs)
      for (const bool by_channel : {false, true}) {
        const auto x = [&](const Shape& shape) { return integers(types[0], shape, seed++); };
        const auto w = [&](const Shape& shape) { return integers(types[1], shape, seed++); };
        check_op(qlinear_conv(y, x({1, 1, 1, 1}), w({1, 1, 1, 1}), {}, by_channel, false));
        check_op(qlinear_conv(y, x({2, 3, 9, 7}), w({5, 3, 3, 3}), padded, by_channel, true));
        check_op(qlinear_conv(y, x({1, 66, 6, 11}), w({67, 66, 1, 1}), {}, by_channel, true));
        check_op(qlinear_conv(y, x({2, 6, 8, 9}), w({10, 3, 3, 2}), {{"group", 2}, {"strides", Ints{2, 3}}}, by_channel,
                              true));
        check_op(qlinear_conv(y, x({2, 18, 8, 9}), w({18, 1, 3, 3}), {{"group", 18}, {"auto_pad", "SAME_UPPER"}},
                              by_channel, false));
        check_op(qlinear_conv(y, x({2, 5, 40}), w({9, 5, 4}), {{"pads", Ints{3, 2}}, {"dilations", Ints{2}}},
                              by_channel, true));
      }
}

TEST_CASE("integer_products/filters_of_one_channel_over_more_lines_than_are_made_together") {
  const Tensor x = integers(DType::u8, {1, 2, 60, 300}, 1), w = integers(DType::i8, {4, 1, 3, 3}, 2);
  check_op({.op = "ConvInteger",
            .attributes = {{"group", std::int64_t{2}}, {"pads", Ints{1, 1, 1, 1}}},
            .inputs = {x, w, integers(DType::u8, {}, 3)},
            .maybe_constant = {1}});
}

TEST_CASE("integer_products/volumes") {
  const OpCase conv_integer_of_run_time_filters{.op = "ConvInteger"};
  const OpCase conv_integer{.op = "ConvInteger", .maybe_constant = {1}};
  unsigned seed = 1;
  for (const auto& [of_x, of_w] : pairs) {
    const auto x = [&, type = of_x](const Shape& shape) { return integers(type, shape, seed++); };
    const auto w = [&, type = of_w](const Shape& shape) { return integers(type, shape, seed++); };
    check_op({.op = "ConvInteger",  // one element outside
              .attributes = {{"pads", Ints{1, 0, 0, 0, 0, 0}}},
              .inputs = {x({1, 1, 3, 1, 1}), w({2, 1, 3, 1, 1})},
              .maybe_constant = {1}});
    const AttributeList odd{{"strides", Ints{2, 1, 2}}, {"pads", Ints{1, 0, 2, 2, 1, 0}}, {"dilations", Ints{2, 1, 1}}};
    check_op(with(conv_integer, {x({2, 3, 4, 5, 6}), w({5, 3, 2, 3, 2})}));
    check_op(with(conv_integer, {x({1, 2, 3, 4, 4}), w({3, 2, 3, 3, 3})}, {{"pads", Ints{1, 1, 1, 1, 1, 1}}}));
    check_op(
        {.op = "ConvInteger",
         .attributes = odd,
         .inputs = {x({2, 3, 5, 6, 7}), w({5, 3, 3, 3, 2}), integers(of_x, {1}, seed++), integers(of_w, {5}, seed++)},
         .maybe_constant = {1, 3}});
    for (const bool by_channel : {false, true}) {
      check_op(qlinear_conv(of_x, x({2, 4, 5, 6, 7}), w({6, 2, 3, 3, 2}),
                            {{"group", 2}, {"pads", Ints{0, 1, 0, 3, 1, 1}}}, by_channel, true));
      check_op(qlinear_conv(of_x, x({1, 6, 4, 5, 5}), w({6, 1, 1, 3, 3}), {{"group", 6}, {"auto_pad", "SAME_LOWER"}},
                            by_channel, false));
      check_op(qlinear_conv(of_x, x({1, 6, 4, 5, 5}), w({6, 1, 3, 3, 3}), {{"group", 6}, {"auto_pad", "SAME_UPPER"}},
                            by_channel, false));
      check_op(qlinear_conv(of_x, x({2, 5, 3, 1, 1}), w({4, 5, 1, 1, 1}), {}, by_channel, true));
    }
  }
  CHECK(infer_op(with(conv_integer_of_run_time_filters,
                      {Tensor(DType::u8, {0, 3, 4, 5, 6}), Tensor(DType::u8, {5, 3, 2, 3, 2})}))[0]
            .shape == Shape{0, 5, 3, 3, 5});
  CHECK(infer_error(with(conv_integer_of_run_time_filters,
                         {Tensor(DType::u8, {1, 3, 4, 5, 6}), Tensor(DType::u8, {5, 3, 3, 2})})) ==
        ErrorKind::invalid_model);
}

// Bytes and pairs of 16 bits are packed and multiplied separately; each with partial panels, tiles and words.
TEST_CASE("integer_products/instruction_sets") {
  if (op_runner().device() != DeviceKind::cpu) return;
  for_each_target(HWY_TARGETS, [] {
    unsigned seed = 1;
    for (const auto& types : pairs) {
      const auto x = [&](const Shape& shape) { return integers(types[0], shape, seed++); };
      const auto w = [&](const Shape& shape) { return integers(types[1], shape, seed++); };
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{53, 67, 131}, {25, 32, 66}, {1, 9, 5}})
        check_op(qlinear_matmul(DType::u8, x({m, k}), {m}, w({k, n}), {n}));
      // Lines of several panels, and several lines in one; separated by a stride; one tap each.
      check_op(qlinear_conv(DType::u8, x({1, 5, 4, 70}), w({13, 5, 3, 3}), {{"pads", Ints{1, 1, 1, 1}}}, true, true));
      check_op(qlinear_conv(DType::i8, x({2, 3, 9, 9}), w({7, 3, 3, 3}),
                            {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}, true, false));
      check_op(qlinear_conv(DType::u8, x({1, 4, 8, 40}), w({5, 4, 3, 40}), {}, false, true));
      check_op(qlinear_conv(DType::u8, x({1, 2, 9, 11}), w({5, 2, 2, 3}),
                            {{"pads", Ints{0, 5, 0, 5}}, {"dilations", Ints{3, 5}}, {"strides", Ints{2, 3}}}, true,
                            false));
      // Depthwise: lines of a block and a tail of vectors, several filters a channel, strides.
      const auto depthwise = [&](const Shape& shape, const Shape& filter, AttributeList attributes) {
        attributes.emplace_back("group", shape[1]);
        check_op(qlinear_conv(DType::i8, x(shape), w(filter), std::move(attributes), true, true));
      };
      depthwise({1, 2, 70, 70}, {2, 1, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}});
      depthwise({2, 3, 9, 7}, {6, 1, 5, 3}, {{"pads", Ints{2, 1, 2, 1}}, {"strides", Ints{2, 2}}});
      depthwise({1, 2, 5, 300}, {2, 1, 2, 3}, {{"strides", Ints{1, 3}}, {"dilations", Ints{2, 4}}});
    }
  });
}

// Lines of less than a vector, of whole vectors and of a rest, in blocks of lines and single ones; with a stride of two
// the last element of the image has no neighbour.
TEST_CASE("integer_products/depthwise_lines_of_any_length") {
  if (op_runner().device() != DeviceKind::cpu) return;
  for_each_target(HWY_TARGETS, [] {
    unsigned seed = 1000;
    for (const std::int64_t columns : {1, 2, 3, 7, 8, 14, 16, 17, 31, 33, 35, 64, 67, 129})
      for (const std::int64_t stride : {1, 2, 3})
        for (const std::int64_t lines : {1, 4, 5, 7, 10}) {
          const auto& types = pairs[seed % pairs.size()];
          const std::int64_t dilation = 1 + columns % 2;
          const Tensor x = integers(types[0], {1, 3, lines, columns}, seed++);
          const Tensor w = integers(types[1], {3, 1, 3, 3}, seed++);
          const AttributeList attributes{{"group", std::int64_t{3}},
                                         {"strides", Ints{stride, stride}},
                                         {"pads", Ints{2, 2, 2, 2}},
                                         {"dilations", Ints{lines == 1 ? 1 : dilation, columns == 1 ? 1 : dilation}}};
          check_op(qlinear_conv(seed % 3 == 0 ? DType::u8 : DType::i8, x, w, attributes, true, true));
          check_op({.op = "ConvInteger",
                    .attributes = attributes,
                    .inputs = {x, w, integers(types[0], {}, seed), integers(types[1], {3}, seed + 1)},
                    .maybe_constant = {1, 3}});
        }
    // The largest sums, of either sign: 255 * 255 a tap.
    const auto all = [](DType dtype, const Shape& shape, double value) {
      return random_of(dtype, shape, 1, value, value);
    };
    for (const std::int64_t taps : {3, 16})
      for (const double x : {0, 255})
        for (const double w : {-128, 127})
          check_op({.op = "ConvInteger",
                    .attributes = {{"group", std::int64_t{2}}},
                    .inputs = {all(DType::u8, {1, 2, 18, 37}, x), all(DType::i8, {2, 1, taps, taps}, w),
                               all(DType::u8, {}, 255 - x), all(DType::i8, {2}, -1 - w)},
                    .maybe_constant = {1, 3}});
  });
}

TEST_CASE("integer_products/scales_and_zero_points_of_other_shapes_are_refused") {
  const Tensor x = integers(DType::u8, {1, 4, 5, 5}, 1), w = integers(DType::i8, {6, 4, 3, 3}, 2);
  const auto refused = [](OpCase c, std::size_t input, Tensor other) {
    c.inputs[input] = std::move(other);
    return infer_error(c);
  };
  const OpCase conv = qlinear_conv(DType::u8, x, w, {}, true, true);
  CHECK(refused(conv, 0, random_f32({1, 4, 5, 5}, 1)) == ErrorKind::unsupported);
  CHECK(refused(conv, 2, integers(DType::i8, {}, 1)) == ErrorKind::invalid_model);
  CHECK(refused(conv, 4, scale(1, {4})) == ErrorKind::invalid_model);
  CHECK(refused(conv, 1, scale(1, {4})) == ErrorKind::invalid_model);
  CHECK(refused(conv, 6, scale(1, {6})) == ErrorKind::unsupported);
  CHECK(refused(conv, 7, Tensor(DType::i32, {})) == ErrorKind::unsupported);
  CHECK(refused(conv, 8, random_f32({6}, 1)) == ErrorKind::unsupported);
  CHECK(refused(conv, 8, Tensor(DType::i32, {4})) == ErrorKind::invalid_model);
  CHECK(refused(conv, 3, integers(DType::i8, {6, 3, 3, 3}, 1)) == ErrorKind::invalid_model);
  const OpCase matmul =
      qlinear_matmul(DType::u8, integers(DType::u8, {3, 4}, 1), {3}, integers(DType::i8, {4, 5}, 1), {5});
  CHECK(refused(matmul, 3, integers(DType::i8, {3, 5}, 1)) == ErrorKind::invalid_model);
  CHECK(refused(matmul, 1, scale(1, {4})) == ErrorKind::invalid_model);
  CHECK(refused(matmul, 4, scale(1, {3})) == ErrorKind::invalid_model);
  CHECK(refused(matmul, 7, Tensor(DType::i16, {})) == ErrorKind::unsupported);

  // Sizes that CUDA cannot index by 32 bits.
  const auto refusal = [](const char* op, const Shape& a, const Shape& b) {
    const std::vector<InputInfo> infos{{true, {DType::u8, a}}, {true, {DType::u8, b}}};
    const Problem problem(make_op({.op = op, .inputs = {Tensor(), Tensor()}}), infos);
    return kernels_of(op, DeviceKind::cuda).front()->offer(problem, {.device = reference_gpu()}).refusal;
  };
  CHECK(refusal("ConvInteger", {1, 1, 1 << 15, 1 << 15}, {1, 1, 1, 1}).empty());
  CHECK(!refusal("ConvInteger", {2, 1, 1 << 15, (1 << 14) + 1}, {1, 1, 1, 1}).empty());
  CHECK(!refusal("ConvInteger", {1, 1, 1 << 10, 1 << 10}, {1025, 1, 1, 1}).empty());
  CHECK(refusal("MatMulInteger", {1 << 15, 1 << 15}, {1 << 15, 1}).empty());
  CHECK(!refusal("MatMulInteger", {1 << 15, 1}, {1, (1 << 15) + 1}).empty());
}

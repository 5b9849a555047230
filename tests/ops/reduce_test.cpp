// Reductions over any axes, in both layouts.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {

namespace {

using Ints = std::vector<std::int64_t>;

constexpr const char* integer_kinds[] = {"ReduceSum",  "ReduceMean", "ReduceMax",      "ReduceMin",
                                         "ReduceProd", "ReduceL1",   "ReduceSumSquare"};
constexpr const char* float_kinds[] = {"ReduceL2", "ReduceLogSum", "ReduceLogSumExp"};

// Axes as an attribute in opset 11, as an input in opset 18.
OpCase reduce(const std::string& op, const Tensor& x, const Ints& axes, std::int64_t keep_dims, std::int64_t opset) {
  OpCase c{.op = op, .opset = opset, .attributes = {{"keepdims", keep_dims}}, .inputs = {x}, .tolerance = 1e-6};
  if (axes.empty()) return c;
  if (opset < 13) {
    c.attributes.emplace_back("axes", axes);
  } else {
    c.inputs.push_back(Tensor::of<std::int64_t>(Shape{static_cast<std::int64_t>(axes.size())}, std::span(axes)));
    c.constant = {1};
  }
  return c;
}

}  // namespace

TEST_CASE("reduce/axes") {
  // Positive, so that logarithms of sums exist, and near 1, so that products of all elements stay finite.
  const Tensor x = random_of(DType::f32, {2, 35, 5, 7}, 1, 0.9, 1.1);
  const Ints axis_sets[] = {{}, {0}, {1}, {2}, {3}, {-1, -2}, {2, 0}, {1, 2, 3}, {0, 1, 2, 3}, {0, 2, 3}};
  for (const auto& kinds : {std::span<const char* const>(integer_kinds), std::span<const char* const>(float_kinds)})
    for (const char* op : kinds)
      for (const Ints& axes : axis_sets)
        for (const std::int64_t opset : {11, 18}) check_op(reduce(op, x, axes, opset == 18, opset));
}

TEST_CASE("reduce/other_shapes") {
  for (const std::int64_t keep_dims : {0, 1}) {
    check_op(reduce("ReduceMean", random_f32({3, 1280, 7, 7}, 2, 0.5), {2, 3}, keep_dims, 11));
    check_op(reduce("ReduceMean", random_f32({1, 40000}, 2), {1}, keep_dims, 18));
    check_op(reduce("ReduceSum", random_f32({40000, 3}, 2), {0}, keep_dims, 18));
    check_op(reduce("ReduceMax", random_f32({}, 2), {}, keep_dims, 18));
    check_op(reduce("ReduceMax", random_f32({2, 3, 2, 3, 2, 3}, 2), {0, 2, 4}, keep_dims, 18));
    check_op(reduce("ReduceSum", random_f32({3, 0, 2}, 2), {1}, keep_dims, 18));
    check_op(reduce("ReduceProd", random_f32({3, 0, 2}, 2), {1}, keep_dims, 18));
    check_op(reduce("ReduceMax", random_f32({3, 0, 2}, 2), {0}, keep_dims, 18));
    check_op(reduce("ReduceLogSumExp", random_f32({3, 50}, 2, 80, 40), {1}, keep_dims, 18));
  }
}

TEST_CASE("reduce/integers_are_exact") {
  for (const char* op : integer_kinds)
    for (const DType dtype : {DType::i64, DType::i32}) {
      check_op(reduce(op, random_of(dtype, {3, 4, 5}, 3, -6, 7), {1}, 1, 11));
      check_op(reduce(op, random_of(dtype, {5}, 3, -6, 7), {0}, 0, 11));
    }
}

TEST_CASE("reduce/extremes_of_small_and_unsigned_types") {
  for (const char* op : {"ReduceMax", "ReduceMin"})
    for (const DType dtype : {DType::i8, DType::u8, DType::u32, DType::u64, DType::boolean}) {
      const double low = dtype == DType::i8 ? -128 : 0, high = dtype == DType::boolean ? 2 : 127;
      unsigned seed = 11;
      for (const Ints& axes : {Ints{0}, Ints{1}, Ints{2, 3}, Ints{0, 1, 2, 3}})
        check_op(reduce(op, random_of(dtype, {2, 35, 5, 7}, seed++, low, high), axes, 1, 20));
      check_op(reduce(op, random_of(dtype, {3, 1}, seed++, low, high), {1}, 0, 11));
      check_op(reduce(op, random_of(dtype, {70001}, seed, low, high), {0}, 0, 20));
    }
  const auto extreme = [](const char* op, DType dtype, std::initializer_list<std::uint64_t> values) {
    Tensor x(dtype, {static_cast<std::int64_t>(values.size())});
    if (dtype == DType::boolean) return run_op(reduce(op, x, {0}, 0, 20))[0].values<bool>()[0] ? 1 : std::uint64_t{0};
    std::copy(values.begin(), values.end(), x.values<std::uint64_t>().begin());
    return run_op(reduce(op, x, {0}, 0, 20))[0].values<std::uint64_t>()[0];
  };
  constexpr std::uint64_t most = ~std::uint64_t{0};
  CHECK(extreme("ReduceMax", DType::u64, {1, most, 2}) == most);
  CHECK(extreme("ReduceMin", DType::u64, {most, 1}) == 1);
  // An empty set gives the type's lowest or highest value.
  CHECK(extreme("ReduceMax", DType::u64, {}) == 0);
  CHECK(extreme("ReduceMin", DType::u64, {}) == most);
  CHECK(extreme("ReduceMax", DType::boolean, {}) == 0);
  CHECK(extreme("ReduceMin", DType::boolean, {}) == 1);
  CHECK(infer_error(reduce("ReduceSum", random_of(DType::u8, {3}, 1, 0, 9), {0}, 0, 11)) == ErrorKind::unsupported);
  CHECK(infer_error(reduce("ReduceMax", random_of(DType::i16, {3}, 1, 0, 9), {0}, 0, 11)) == ErrorKind::unsupported);
}

TEST_CASE("reduce/noop_with_empty_axes") {
  const Tensor x = random_f32({2, 3, 4, 5}, 4), none = Tensor::of<std::int64_t>(Shape{0}, {});
  for (const std::int64_t noop : {0, 1})
    for (const bool given : {false, true}) {
      OpCase c{.op = "ReduceSum",
               .opset = 13,
               .attributes = {{"noop_with_empty_axes", noop}},
               .inputs = {x},
               .constant = {1},
               .tolerance = 1e-6};
      if (given) c.inputs.push_back(none);
      check_op(c);
    }
}

// A reduction of [N,H,W,C], and the same of [N,C,H,W].
TEST_CASE("reduce/permuted_axes_keep_their_meaning_where_order_allows") {
  constexpr int to[] = {0, 2, 3, 1};
  const Tensor x = random_f32({2, 5, 7, 3}, 8);
  const std::vector<InputInfo> infos{{true, {DType::f32, x.shape()}, nullptr}};
  const auto permuted = [&](const Ints& axes, std::int64_t keep_dims) {
    const auto result = make_op(reduce("ReduceSum", x, axes, keep_dims, 11))->permuted(to, infos);
    if (result) {
      CHECK(result->inputs.size() == 1);
      CHECK(result->same_result == (keep_dims == 0));
      CHECK(attribute<std::int64_t>(*result->op, "keepdims") == keep_dims);
    }
    return result ? integers_attribute(*result->op, "axes").value() : Ints{};
  };
  CHECK(permuted({1, 2}, 1) == Ints{2, 3});
  CHECK(permuted({-1}, 1) == Ints{1});
  CHECK(permuted({3, 0}, 1) == Ints{0, 1});
  CHECK(permuted({1, 2}, 0) == Ints{2, 3});
  CHECK(permuted({3}, 0) == Ints{1});
  CHECK(permuted({1}, 0).empty());  // [N,W,C] would become [N,C,W]
  CHECK(permuted({}, 1).empty());   // all axes: no gain
}

TEST_CASE("reduce/special_values") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::of<float>(Shape{2, 3}, {1, std::nanf(""), 2, -inf, -inf, -inf});
  CHECK(std::isnan(run_op(reduce("ReduceMax", x, {1}, 0, 11))[0].values<float>()[0]));
  CHECK(std::isnan(run_op(reduce("ReduceMin", x, {1}, 0, 11))[0].values<float>()[0]));
  CHECK(run_op(reduce("ReduceLogSumExp", x, {1}, 0, 11))[0].values<float>()[1] == -inf);
  const Tensor big = Tensor::of<float>(Shape{2}, {1000.0F, 1000.0F});
  CHECK(run_op(reduce("ReduceLogSumExp", big, {0}, 0, 11))[0].values<float>()[0] ==
        doctest::Approx(1000 + std::log(2)));
}

// Whole vectors and tails, consecutive rows, and rows that are split.
TEST_CASE("reduce/rows_of_any_length_on_every_instruction_set") {
  for (const char* op :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp"}) {
    const auto check = [&](const Shape& shape, const Ints& axes, std::int64_t keep_dims, unsigned seed) {
      check_op_on_every_instruction_set(reduce(op, random_f32(shape, seed), axes, keep_dims, 18));
    };
    for (const std::int64_t length : {7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 300}) check({3, length}, {1}, 0, 1);
    for (const std::int64_t length : {2, 3, 4, 5, 8, 13, 16, 49, 64}) check({261, length}, {1}, 0, 8);
    check({2, 5, 3, 70}, {1, 3}, 1, 2);
    for (const std::int64_t length : {65536, 65537, 200000}) check({2, length}, {1}, 0, 3);
  }
}

// Columns: whole strips and tails, consecutive rows.
TEST_CASE("reduce/columns_of_any_width_on_every_instruction_set") {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceL1", "ReduceL2", "ReduceLogSumExp"}) {
    for (const std::int64_t width : {15, 16, 17, 100, 513, 1100})
      for (const std::int64_t rows : {1, 7, 8, 17})
        check_op_on_every_instruction_set(reduce(op, random_f32({rows, width}, 6), {0}, 0, 18));
    check_op_on_every_instruction_set(reduce(op, random_f32({3, 20, 5, 70}, 7), {0, 2}, 1, 18));
  }
}

// Short rows, some with non-finite values, in whole vectors and in tails.
TEST_CASE("reduce/extremes_of_short_rows_see_nan_and_infinities") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const std::int64_t length : {2, 3, 4, 7, 8, 11, 16, 17, 31, 49, 64}) {
    Tensor x = random_f32({70, length}, 9);
    const auto set = [&](std::int64_t row, std::int64_t at, float v) {
      x.values<float>()[static_cast<std::size_t>(row * length + at)] = v;
    };
    for (const auto& [row, odd] : {std::pair{4, nan}, {17, inf}, {30, -inf}, {69, nan}})
      set(row, 0, odd), set(row + (row < 69 ? 1 : -1), length - 1, odd), set(row, length - 1, 0.5F);
    for (std::int64_t i = 0; i < length; ++i) set(50, i, -inf), set(51, i, inf);
    for (const char* op : {"ReduceMax", "ReduceMin"}) check_op_on_every_instruction_set(reduce(op, x, {1}, 0, 18));
  }
}

TEST_CASE("reduce/one_odd_element_decides_the_extreme_of_a_long_row") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const char* op : {"ReduceMax", "ReduceMin"})
    for (const std::size_t at : {0U, 16U, 63U, 255U, 1025U})
      for (const float odd : {inf, -inf, nan}) {
        Tensor x = random_f32({1026}, 4);
        x.values<float>()[at] = odd;
        x.values<float>()[9] = std::string(op) == "ReduceMax" ? -inf : inf;  // must not count as NaN
        check_op_on_every_instruction_set(reduce(op, x, {0}, 0, 18));
      }
}

TEST_CASE("reduce/axes_outside_named_twice_or_computed_are_refused") {
  const Tensor x = random_f32({2, 3}, 5);
  CHECK_ERROR(infer_op(reduce("ReduceSum", x, {2}, 1, 11)), invalid_model, "axis 2 is outside a tensor of rank 2");
  CHECK_ERROR(infer_op(reduce("ReduceSum", x, {0, -2}, 1, 11)), invalid_model, "axis -2 is named twice");
  CHECK_ERROR(infer_op(reduce("ReduceL2", random_of(DType::i64, {2}, 1, 0, 9), {0}, 1, 11)), unsupported,
              "input 0 has element type int64");
  OpCase computed = reduce("ReduceSum", x, {1}, 1, 18);
  computed.constant = {};
  CHECK_ERROR(infer_op(computed), unsupported, "axes is computed from data: shapes must be known before the run");
}

}  // namespace lenslet::test

// Reductions over any axes, in both layouts.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/ops/op_harness.h"

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
  // Positive, so that logarithms of sums exist, and near 1, so that products of all elements do.
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

TEST_CASE("reduce/integers") {
  for (const char* op : integer_kinds)
    for (const DType dtype : {DType::i64, DType::i32}) {
      check_op(reduce(op, random_of(dtype, {3, 4, 5}, 3, -6, 7), {1}, 1, 11));
      check_op(reduce(op, random_of(dtype, {5}, 3, -6, 7), {0}, 0, 11));
    }
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

// [N,H,W,C] reduced, and the same of [N,C,H,W].
TEST_CASE("reduce/permuted") {
  constexpr int to[] = {0, 2, 3, 1};
  const Tensor x = random_f32({2, 5, 7, 3}, 8);
  const std::vector<InputInfo> infos{{true, {DType::f32, x.shape()}, nullptr}};
  const auto permuted = [&](const Ints& axes, std::int64_t keep_dims) {
    const auto result = make_op(reduce("ReduceSum", x, axes, keep_dims, 11))->permuted(to, infos);
    if (result) {
      CHECK(result->inputs == std::vector<int>{0});
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
  CHECK(permuted({}, 1).empty());   // all axes: nothing to gain
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

TEST_CASE("reduce/refusals") {
  const Tensor x = random_f32({2, 3}, 5);
  CHECK_THROWS_AS(infer_op(reduce("ReduceSum", x, {2}, 1, 11)), Error);
  CHECK_THROWS_AS(infer_op(reduce("ReduceSum", x, {0, -2}, 1, 11)), Error);
  CHECK_THROWS_AS(infer_op(reduce("ReduceL2", random_of(DType::i64, {2}, 1, 0, 9), {0}, 1, 11)), Error);
  OpCase computed = reduce("ReduceSum", x, {1}, 1, 18);
  computed.constant = {};
  CHECK_THROWS_AS(infer_op(computed), Error);
}

TEST_CASE("arg_extreme") {
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
  CHECK_THROWS_AS(infer_op({.op = "ArgMax", .inputs = {random_f32({0, 3}, 7)}}), Error);
  CHECK_THROWS_AS(infer_op({.op = "ArgMax", .inputs = {random_f32({}, 7)}}), Error);
}

}  // namespace lenslet::test

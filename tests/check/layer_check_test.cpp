#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/check.h"
#include "oracle/oracle.h"

using namespace lenslet;

namespace {

/// 2 * x, stored as `dtype` by a kernel.
LayerCheck doubled(const std::vector<float>& x, DType dtype) {
  Tensor input(DType::f32, {1, static_cast<std::int64_t>(x.size())});
  std::copy(x.begin(), x.end(), input.values<float>().begin());
  Tensor sum(DType::f32, input.shape());
  for (std::size_t i = 0; i < x.size(); ++i) sum.values<float>()[i] = 2 * x[i];
  StepInfo info;
  info.name = "twice";
  info.op = "Add";
  info.tolerance = 1e-6;
  const Tensor inputs[] = {input.to_dtype(dtype), input.to_dtype(dtype)};
  const Tensor outputs[] = {sum.to_dtype(dtype)};
  return check_step({.info = &info, .inputs = inputs, .outputs = outputs});
}

/// A sparse 1x1x1 convolution of three channels at 400 sites. At the first site the channels are `strong`, at the
/// others 1. Its output there is wrong by `error` times the root of its terms' squares.
LayerCheck one_strong_site(const std::array<float, 3>& strong, double error) {
  constexpr std::int64_t sites = 400;
  const Shape kernel{1, 3, 1, 1, 1};
  Tensor x(DType::f32, {sites, 3}), book(DType::i32, {3}), w(DType::f32, kernel), y(DType::f32, {sites, 1});
  book.values<std::int32_t>()[0] = book.values<std::int32_t>()[1] = sites;
  book.values<std::int32_t>()[2] = 0;
  const std::array<float, 3> filter{1, -1, 1};
  std::ranges::copy(filter, w.values<float>().begin());
  for (std::size_t i = 0; i < sites; ++i) {
    double sum = 0, squares = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      const double value = i == 0 ? strong[c] : 1;
      x.values<float>()[3 * i + c] = static_cast<float>(value);
      sum += filter[c] * value;
      squares += value * value;
    }
    y.values<float>()[i] = static_cast<float>(sum + (i == 0 ? error * std::sqrt(squares) : 0));
  }
  StepInfo info;
  info.name = "sparse";
  info.op = "SparseConv";
  info.attributes = {{"kind", std::string("submanifold")}};
  info.tolerance = 1e-3;
  const Tensor inputs[] = {std::move(x), std::move(book), std::move(w)};
  const Tensor outputs[] = {std::move(y)};
  return check_step({.info = &info, .inputs = inputs, .outputs = outputs});
}

/// A step with given results; `off` is added to element `at` of output 0.
struct Step {
  std::string op;
  AttributeList attributes;
  std::vector<Tensor> inputs;
  double tolerance;
  std::string algorithm = {};

  std::vector<oracle::Array> exact() const {
    std::vector<oracle::Array> arrays;
    for (const Tensor& input : inputs) arrays.push_back(oracle::from_tensor(input));
    return oracle::run(op, attributes, arrays).value();
  }
  LayerCheck check(std::size_t at = 0, double off = 0) const {
    std::vector<Tensor> outputs;
    for (oracle::Array& array : results_) {
      if (outputs.empty()) array.values.at(at) += off;
      outputs.push_back(oracle::to_tensor(array));
      if (outputs.size() == 1) array.values.at(at) -= off;
    }
    StepInfo info;
    info.name = "step";
    info.op = op;
    info.attributes = attributes;
    info.tolerance = tolerance;
    info.algorithm = algorithm;
    return check_step({.info = &info, .inputs = inputs, .outputs = outputs});
  }

  mutable std::vector<oracle::Array> results_ = exact();
};

Tensor drawn(Shape shape, unsigned seed, double mean = 0, double deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(mean, deviation);
  Tensor tensor(DType::f32, shape);
  for (float& value : tensor.values<float>()) value = static_cast<float>(normal(random));
  return tensor;
}

/// Multiplies the first of `parts` equal parts by 1e-4.
Tensor dim_at_first(Tensor tensor, std::int64_t parts) {
  for (float& value : tensor.values<float>().first(static_cast<std::size_t>(tensor.elems() / parts))) value *= 1e-4F;
  return tensor;
}

}  // namespace

// The rms of all outputs says little about a site twenty times as large, nor does the number of terms if one dominates.
TEST_CASE("layer_check/sites_of_a_scan_differ") {
  for (const std::array<float, 3> strong : {std::array{1000.F, 1000.F, 1000.F}, std::array{1000.F, 0.F, 0.F}}) {
    const LayerCheck good = one_strong_site(strong, 0.9e-3), bad = one_strong_site(strong, 1.1e-3);
    CHECK(good.passed());
    CHECK(good.error > 0.8e-3);
    CHECK_FALSE(bad.passed());
  }
}

TEST_CASE("layer_check/values_beyond_the_range_of_what_stores_them") {
  const std::vector<float> large{1, -4e4F, 3.5e4F, 2};
  const LayerCheck half = doubled(large, DType::f16);
  CHECK(half.beyond_range == 2);
  CHECK(half.largest == 8e4);
  CHECK_FALSE(half.passed());
  CHECK(half.verdict().starts_with("OUT OF RANGE: 2 up to 8e+04"));
  const LayerCheck wide = doubled(large, DType::bf16), small = doubled({1, 2, 3}, DType::f16);
  CHECK(wide.passed());
  CHECK(small.passed());
}

// Values are mostly 1e-9, some near 1: the rms of all describes neither.
TEST_CASE("layer_check/a_sparse_result_is_judged_by_its_elements") {
  Tensor x = drawn({1, 100000}, 1, -20, 1);
  for (std::size_t i = 0; i < 50; ++i) x.values<float>()[i * 1999] = static_cast<float>(i) / 10;
  const Step sigmoid{"Sigmoid", {}, {x}, 1e-6};
  const std::vector<double>& exact = sigmoid.results_.at(0).values;
  CHECK(sigmoid.check().passed());
  for (const std::size_t at : {std::size_t{1999 * 40}, std::size_t{7}}) {
    CAPTURE(exact[at]);
    CHECK(sigmoid.check(at, 5e-7 * exact[at]).passed());
    CHECK_FALSE(sigmoid.check(at, 4e-6 * exact[at]).passed());
  }
}

// If a part of the inputs is 1e-4 of the rest, so are its results and their errors. An error of 1e-3 of such an element
// is found, although it is 1e-7 of the others.
TEST_CASE("layer_check/a_small_error_in_a_large_result_is_found") {
  using Ints = std::vector<std::int64_t>;
  const Tensor dim = dim_at_first(drawn({2, 4, 32, 32}, 3), 2);
  const Tensor rows = dim_at_first(drawn({16, 300}, 4), 16);
  Tensor grid(DType::f32, {2, 30, 30, 2});
  for (std::size_t i = 0; i < 3600; ++i) grid.values<float>()[i] = static_cast<float>(i % 61) / 40 - 0.75F;
  Tensor sizes(DType::i64, {4});
  std::ranges::copy(std::array<std::int64_t, 4>{2, 4, 45, 51}, sizes.values<std::int64_t>().begin());
  Tensor spread = rows.clone();  // Softmax gives the first ones 1e-4 of the others
  for (float& value : spread.values<float>().first(4)) value -= 9;
  const AttributeList pads{{"pads", Ints{1, 1, 1, 1}}}, window{{"kernel_shape", Ints{3, 3}}};
  AttributeList activated = pads;
  activated.emplace_back("activation", std::string("sigmoid"));
  const Step steps[] = {
      {"Conv", pads, {dim, drawn({5, 4, 3, 3}, 6)}, 5e-6},
      {"Conv", pads, {dim, drawn({5, 4, 3, 3}, 6)}, 2e-5, "winograd_f4"},
      {"Conv", activated, {dim, drawn({5, 4, 3, 3}, 6), drawn({5}, 7, -15, 0.1)}, 5e-6},
      {"ConvTranspose", pads, {dim, drawn({4, 5, 3, 3}, 7)}, 5e-6},
      {"Gemm", {}, {rows, drawn({300, 20}, 8)}, 1e-5},
      {"MatMul", {}, {rows, drawn({300, 20}, 8)}, 1e-5},
      {"Einsum", {{"equation", std::string("ij,jk->ik")}}, {rows, drawn({300, 20}, 8)}, 1e-5},
      {"Add", {}, {dim, dim_at_first(drawn({2, 4, 32, 32}, 9), 2)}, 2e-6},
      {"Mul", {}, {dim, drawn({2, 4, 32, 32}, 9)}, 2e-6},
      {"Tanh", {}, {dim}, 2e-6},
      {"Softmax", {}, {spread}, 2e-6},
      {"ReduceMean", {{"axes", Ints{1}}}, {rows}, 2e-6},
      {"AveragePool", window, {dim}, 2e-6},
      {"GlobalAveragePool", {}, {dim}, 2e-6},
      {"CumSum", {}, {rows, Tensor::of<std::int64_t>(Shape{}, {1})}, 2e-6},
      {"BatchNormalization",
       {},
       {dim, drawn({4}, 5), dim_at_first(drawn({4}, 6), 1), dim_at_first(drawn({4}, 7), 1), drawn({4}, 8, 4, 0.1)},
       2e-6},
      {"LRN", {{"size", std::int64_t{3}}}, {dim}, 2e-6},
      {"Resize", {{"mode", std::string("linear")}}, {dim, Tensor(), Tensor(), sizes}, 5e-6},
      {"GridSample", {}, {dim, grid}, 5e-6},
  };
  for (const Step& step : steps) {
    CAPTURE(step.op);
    CAPTURE(step.algorithm);
    const std::vector<double>& exact = step.results_.at(0).values;
    REQUIRE(step.check().passed());
    // The largest of the small ones, whose terms do not cancel.
    std::size_t at = 0;
    for (std::size_t i = 0; i < exact.size() / (step.inputs[0].shape()[0] == 16 ? 16 : 2); ++i)
      if (std::abs(exact[i]) > std::abs(exact[at])) at = step.op == "Softmax" ? 0 : i;
    CAPTURE(exact[at]);
    CHECK(std::abs(exact[at]) < 2e-2 * oracle::rms(exact));
    CHECK_FALSE(step.check(at, 1e-3 * exact[at]).passed());
  }
}

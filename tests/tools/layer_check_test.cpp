#include "tools/verbs/layer_check.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

using namespace lenslet;

namespace {

/// 2 * x, which a kernel stored as `dtype`.
tool::LayerCheck doubled(const std::vector<float>& x, DType dtype) {
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
  return tool::check_layer({.info = &info, .inputs = inputs, .outputs = outputs});
}

/// A sparse 1x1x1 convolution of three channels at 400 sites. At the first the channels are `strong`, at the others 1;
/// its output there is off by `error` of the root of its terms' squares.
tool::LayerCheck one_strong_site(const std::array<float, 3>& strong, double error) {
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
  return tool::check_layer({.info = &info, .inputs = inputs, .outputs = outputs});
}

}  // namespace

// The rms of all outputs says little of a site that is twenty times it, nor does the number of terms where one is all.
TEST_CASE("layer_check/sites_of_a_scan_differ") {
  for (const std::array<float, 3> strong : {std::array{1000.F, 1000.F, 1000.F}, std::array{1000.F, 0.F, 0.F}}) {
    const tool::LayerCheck good = one_strong_site(strong, 0.9e-3), bad = one_strong_site(strong, 1.1e-3);
    CHECK(good.passed());
    CHECK(good.against_terms);
    CHECK(good.error > 0.8e-3);
    CHECK_FALSE(bad.passed());
  }
}

TEST_CASE("layer_check/values_beyond_the_range_of_what_stores_them") {
  const std::vector<float> large{1, -4e4F, 3.5e4F, 2};
  const tool::LayerCheck half = doubled(large, DType::f16);
  CHECK(half.beyond_range == 2);
  CHECK(half.largest == 8e4);
  CHECK_FALSE(half.passed());
  CHECK(tool::verdict(half).starts_with("OUT OF RANGE: 2 up to 8e+04"));
  const tool::LayerCheck wide = doubled(large, DType::bf16), small = doubled({1, 2, 3}, DType::f16);
  CHECK(wide.passed());
  CHECK(small.passed());
  const tool::LayerCheck layers[] = {small, half, half};
  CHECK(tool::range_advice(layers).starts_with("2 of them leave the range of float16, first twice (up to 8e+04)"));
  CHECK(tool::range_advice(std::span(layers).first(1)).empty());
}

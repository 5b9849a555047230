#include "tools/verbs/layer_check.h"

#include <doctest/doctest.h>

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

}  // namespace

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

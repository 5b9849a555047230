// AveragePool with `subtract_input`: residual + scale[c] * (average - x).
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

/// x and, where they are wanted, scale and residual.
OpCase difference(const Shape& x, const Ints& kernel, const Ints& pads, unsigned seed, bool scale, bool residual,
                  std::int64_t include = 0) {
  OpCase c{.op = "AveragePool",
           .opset = 0,
           .attributes = {{"kernel_shape", kernel},
                          {"pads", pads},
                          {"count_include_pad", include},
                          {"subtract_input", std::int64_t{1}}},
           .inputs = {random_f32(x, seed, 3)},
           .maybe_constant = {1},
           .tolerance = 2e-6};
  if (scale || residual) c.inputs.push_back(scale ? random_f32({x[1]}, seed + 1, 1, 0.5) : Tensor());
  if (residual) c.inputs.push_back(random_f32(x, seed + 2, -2));
  if (!scale) c.maybe_constant.clear();
  return c;
}

struct Windows {
  Shape x;
  Ints kernel, pads;
};
const Windows windows[] = {
    {{1, 16, 14, 14}, {3, 3}, {1, 1, 1, 1}},
    {{2, 13, 7, 9}, {3, 3}, {1, 1, 1, 1}},
    {{2, 12, 7, 5}, {3, 3}, {1, 1, 1, 1}},  // CUDA: fours of float32
    {{1, 1, 5, 6}, {3, 3}, {1, 1, 1, 1}},
    {{1, 3, 1, 1}, {3, 3}, {1, 1, 1, 1}},
    {{2, 8, 9, 11}, {3, 3}, {2, 0, 0, 2}},
    {{1, 24, 6, 8}, {5, 3}, {2, 1, 2, 1}},
    {{1, 5, 8, 8}, {7, 7}, {3, 3, 3, 3}},
    {{1, 8, 9, 9}, {1, 1}, {0, 0, 0, 0}},
    {{1, 4, 6, 6}, {2, 2}, {1, 0, 0, 1}},
    {{2, 3, 5, 200}, {3, 3}, {1, 1, 1, 1}},
    {{2, 5, 33}, {3}, {1, 1}},
    {{1, 3, 5, 7, 6}, {3, 3, 3}, {1, 1, 1, 1, 1, 1}},
    {{0, 8, 4, 4}, {3, 3}, {1, 1, 1, 1}},
    {{1, 0, 4, 4}, {3, 3}, {1, 1, 1, 1}},
};

}  // namespace

TEST_CASE("pool_difference/is_the_oracles") {
  unsigned seed = 1;
  for (const Windows& w : windows)
    for (const bool scale : {false, true})
      for (const bool residual : {false, true})
        for (const std::int64_t include : {0, 1})
          check_op(difference(w.x, w.kernel, w.pads, seed += 3, scale, residual, include));
  OpCase dilated = difference({1, 6, 9, 9}, {3, 3}, {2, 2, 2, 2}, seed, true, true);
  dilated.attributes.emplace_back("dilations", Ints{2, 2});
  check_op(dilated);
  OpCase same = difference({1, 6, 9, 9}, {4, 4}, {}, seed, true, true);
  same.attributes = {
      {"kernel_shape", Ints{4, 4}}, {"auto_pad", std::string("SAME_UPPER")}, {"subtract_input", std::int64_t{1}}};
  check_op(same);
}

TEST_CASE("pool_difference/every_instruction_set") {
  check_op_on_every_instruction_set(difference({1, 37, 6, 7}, {3, 3}, {1, 1, 1, 1}, 1, true, true));
  check_op_on_every_instruction_set(difference({1, 2, 6, 37}, {3, 3}, {1, 1, 1, 1}, 1, true, true));
}

// Sums are float32: the scale stays float32, too.
TEST_CASE("pool_difference/bfloat16_with_a_float32_scale") {
  unsigned seed = 1;
  for (const Windows& w : windows) {
    if (w.x.rank() != 4) continue;
    OpCase c = difference(w.x, w.kernel, w.pads, seed, true, true);
    c.inputs[0] = random_of(DType::bf16, w.x, ++seed, 1, 5);
    c.inputs[2] = random_of(DType::bf16, w.x, ++seed, -3, 2);
    check_op(c);
  }
}

// y = x + gamma * (average - x), as EfficientFormer has it: the residual is x itself. By hand: of 1, 2, 6 the averages
// of three are 1.5, 3 and 4.
TEST_CASE("pool_difference/by_hand") {
  const Tensor x = Tensor::of<float>({1, 1, 1, 3}, {1, 2, 6});
  OpCase c = difference({1, 1, 1, 3}, {1, 3}, {0, 1, 0, 1}, 1, false, false);
  const auto values = [&] {
    const std::vector<Tensor> y = run_op(c);
    return std::vector<float>(y[0].values<float>().begin(), y[0].values<float>().end());
  };
  c.inputs = {x};
  CHECK(values() == std::vector<float>{0.5F, 1, -2});
  c.inputs = {x, Tensor::of<float>({1}, {2})};
  CHECK(values() == std::vector<float>{1, 2, -4});
  c.inputs = {x, Tensor::of<float>({1}, {2}), x};
  CHECK(values() == std::vector<float>{2, 4, 2});
}

TEST_CASE("pool_difference/refusals") {
  const OpCase good = difference({1, 4, 6, 6}, {3, 3}, {1, 1, 1, 1}, 1, true, true);
  CHECK(refusal(good).empty());
  const auto error = [&](const auto& change) {
    OpCase bad = good;
    change(bad);
    return infer_error(bad);
  };
  CHECK(error([](OpCase& c) { c.attributes.emplace_back("strides", Ints{2, 2}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.attributes[1].second = Ints{0, 0, 0, 0}; }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::f32, {3}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[1] = Tensor(DType::f16, {4}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {1, 4, 6, 5}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f16, {1, 4, 6, 6}); }) == ErrorKind::invalid_model);
  // No file has the attribute, or the inputs.
  OpCase file = difference({1, 4, 6, 6}, {3, 3}, {1, 1, 1, 1}, 1, false, false);
  file.opset = 19;
  CHECK(infer_error(file) == ErrorKind::unsupported);
  OpCase inputs = good;
  inputs.opset = 19;
  inputs.attributes.pop_back();
  CHECK(infer_error(inputs) == ErrorKind::unsupported);
}

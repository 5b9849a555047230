// DeformConv with every combination of groups, offsets, mask and bias.

#include <doctest/doctest.h>

#include <limits>

#include "ops/core/kernel.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;

struct Window {
  std::int64_t kernel_h = 3, kernel_w = 3, stride_h = 1, stride_w = 1, dilation = 1;
  Ints pads = {0, 0, 0, 0};
  std::int64_t groups = 1, offset_groups = 1;
};

/// With a mask and a bias.
OpCase deformed(const Shape& x, std::int64_t filters, const Window& w, unsigned seed) {
  const auto places = [&](int axis, std::int64_t kernel, std::int64_t stride, std::size_t pad) {
    return (x[axis] + w.pads[pad] + w.pads[pad + 2] - (kernel - 1) * w.dilation - 1) / stride + 1;
  };
  const std::int64_t p = places(2, w.kernel_h, w.stride_h, 0), q = places(3, w.kernel_w, w.stride_w, 1);
  const std::int64_t taps = w.offset_groups * w.kernel_h * w.kernel_w;
  return {.op = "DeformConv",
          .opset = 22,
          .attributes = {{"strides", Ints{w.stride_h, w.stride_w}},
                         {"dilations", Ints{w.dilation, w.dilation}},
                         {"pads", w.pads},
                         {"group", w.groups},
                         {"offset_group", w.offset_groups}},
          .inputs = {random_f32(x, seed), random_f32({filters, x[1] / w.groups, w.kernel_h, w.kernel_w}, seed + 1),
                     random_of(DType::f32, {x[0], 2 * taps, p, q}, seed + 2, -2.5, 2.5),
                     random_f32({filters}, seed + 3), random_of(DType::f32, {x[0], taps, p, q}, seed + 4, 0, 1)},
          .maybe_constant = {1, 3},
          .tolerance = 1e-5};
}

}  // namespace

TEST_CASE("deform_conv/strides_groups_and_masks_are_the_oracles") {
  unsigned seed = 1;
  const auto check = [&](const Shape& x, std::int64_t filters, const Window& w) {
    OpCase c = deformed(x, filters, w, seed += 5);
    check_op(c);
    c.opset = 19;
    c.attributes.emplace_back("kernel_shape", Ints{w.kernel_h, w.kernel_w});
    c.inputs[3] = Tensor();
    check_op(c);
    c.inputs.resize(3);
    check_op(c);
  };
  check({1, 3, 7, 9}, 5, {});
  check({2, 4, 8, 11}, 6, {.kernel_h = 2, .stride_h = 2, .stride_w = 3, .pads = {1, 0, 2, 1}, .groups = 2});
  check({1, 6, 9, 6}, 9, {.dilation = 2, .pads = {2, 2, 2, 2}, .groups = 3, .offset_groups = 2});
  check({2, 8, 5, 5}, 4, {.kernel_h = 1, .kernel_w = 1, .groups = 4, .offset_groups = 8});
  check({1, 37, 13, 21}, 33, {.pads = {1, 1, 1, 1}});
  check({1, 2, 1, 1}, 3, {.pads = {1, 1, 1, 1}});
  check({3, 64, 12, 12}, 16, {.pads = {1, 1, 1, 1}, .offset_groups = 4});
  check({1, 16, 70, 61}, 8, {.pads = {1, 1, 1, 1}});  // several pieces
  check({0, 4, 5, 5}, 4, {});
}

// Zero offsets give a convolution, integer offsets move the window, far ones read zeros, and NaN gives NaN.
TEST_CASE("deform_conv/by_hand") {
  const auto run = [](float down, float right) {
    Tensor offset(DType::f32, {1, 2, 2, 2});
    for (std::size_t i = 0; i < 4; ++i) {
      offset.values<float>()[i] = down;
      offset.values<float>()[4 + i] = right;
    }
    const std::vector<Tensor> y = run_op({.op = "DeformConv",
                                          .opset = 19,
                                          .inputs = {Tensor::of<float>({1, 1, 2, 2}, {1, 2, 3, 4}),
                                                     Tensor::of<float>({1, 1, 1, 1}, {10}), std::move(offset)}});
    return std::vector<float>(y[0].values<float>().begin(), y[0].values<float>().end());
  };
  using Floats = std::vector<float>;
  CHECK(run(0, 0) == Floats{10, 20, 30, 40});
  CHECK(run(1, 0) == Floats{30, 40, 0, 0});
  CHECK(run(0, 0.5F) == Floats{15, 10, 35, 20});
  CHECK(run(-1, -1) == Floats{0, 0, 0, 10});
  CHECK(run(1e30F, 0) == Floats{0, 0, 0, 0});
  for (const float value : run(0, std::numeric_limits<float>::quiet_NaN())) CHECK(value != value);
}

TEST_CASE("deform_conv/groups_and_offsets_that_do_not_fit_are_refused") {
  const auto error = [](const auto& change) {
    OpCase c = deformed({2, 4, 8, 8}, 6, {.groups = 2}, 1);
    change(c);
    return infer_error(c);
  };
  const auto with = [&](const char* name, auto value) {
    return error([&](OpCase& c) {
      for (auto& [key, old] : c.attributes)
        if (key == name) old = value;
    });
  };
  CHECK(with("group", std::int64_t{3}) == ErrorKind::invalid_model);
  CHECK(with("group", std::int64_t{0}) == ErrorKind::invalid_model);
  CHECK(with("offset_group", std::int64_t{3}) == ErrorKind::invalid_model);
  CHECK(with("strides", Ints{0, 1}) == ErrorKind::invalid_model);
  CHECK(with("pads", Ints{1, -1, 0, 0}) == ErrorKind::invalid_model);
  CHECK(with("dilations", Ints{4, 4}) == ErrorKind::invalid_model);
  CHECK(with("dilations", Ints{1, 1, 1}) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.attributes.emplace_back("kernel_shape", Ints{3, 5}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {2, 18, 5, 6}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[3] = Tensor(DType::f32, {5}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[4] = Tensor(DType::f32, {2, 18, 6, 6}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[0] = Tensor(DType::f32, {2, 4, 8}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.opset = 18; }) == ErrorKind::unsupported);
}

}  // namespace lenslet::test

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "ops/core/kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Text = std::string;
using Ints = std::vector<std::int64_t>;

Tensor floats(std::vector<float> values) {
  return Tensor::of<float>({static_cast<std::int64_t>(values.size())}, std::span<const float>(values));
}

Tensor integers(const Ints& values) {
  return Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span<const std::int64_t>(values));
}

/// Rounding depends on the sum of the filter's taps; the kernel's own tolerance is larger.
constexpr double blended = 4e-6;

OpCase by_scales(const Tensor& x, std::vector<float> scales, AttributeList attributes, std::int64_t opset = 19) {
  const bool nearest = std::none_of(attributes.begin(), attributes.end(), [](const auto& a) {
    return a.first == "mode" && std::get<Text>(a.second) != "nearest";
  });
  return {.op = "Resize",
          .opset = opset,
          .attributes = std::move(attributes),
          .inputs = {x, Tensor(), floats(std::move(scales))},
          .constant = {2},
          .tolerance = nearest ? 0 : blended};
}

OpCase by_sizes(const Tensor& x, const Ints& sizes, AttributeList attributes, std::int64_t opset = 19) {
  OpCase c = by_scales(x, {}, std::move(attributes), opset);
  c.inputs = {x, Tensor(), Tensor(), integers(sizes)};
  c.constant = {3};
  return c;
}

const char* const coordinates[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                   "align_corners", "asymmetric",           "tf_half_pixel_for_nn"};

}  // namespace

TEST_CASE("resize/every_way_of_blending") {
  unsigned seed = 1;
  for (const char* mode : {"linear", "cubic"})
    for (const char* from : coordinates)
      for (const std::int64_t antialias : {0, 1})
        for (const std::int64_t exclude : {0, 1}) {
          const AttributeList attributes{{"mode", Text(mode)},
                                         {"coordinate_transformation_mode", Text(from)},
                                         {"antialias", antialias},
                                         {"exclude_outside", exclude}};
          const Tensor x = random_f32({2, 3, 7, 10}, seed++);
          check_op(by_scales(x, {1, 1, 2, 0.6F}, attributes));
          check_op(by_sizes(x, {2, 3, 5, 23}, attributes));
          check_op(by_sizes(x, {2, 3, 1, 1}, attributes));
        }
  check_op(by_scales(random_f32({1, 2, 5, 6}, 3), {1, 1, 1.5F, 2}, {{"mode", Text("cubic")}, {"cubic_coeff_a", -0.5}}));
}

TEST_CASE("resize/every_way_to_the_nearest") {
  unsigned seed = 1;
  for (const char* from : coordinates)
    for (const char* nearest : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
      const AttributeList attributes{{"coordinate_transformation_mode", Text(from)}, {"nearest_mode", Text(nearest)}};
      const Tensor x = random_f32({2, 3, 6, 9}, seed++);
      check_op(by_scales(x, {1, 1, 2, 2}, attributes));
      check_op(by_scales(x, {1, 1, 0.5F, 1.7F}, attributes, 11));
      check_op(by_sizes(x, {2, 3, 13, 4}, attributes, 13));
    }
  for (const DType dtype : {DType::f64, DType::i8, DType::u8, DType::i16, DType::i32, DType::i64, DType::boolean})
    check_op(by_scales(random_of(dtype, {1, 4, 3, 5}, 2, 0, 2), {1, 1, 3, 2}, {}));
  check_op(by_sizes(random_f32({1, 1, 3, 4}, 7), {1, 1, 1, 1}, {}));
}

// Coordinates in integers: (in - 1) / 2 + (x + (1 - out) / 2) / scale = at / (2 * eighths).
TEST_CASE("resize/the_nearest_of_symmetric_ties") {
  for (std::int64_t in = 1; in <= 20; ++in)
    for (std::int64_t eighths = 8 / in + 1; eighths <= 26; ++eighths)
      for (const char* nearest : {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}) {
        Tensor x(DType::f32, Shape{in});
        for (std::int64_t i = 0; i < in; ++i) x.values<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i);
        const OpCase c = by_scales(
            x, {static_cast<float>(eighths) / 8},
            {{"coordinate_transformation_mode", Text("half_pixel_symmetric")}, {"nearest_mode", Text(nearest)}});
        check_op(c);
        const Tensor y = run_op(c)[0];
        const std::int64_t out = in * eighths / 8, unit = 2 * eighths;
        REQUIRE(y.shape() == Shape{out});
        for (std::int64_t j = 0; j < out; ++j) {
          std::int64_t at = (in - 1) * eighths + (2 * j + 1 - out) * 8;
          if (Text(nearest) == "ceil") at += unit - 1;
          if (Text(nearest) == "round_prefer_ceil") at += eighths;
          if (Text(nearest) == "round_prefer_floor") at += eighths - 1;
          const std::int64_t down = (at + in * unit) / unit - in;
          CHECK(y.values<float>()[static_cast<std::size_t>(j)] ==
                static_cast<float>(std::clamp<std::int64_t>(down, 0, in - 1)));
        }
      }
}

// The bits of ONNX Runtime's float32, which the oracle reproduces.
TEST_CASE("resize/linear_of_integers") {
  unsigned seed = 1;
  for (const DType dtype : {DType::u8, DType::i8}) {
    const auto drawn = [&](const Shape& shape) {
      return random_of(dtype, shape, seed++, dtype == DType::u8 ? 0 : -128, dtype == DType::u8 ? 255 : 127);
    };
    const auto exact = [](OpCase c) {
      c.tolerance = 0;
      check_op(c);
    };
    for (const char* from : coordinates) {
      const AttributeList attributes{{"mode", Text("linear")}, {"coordinate_transformation_mode", Text(from)}};
      exact(by_scales(drawn({2, 3, 7, 10}), {1, 1, 2, 2}, attributes));
      exact(by_scales(drawn({2, 3, 7, 10}), {1, 1, 1.7F, 0.6F}, attributes, 13));
      exact(by_sizes(drawn({1, 5, 6, 9}), {1, 5, 13, 1}, attributes, 11));
    }
    const AttributeList linear{{"mode", Text("linear")}};
    exact(by_scales(drawn({9}), {2.5F}, linear));
    exact(by_scales(drawn({2, 5, 9}), {1, 3, 1}, linear));
    // Axes that keep their size are blended with the others.
    for (const float scale : {1.7F, 3.0F}) {
      exact(by_scales(drawn({7, 9}), {scale, 1}, linear));
      exact(by_scales(drawn({7, 9}), {1, scale}, linear));
      exact(by_scales(drawn({6, 5, 9}), {scale, 1, 1}, linear));
      exact(by_scales(drawn({3, 5, 4, 9}), {1, 1, scale, 1}, linear));
      exact(by_scales(drawn({1, 2, 5, 4, 9}), {1, 1, 1, scale, 1}, linear));
    }
    exact(by_scales(drawn({1, 2, 3, 4, 5}), {1, 1, 3, 2, 1.5F}, linear));
    exact(by_scales(drawn({2, 3, 2, 4, 2, 3}), {1, 3, 1, 1.5F, 1, 3}, linear));
    exact(by_scales(drawn({2, 3, 4, 5}), {2, 3, 0.5F, 3}, linear));
    exact(by_scales(drawn({1, 300, 5, 6}), {1, 1, 3, 3}, linear));
    exact(by_scales(drawn({1, 3, 4, 4}), {1, 1, 1, 1}, linear));
    exact(by_scales(drawn({0, 3, 4, 4}), {1, 1, 2, 2}, linear));
  }
}

TEST_CASE("resize/shapes") {
  const AttributeList linear{{"mode", Text("linear")}};
  check_op(by_scales(random_f32({7}, 1), {2.5F}, linear));
  check_op(by_sizes(random_f32({7}, 1), {17}, linear));
  check_op(by_scales(random_f32({2, 5, 9}, 2), {1, 1, 0.5F}, linear));
  check_op(by_scales(random_f32({1, 2, 3, 4, 5}, 3), {1, 1, 2, 2, 2}, linear));
  check_op(by_scales(random_f32({2, 3, 4, 5}, 4), {2, 2, 0.5F, 3}, linear));
  check_op(by_scales(random_f32({1, 16, 33, 65}, 5), {1, 1, 4, 4}, linear));  // several pieces
  check_op(by_scales(random_f32({1, 3, 4, 4}, 6), {1, 1, 1, 1}, linear));
  check_op(by_scales(random_f32({0, 3, 4, 4}, 7), {1, 1, 2, 2}, linear));
  check_op(by_scales(random_f32({1, 3, 4, 4}, 8), {1, 1, 0.2F, 2}, linear));  // nothing remains
  // A scale that float32 rounds up to the next integer: 10 * 2.3F is 23.
  CHECK(infer_op(by_scales(random_f32({10}, 1), {2.3F}, linear))[0].shape == Shape{23});
}

// Sizes from which CUDA computes several columns a thread, or several rows a block.
TEST_CASE("resize/large_planes") {
  const Ints sizes{1, 7, 197, 384};
  check_op(by_sizes(random_f32({1, 7, 400, 500}, 1), sizes, {{"mode", Text("linear")}}));
  for (const std::int64_t width : {341, 342, 614, 615, 1024, 1025})
    check_op(by_sizes(random_f32({1, 7, 60, width}, 1), sizes, {{"mode", Text(width % 2 == 0 ? "cubic" : "linear")}}));
  check_op(by_sizes(random_of(DType::u8, {1, 7, 98, 171}, 2, 0, 255), sizes, {}));
  OpCase c = by_sizes(random_f32({1, 7, 98, 171}, 3), sizes,
                      {{"mode", Text("linear")},
                       {"coordinate_transformation_mode", Text("tf_crop_and_resize")},
                       {"extrapolation_value", 10.0}});
  c.inputs[1] = floats({0, 0, 0.3F, -0.5F, 1, 1, 1.4F, 0.9F});
  c.constant = {1, 3};
  check_op(c);
}

TEST_CASE("resize/axes_and_aspect_ratio") {
  const Tensor x = random_f32({1, 2, 8, 5}, 1);
  for (const char* policy : {"stretch", "not_larger", "not_smaller"}) {
    check_op(by_sizes(x, {7, 9},
                      {{"mode", Text("linear")}, {"axes", Ints{2, 3}}, {"keep_aspect_ratio_policy", Text(policy)}}));
    check_op(by_sizes(x, {9, 7}, {{"axes", Ints{-1, -2}}, {"keep_aspect_ratio_policy", Text(policy)}}));
  }
  check_op(by_scales(x, {3}, {{"mode", Text("cubic")}, {"axes", Ints{3}}}));
  CHECK(infer_op(by_sizes(x, {6, 6}, {{"axes", Ints{2, 3}}, {"keep_aspect_ratio_policy", Text("not_larger")}}))[0]
            .shape == Shape{1, 2, 6, 4});
}

TEST_CASE("resize/regions") {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const std::vector<float>& roi : {std::vector<float>{0, 0, 0.4F, 0.6F, 1, 1, 0.6F, 0.8F},
                                          {0, 0, 0.3F, -0.5F, 1, 1, 1.4F, 0.9F},
                                          {0, 0, 0.9F, 1, 1, 1, 0.1F, 0}}) {
      OpCase c = by_sizes(random_f32({1, 2, 6, 7}, 1), {1, 2, 5, 4},
                          {{"mode", Text(mode)},
                           {"coordinate_transformation_mode", Text("tf_crop_and_resize")},
                           {"extrapolation_value", 10.0}});
      c.inputs[1] = floats(roi);
      c.constant = {1, 3};
      check_op(c);
    }
}

TEST_CASE("resize/before_opset_11") {
  const Tensor x = random_f32({1, 3, 5, 4}, 1), scales = floats({1, 1, 1.6F, 2});
  for (const char* mode : {"nearest", "linear"}) {
    const AttributeList attributes{{"mode", Text(mode)}};
    const double tolerance = Text(mode) == "nearest" ? 0 : blended;
    check_op({.op = "Resize",
              .opset = 10,
              .attributes = attributes,
              .inputs = {x, scales},
              .constant = {1},
              .tolerance = tolerance});
    check_op({.op = "Upsample",
              .opset = 9,
              .attributes = attributes,
              .inputs = {x, scales},
              .constant = {1},
              .tolerance = tolerance});
    check_op({.op = "Upsample",
              .opset = 7,
              .attributes = {{"mode", Text(mode)}, {"scales", std::vector<double>{1, 1, 2, 3}}},
              .inputs = {x},
              .tolerance = tolerance});
  }
  // Asymmetric, and down.
  const Tensor y =
      run_op({.op = "Resize", .opset = 10, .inputs = {floats({1, 2}), floats({1.5F})}, .constant = {1}})[0];
  CHECK(y.shape() == Shape{3});
  CHECK(y.values<float>()[1] == 1);
  // ONNX 1.5, test_resize_downsample_nearest: [[1, 2, 3, 4], [5, 6, 7, 8]] by 0.6 is [[1, 3]].
  check_op({.op = "Resize", .opset = 10, .inputs = {x, floats({1, 1, 0.6F, 0.7F})}, .constant = {1}, .tolerance = 0});
  const Tensor down =
      run_op({.op = "Resize", .opset = 10, .inputs = {floats({1, 2, 3, 4}), floats({0.6F})}, .constant = {1}})[0];
  CHECK(down.shape() == Shape{2});
  CHECK(down.values<float>()[1] == 3);
}

TEST_CASE("resize/scales_sizes_and_axes_that_make_no_sense_are_refused") {
  const Tensor x = random_f32({1, 3, 4, 4}, 1);
  const auto kind = [&](const OpCase& c) { return infer_error(c); };
  CHECK(kind(by_scales(x, {1, 1, 2}, {})) == ErrorKind::invalid_model);
  CHECK(kind(by_scales(x, {1, 1, 2, 0}, {})) == ErrorKind::invalid_model);
  CHECK(kind(by_scales(x, {1, 1, 2, -1}, {})) == ErrorKind::invalid_model);
  CHECK(kind(by_scales(x, {1, 1, 2, std::numeric_limits<float>::quiet_NaN()}, {})) == ErrorKind::invalid_model);
  CHECK(kind(by_scales(x, {1, 1, 2, 1e30F}, {})) == ErrorKind::limit);
  CHECK(kind(by_sizes(x, {1, 3, -4, 4}, {})) == ErrorKind::invalid_model);
  CHECK(kind(by_sizes(x, {1, 3, 4}, {})) == ErrorKind::invalid_model);
  CHECK(kind(by_sizes(random_f32({1, 3, 0, 4}, 1), {1, 3, 4, 4}, {})) == ErrorKind::invalid_model);
  CHECK(kind(by_scales(x, {2, 2}, {{"axes", Ints{2, 2}}})) == ErrorKind::invalid_model);
  CHECK(kind(by_scales(x, {2}, {{"axes", Ints{4}}})) == ErrorKind::invalid_model);
  CHECK(kind(by_scales(x, {1, 1, 2, 2}, {{"coordinate_transformation_mode", Text("tf_crop_and_resize")}})) ==
        ErrorKind::invalid_model);  // no roi
  OpCase both = by_scales(x, {1, 1, 2, 2}, {});
  both.inputs.push_back(int64s({1, 3, 8, 8}));
  both.constant = {2, 3};
  CHECK(kind(both) == ErrorKind::invalid_model);
  OpCase computed = by_scales(x, {1, 1, 2, 2}, {});
  computed.constant = {};
  CHECK(kind(computed) == ErrorKind::unsupported);
  CHECK_THROWS_WITH_AS(make_op(by_scales(x, {1}, {{"mode", Text("lanczos")}})),
                       "attribute 'mode' is 'lanczos' (supported: nearest, linear, cubic)", Error);
  CHECK_ERROR(make_op(by_scales(x, {1}, {{"antialias", std::int64_t{1}}}, 13)), unsupported,
              "attribute 'antialias' is not supported");
  CHECK_ERROR(make_op({.op = "Resize", .opset = 10, .attributes = {{"mode", Text("cubic")}}, .inputs = {x, x}}),
              invalid_model, "attribute 'mode' is 'cubic' before opset 11");
  // Integers support only linear mode, without antialiasing.
  const auto refused = [](const OpCase& c, DeviceKind device) {
    const Problem problem(make_op(c), infos_of(c.inputs, c.constant));
    return kernels_of("Resize", device)
        .front()
        ->offer(problem, {device == DeviceKind::cpu ? cpu_profile(1) : reference_gpu()})
        .refusal;
  };
  const Tensor bytes(DType::u8, {1, 1, 2, 2});
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    CHECK(refused(by_scales(bytes, {1, 1, 2, 2}, {{"mode", Text("cubic")}}), device) ==
          "mode cubic with half_pixel of uint8 (supported: float32)");
    CHECK(refused(by_scales(bytes, {1, 1, 2, 2}, {{"mode", Text("linear")}, {"antialias", std::int64_t{1}}}), device) ==
          "mode linear, antialias, with half_pixel of uint8 (supported: float32)");
    CHECK(refused(by_scales(Tensor(DType::i32, {1, 1, 2, 2}), {1, 1, 2, 2}, {{"mode", Text("linear")}}), device) ==
          "mode linear with half_pixel of int32 (supported: float32)");
  }
}

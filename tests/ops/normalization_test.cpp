#include <doctest/doctest.h>

#include <cmath>

#include "tests/ops/op_harness.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

OpCase batch_norm(const Shape& x, unsigned seed) {
  const Shape channels{x[1]};
  return {
      .op = "BatchNormalization",
      .opset = 15,
      .inputs = {random_f32(x, seed, 0.5, 2), random_f32(channels, seed + 1, 1, 0.3), random_f32(channels, seed + 2),
                 random_f32(channels, seed + 3), random_of(DType::f32, channels, seed + 4, 0.1, 3)},
      .maybe_constant = {1, 2, 3, 4},
      .tolerance = 1e-6};
}

}  // namespace

TEST_CASE("batch_norm/ranks_and_layouts") {
  unsigned seed = 1;
  for (const Shape& x : {Shape{3, 7}, Shape{2, 5, 9}, Shape{2, 16, 5, 7}, Shape{1, 3, 61, 67}, Shape{3, 17, 1, 1},
                         Shape{1, 6, 3, 5, 4}, Shape{0, 4, 2, 2}})
    for (const std::int64_t opset : {7, 9, 14, 15}) {
      OpCase c = batch_norm(x, seed += 5);
      c.opset = opset;
      c.attributes = {{"epsilon", 1e-3}, {"momentum", 0.9}};
      check_op(c);
    }
}

TEST_CASE("batch_norm/refusals") {
  OpCase c = batch_norm({2, 5, 3, 3}, 1);
  const auto message = [](const OpCase& bad) {
    try {
      infer_op(bad);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK(message(c).empty());
  OpCase training = c;
  training.attributes = {{"training_mode", std::int64_t{1}}};
  CHECK(message(training).find("training_mode") != std::string::npos);
  OpCase spatial = c;
  spatial.opset = 7;
  spatial.attributes = {{"spatial", std::int64_t{0}}};
  CHECK(message(spatial).find("spatial") != std::string::npos);
  OpCase short_mean = c;
  short_mean.inputs[3] = Tensor(DType::f32, {4});
  CHECK(message(short_mean).find("mean") != std::string::npos);
  OpCase more_outputs = c;
  more_outputs.outputs = 3;
  CHECK(message(more_outputs).find("training") != std::string::npos);
}

TEST_CASE("batch_norm/as_channel_affine") {
  const auto one = [](float value) { return Tensor::of<float>({1}, {value}); };
  const OpCase c{.op = "BatchNormalization",
                 .attributes = {{"epsilon", 0.25}},
                 .inputs = {random_f32({2, 1, 3}, 1), one(2), one(3), one(5), one(3.75f)}};
  const auto op = make_op(c);
  const Shape& y = c.inputs[0].shape();
  std::vector<InputInfo> infos;
  for (const Tensor& input : c.inputs) infos.push_back({true, {DType::f32, input.shape()}, &input});
  infos[0].constant = nullptr;
  const auto affine = op->as_channel_affine(infos, 0, y);
  REQUIRE(affine.has_value());
  CHECK(affine->factor == std::vector<double>{1.0});
  CHECK(affine->offset == std::vector<double>{-2.0});
  CHECK_FALSE(op->as_channel_affine(infos, 1, y).has_value());
  infos[3].constant = nullptr;
  CHECK_FALSE(op->as_channel_affine(infos, 0, y).has_value());
}

TEST_CASE("instance_norm/ranks") {
  unsigned seed = 1;
  for (const Shape& x : {Shape{2, 5, 9}, Shape{2, 16, 5, 7}, Shape{1, 3, 61, 67}, Shape{1, 6, 3, 5, 4}})
    for (const double mean : {0.0, 100.0})
      check_op({.op = "InstanceNormalization",
                .attributes = {{"epsilon", 1e-4}},
                .inputs = {random_f32(x, seed++, mean), random_f32({x[1]}, seed++, 1, 0.3), random_f32({x[1]}, seed++)},
                .maybe_constant = {1, 2},
                .tolerance = 2e-6});
}

namespace {

/// With all three outputs.
OpCase layer_norm(const Shape& x, int axis, unsigned seed, bool bias = true, double mean = 0) {
  const Shape row(x.dims().subspan(static_cast<std::size_t>(axis < 0 ? axis + x.rank() : axis)));
  OpCase c{.op = "LayerNormalization",
           .opset = 17,
           .attributes = {{"axis", std::int64_t{axis}}, {"epsilon", 1e-4}},
           .inputs = {random_f32(x, seed, mean), random_f32(row, seed + 1, 1, 0.3)},
           .outputs = 3,
           .maybe_constant = {1, 2},
           .tolerance = 2.1e-6};
  if (bias) c.inputs.push_back(random_f32(row, seed + 2));
  return c;
}

}  // namespace

TEST_CASE("layer_norm/every_axis") {
  unsigned seed = 1;
  for (const Shape& x : {Shape{7}, Shape{5, 1}, Shape{3, 5, 7}, Shape{2, 6, 5, 8}, Shape{2, 3, 1, 4, 5}})
    for (int axis = -x.rank(); axis < x.rank(); ++axis)
      for (const double mean : {0.0, 100.0}) check_op(layer_norm(x, axis, seed += 3, axis % 2 == 0, mean));
}

// CUDA holds rows of up to 2048 elements, or 8192 in fours.
TEST_CASE("layer_norm/lengths_of_rows") {
  unsigned seed = 1;
  for (const std::int64_t length : {1, 2, 33, 255, 768, 1027, 2047, 2048, 2049, 2052, 8191, 8192, 8196, 12288, 70001})
    for (const std::int64_t rows : {1, 3}) check_op(layer_norm({rows, length}, -1, seed += 3, true, 10));
  for (const std::int64_t length : {3, 96}) check_op(layer_norm({5003, length}, 1, seed += 3));
}

TEST_CASE("layer_norm/empty") {
  for (const Shape& x : {Shape{0, 4}, Shape{3, 0}, Shape{2, 0, 5}, Shape{0}})
    for (int axis = 0; axis < x.rank(); ++axis) check_op(layer_norm(x, axis, 1));
}

// (1, 2, 3, 6) has mean 3 and variance 3.5; a row of equals has variance 0.
TEST_CASE("layer_norm/outputs_and_defaults") {
  OpCase c{.op = "LayerNormalization",
           .opset = 17,
           .attributes = {{"epsilon", 0.5}},
           .inputs = {Tensor::of<float>({2, 4}, {1, 2, 3, 6, 5, 5, 5, 5}), Tensor::of<float>({4}, {1, 2, 1, 2}),
                      Tensor::of<float>({4}, {0, 0, 1, 1})}};
  const std::vector<std::vector<float>> expected{{-1, -1, 1, 4, 0, 0, 1, 1}, {3, 5}, {0.5f, std::sqrt(2.0f)}};
  for (c.outputs = 1; c.outputs <= 3; ++c.outputs) {
    const std::vector<Tensor> outputs = run_op(c);
    REQUIRE(outputs.size() == c.outputs);
    for (std::size_t i = 0; i < c.outputs; ++i) {
      const auto values = outputs[i].values<float>();
      CHECK(std::vector<float>(values.begin(), values.end()) == expected[i]);
    }
  }
  CHECK(to_string(make_op({.op = c.op, .opset = 17, .inputs = {Tensor(), Tensor()}})->attributes()) ==
        "axis=-1 epsilon=1e-05");
}

TEST_CASE("layer_norm/refusals") {
  const auto message = [](const auto& change) {
    OpCase c = layer_norm({2, 3, 4}, 1, 1);
    change(c);
    try {
      infer_op(c);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK(message([](OpCase&) {}).empty());
  CHECK(message([](OpCase& c) {
          c.attributes = {{"stash_type", std::int64_t{10}}};
        }) == "attribute 'stash_type' = 10 (supported: 1, float32)");
  CHECK(message([](OpCase& c) { c.inputs[1] = Tensor(DType::f32, {4}); }) ==
        "input Scale has shape [4] (supported: [3,4], that of a row)");
  CHECK(message([](OpCase& c) {
          c.inputs[2] = Tensor(DType::f32, {2, 3, 4});
        }) == "input B has shape [2,3,4] (supported: [3,4], that of a row)");
  CHECK(message([](OpCase& c) {
          c.inputs[2] = Tensor(DType::f64, {3, 4});
        }) == "input 2 is float64, but input 0 is float32");
  CHECK(message([](OpCase& c) { c.inputs[1] = Tensor(); }) == "input 1 (Scale) is missing");
  CHECK(message([](OpCase& c) {
          c.attributes = {{"axis", std::int64_t{3}}};
        }) == "axis 3 is outside a tensor of rank 3");
  CHECK(message([](OpCase& c) { c.inputs[0] = Tensor(DType::f32, {}); }) == "axis 1 is outside a tensor of rank 0");
  CHECK(message([](OpCase& c) {
          for (Tensor& input : c.inputs) input = Tensor(DType::f64, input.shape());
        }) == "input 0 has element type float64 (supported: float32)");
  CHECK(message([](OpCase& c) { c.opset = 16; }) == "LayerNormalization is not in the op table");
}

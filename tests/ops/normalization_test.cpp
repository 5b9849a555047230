#include <doctest/doctest.h>

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

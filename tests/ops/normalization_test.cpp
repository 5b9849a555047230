#include <doctest/doctest.h>

#include "ops/normalization/batch_norm.h"
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

TEST_CASE("batch_norm/as_scale") {
  const float scale[] = {2}, bias[] = {3}, mean[] = {5}, var[] = {3.75f};
  double factor[1], offset[1];
  batch_norm_as_scale(0.25f, scale, bias, mean, var, factor, offset);
  CHECK(factor[0] == 1.0);
  CHECK(offset[0] == -2.0);
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

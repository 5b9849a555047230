#include <doctest/doctest.h>

#include <cmath>

#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

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

// On CUDA a thread then has several rows' packs.
TEST_CASE("batch_norm/large") {
  const std::int64_t side = op_runner().device() == DeviceKind::cuda ? 192 : 24;
  check_op(batch_norm({3, 40, side, side}, 700));
}

TEST_CASE("batch_norm/activations") {
  unsigned seed = 1;
  for (const char* const kind : {"relu", "clip", "leaky_relu", "silu", "hard_swish"})
    for (const Shape& x : {Shape{2, 16, 5, 7}, Shape{1, 3, 9, 8}, Shape{3, 7}}) {
      OpCase c = batch_norm(x, seed += 5);
      c.opset = 0;
      c.attributes = {{"epsilon", 1e-3},
                      {"activation", std::string(kind)},
                      {"activation_alpha", kind == std::string("hard_swish") ? 0.25 : -0.25},
                      {"activation_beta", 0.5}};
      check_op(c);
    }
}

TEST_CASE("batch_norm/training_and_per_activation_statistics_are_refused") {
  OpCase c = batch_norm({2, 5, 3, 3}, 1);
  CHECK(refusal(c).empty());
  OpCase training = c;
  training.attributes = {{"training_mode", std::int64_t{1}}};
  CHECK(refusal(training).find("training_mode") != std::string::npos);
  OpCase spatial = c;
  spatial.opset = 7;
  spatial.attributes = {{"spatial", std::int64_t{0}}};
  CHECK(refusal(spatial).find("spatial") != std::string::npos);
  OpCase short_mean = c;
  short_mean.inputs[3] = Tensor(DType::f32, {4});
  CHECK(refusal(short_mean).find("mean") != std::string::npos);
  OpCase more_outputs = c;
  more_outputs.outputs = 3;
  CHECK(refusal(more_outputs).find("training") != std::string::npos);
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
  Epilogue relu = *op->epilogue();
  relu.activation.kind = Activation::Kind::relu;
  CHECK_FALSE(op->with_epilogue(relu)->as_channel_affine(infos, 0, y).has_value());
  infos[3].constant = nullptr;
  CHECK_FALSE(op->as_channel_affine(infos, 0, y).has_value());
}

TEST_CASE("instance_norm/ranks") {
  unsigned seed = 1;
  for (const Shape& x :
       {Shape{2, 5, 9}, Shape{2, 16, 5, 7}, Shape{1, 3, 61, 67}, Shape{1, 6, 3, 5, 4}, Shape{1, 3, 8, 1031}})
    for (const double mean : {0.0, 100.0})
      check_op({.op = "InstanceNormalization",
                .attributes = {{"epsilon", 1e-4}},
                .inputs = {random_f32(x, seed++, mean), random_f32({x[1]}, seed++, 1, 0.3), random_f32({x[1]}, seed++)},
                .maybe_constant = {1, 2},
                .tolerance = 2e-6});
}

namespace {

OpCase group_norm(const Shape& x, std::int64_t groups, std::int64_t opset, unsigned seed, double mean = 0) {
  const Shape affine{opset < 21 ? groups : x[1]};
  return {.op = "GroupNormalization",
          .opset = opset,
          .attributes = {{"num_groups", groups}, {"epsilon", 1e-4}},
          .inputs = {random_f32(x, seed, mean), random_f32(affine, seed + 1, 1, 0.3), random_f32(affine, seed + 2)},
          .maybe_constant = {1, 2},
          .tolerance = 2.1e-6};
}

}  // namespace

TEST_CASE("group_norm/ranks_and_groups") {
  unsigned seed = 1;
  for (const Shape& x : {Shape{3, 12}, Shape{2, 6, 9}, Shape{2, 12, 5, 7}, Shape{1, 6, 61, 67}, Shape{1, 6, 3, 5, 4},
                         Shape{2, 6, 1, 2, 3, 2}, Shape{0, 6, 2}, Shape{2, 6, 0, 3}, Shape{2, 0, 3}, Shape{1, 6, 70001},
                         Shape{1, 36, 57}, Shape{1, 6, 8, 1032}})
    for (const std::int64_t groups : {1, 2, 3, 6})
      for (const std::int64_t opset : {18, 21}) check_op(group_norm(x, groups, opset, seed += 3, groups == 2 ? 50 : 0));
}

// One group is computed in nhwc, too. CUDA: images in the registers of one block, of a cluster of blocks (over 8192
// elements, channels in whole vectors), and by pieces (other channels, and images of more than a cluster holds).
TEST_CASE("group_norm/one_group_with_channels_last") {
  unsigned seed = 1;
  for (const Shape& x :
       {Shape{3, 16, 5, 7}, Shape{1, 64, 28, 28}, Shape{2, 320, 14, 14}, Shape{3, 40, 17, 19}, Shape{1, 8, 33, 65},
        Shape{1, 10000, 3, 1}, Shape{2, 13, 30, 31}, Shape{1, 64, 66, 67}, Shape{1, 1, 90, 100}, Shape{1, 6, 90, 100},
        Shape{1, 12, 40, 41}, Shape{1, 40000, 1, 1}, Shape{0, 16, 40, 40}, Shape{1, 0, 3, 3}, Shape{2, 16, 0, 3}})
    for (const double mean : {0.0, 50.0}) check_op(group_norm(x, 1, mean == 0 ? 18 : 21, seed += 3, mean));
}

// Groups in nhwc: slabs of several groups and of one, of packs in one group and across groups, of single elements, and
// of more packs than a block has threads; chunks of pixels, the last one shorter.
TEST_CASE("group_norm/groups_with_channels_last") {
  struct Case {
    Shape x;
    std::int64_t groups;
  };
  unsigned seed = 1;
  for (const auto& [x, groups] : {Case{{2, 64, 28, 28}, 32},
                                  {{1, 64, 15, 13}, 16},
                                  {{2, 512, 7, 7}, 32},
                                  {{1, 96, 9, 11}, 12},
                                  {{1, 130, 6, 7}, 13},
                                  {{3, 30, 17, 19}, 3},
                                  {{1, 100, 12, 9}, 4},
                                  {{1, 100, 5, 6}, 1},
                                  {{1, 320, 3, 5}, 5},
                                  {{1, 4608, 3, 2}, 2},
                                  {{1, 10, 33, 40}, 2},
                                  {{1, 512, 2, 2}, 512},
                                  {{1, 514, 2, 3}, 257},
                                  {{2, 8, 1, 1}, 4},
                                  {{0, 16, 4, 4}, 4},
                                  {{2, 16, 0, 3}, 4}})
    for (const double mean : {0.0, 50.0}) check_op(group_norm(x, groups, mean == 0 ? 18 : 21, seed += 3, mean));
}

TEST_CASE("group_norm/activations") {
  unsigned seed = 1;
  for (const char* const kind : {"relu", "clip", "leaky_relu", "silu", "hard_swish"})
    for (const std::int64_t groups : {1, 4, 16})
      for (const bool instance : {false, true}) {
        OpCase c = group_norm({2, 16, 7, 9}, groups, 21, seed += 3);
        c.opset = 0;
        c.attributes = {{"epsilon", 1e-3},
                        {"activation", std::string(kind)},
                        {"activation_alpha", kind == std::string("hard_swish") ? 0.25 : -0.25},
                        {"activation_beta", 0.5}};
        if (instance)
          c.op = "InstanceNormalization";
        else
          c.attributes.emplace_back("num_groups", groups);
        check_op(c);
      }
}

// Squares of distances beyond float32, which holds 3.4e38 and 1.2e-38, and of a first element far from all others.
TEST_CASE("group_norm/ranges") {
  unsigned seed = 1;
  for (const float factor : {1e25F, 1e-16F, 1.0F}) {
    OpCase c = group_norm({2, 16, 26, 27}, 1, 21, seed += 3);
    c.attributes = {{"num_groups", std::int64_t{1}}, {"epsilon", 1e-34}};
    for (float& value : c.inputs[0].values<float>()) value *= factor;
    if (factor == 1) c.inputs[0].values<float>()[0] = 1000;
    check_op(c);
    c.attributes[0].second = std::int64_t{4};
    check_op(c);
  }
}

// Two groups of two channels of one pixel each: (1, 3) and (5, 9) have means 2 and 7, variances 1 and 4.
TEST_CASE("group_norm/scale_of_group_or_channel") {
  OpCase c{.op = "GroupNormalization",
           .opset = 18,
           .attributes = {{"num_groups", std::int64_t{2}}, {"epsilon", 0.0}},
           .inputs = {Tensor::of<float>({1, 4}, {1, 3, 5, 9}), Tensor::of<float>({2}, {1, 2}),
                      Tensor::of<float>({2}, {0, 1})}};
  const auto values = [&] {
    const std::vector<Tensor> y = run_op(c);
    return std::vector<float>(y[0].values<float>().begin(), y[0].values<float>().end());
  };
  CHECK(values() == std::vector<float>{-1, 1, -1, 3});
  CHECK(infer_error([&] {
          OpCase later = c;
          later.opset = 21;
          return later;
        }()) == ErrorKind::invalid_model);
  c.opset = 21;
  c.inputs[1] = Tensor::of<float>({4}, {1, 2, 3, 4});
  c.inputs[2] = Tensor::of<float>({4}, {0, 0, 1, 1});
  CHECK(values() == std::vector<float>{-1, 2, -2, 5});
}

TEST_CASE("group_norm/groups_that_do_not_divide_are_refused") {
  const auto error = [](const auto& change) {
    OpCase c = group_norm({2, 6, 4}, 3, 21, 1);
    change(c);
    return infer_error(c);
  };
  const auto groups = [&](std::int64_t count) {
    return error([=](OpCase& c) { c.attributes = {{"num_groups", count}}; });
  };
  for (const std::int64_t count : {-1, 0, 4, 12}) CHECK(groups(count) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.attributes.clear(); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.attributes.emplace_back("stash_type", std::int64_t{10}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.inputs[2] = Tensor(DType::f32, {3}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& c) { c.inputs[0] = Tensor(DType::f32, {6}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& c) { c.opset = 17; }) == ErrorKind::unsupported);
}

namespace {

OpCase rms_norm(const Shape& x, int axis, unsigned seed, double mean = 0) {
  const Shape row(x.dims().subspan(static_cast<std::size_t>(axis < 0 ? axis + x.rank() : axis)));
  return {.op = "RMSNormalization",
          .opset = 23,
          .attributes = {{"axis", std::int64_t{axis}}, {"epsilon", 1e-4}},
          .inputs = {random_f32(x, seed, mean), random_f32(row, seed + 1, 1, 0.3)},
          .maybe_constant = {1},
          .tolerance = 2.1e-6};
}

}  // namespace

// CUDA keeps rows of up to 2048 elements in registers, or 8192 in multiples of four; of 16 bits, up to 1024 in
// multiples of eight, with fewer lanes a row where there are many.
TEST_CASE("rms_norm/every_axis_and_lengths") {
  unsigned seed = 1;
  for (const Shape& x : {Shape{7}, Shape{5, 1}, Shape{3, 5, 7}, Shape{2, 6, 5, 8}, Shape{0, 4}, Shape{3, 0}})
    for (int axis = -x.rank(); axis < x.rank(); ++axis)
      for (const double mean : {0.0, 100.0}) check_op(rms_norm(x, axis, seed += 2, mean));
  for (const std::int64_t length : {1, 2, 33, 768, 1027, 2048, 2049, 8192, 8196, 70001})
    for (const std::int64_t rows : {1, 3}) check_op(rms_norm({rows, length}, -1, seed += 2, 10));
  for (const std::int64_t length : {40, 64, 256, 1024})
    for (const std::int64_t rows : {std::int64_t{3}, 16411 * 40 / length})
      check_op(rms_norm({rows, length}, -1, seed += 2));
}

// (1, 7, 5, 5) has the root mean square 5.
TEST_CASE("rms_norm/by_hand_and_refusals") {
  OpCase c{.op = "RMSNormalization",
           .opset = 23,
           .attributes = {{"epsilon", 0.0}},
           .inputs = {Tensor::of<float>({1, 4}, {1, 7, 5, 5}), Tensor::of<float>({4}, {5, 10, 1, -1})}};
  const std::vector<Tensor> y = run_op(c);
  CHECK(std::vector<float>(y[0].values<float>().begin(), y[0].values<float>().end()) ==
        std::vector<float>{1, 14, 1, -1});
  CHECK(to_string(make_op({.op = c.op, .opset = 23, .inputs = {Tensor(), Tensor()}})->attributes()) ==
        "axis=-1 epsilon=1e-05");
  const auto error = [&](const auto& change) {
    OpCase bad = c;
    change(bad);
    return infer_error(bad);
  };
  CHECK(error([](OpCase& bad) { bad.opset = 22; }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& bad) { bad.inputs[1] = Tensor(DType::f32, {2, 4}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& bad) { bad.inputs.push_back(Tensor(DType::f32, {4})); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& bad) { bad.outputs = 2; }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& bad) { bad.attributes = {{"axis", std::int64_t{2}}}; }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& bad) { bad.attributes = {{"stash_type", std::int64_t{11}}}; }) == ErrorKind::unsupported);
}

TEST_CASE("mean_variance_normalization/axes") {
  unsigned seed = 1;
  using Ints = std::vector<std::int64_t>;
  const auto check = [&](const Shape& x, const AttributeList& attributes) {
    for (const std::int64_t opset : {9, 13})
      for (const double mean : {0.0, 100.0})
        check_op({.op = "MeanVarianceNormalization",
                  .opset = opset,
                  .attributes = attributes,
                  .inputs = {random_f32(x, seed++, mean)},
                  .tolerance = 2e-6});
  };
  for (const Shape& x : {Shape{2, 5, 3, 7}, Shape{3, 16, 13, 12}, Shape{1, 3, 1, 1}, Shape{2, 0, 3, 4}}) {
    check(x, {});
    check(x, {{"axes", Ints{2, 3}}});
    check(x, {{"axes", Ints{-3}}});
    check(x, {{"axes", Ints{0, 1, 2, 3}}});
  }
  check({5, 7}, {{"axes", Ints{0}}});
  check({3, 70001}, {{"axes", Ints{1}}});
  check({7}, {{"axes", Ints{0}}});
  check({2, 3, 4, 5, 6}, {{"axes", Ints{1, 3}}});
  const auto error = [](const Shape& x, const AttributeList& attributes) {
    return infer_error(
        {.op = "MeanVarianceNormalization", .attributes = attributes, .inputs = {Tensor(DType::f32, x)}});
  };
  CHECK(error({2, 3}, {}) == ErrorKind::invalid_model);
  CHECK(error({2, 3}, {{"axes", Ints{1, -1}}}) == ErrorKind::invalid_model);
}

TEST_CASE("lp_normalization/axes") {
  unsigned seed = 1;
  for (const std::int64_t p : {1, 2}) {
    const auto check = [&](const Tensor& x, std::int64_t axis, double tolerance = 2e-6) {
      for (const std::int64_t opset : {1, 22})
        check_op({.op = "LpNormalization",
                  .opset = opset,
                  .attributes = {{"p", p}, {"axis", axis}},
                  .inputs = {x},
                  .tolerance = tolerance});
    };
    for (const Shape& x :
         {Shape{7}, Shape{5, 1}, Shape{3, 5, 7}, Shape{2, 6, 5, 8}, Shape{3, 0}, Shape{3, 512}, Shape{2, 2, 3, 4, 5}})
      for (int axis = -x.rank(); axis < x.rank(); ++axis) check(random_f32(x, seed++, 0.5), axis);
    check(random_f32({3, 70001}, seed++), 1);
    check(random_f32({70001, 3}, seed++), 0);
    // Norms of 0, and norms too small for an inverse.
    check(Tensor::of<float>({3, 2}, {0, 0, 1, 3, -0.0f, 0}), 1);
    check(Tensor::of<float>({2, 2}, {1e-40f, 2e-40f, -3e-39f, 0}), 1, 1e-3);
  }
  const auto error = [](const AttributeList& attributes) {
    return infer_error({.op = "LpNormalization", .attributes = attributes, .inputs = {Tensor(DType::f32, {2, 3})}});
  };
  CHECK(error({{"p", std::int64_t{3}}}) == ErrorKind::invalid_model);
  CHECK(error({{"axis", std::int64_t{2}}}) == ErrorKind::invalid_model);
}

namespace {

OpCase response_norm(const Tensor& x, bool channels_last, unsigned seed, double epsilon = 1e-6) {
  const Shape channels{x.shape()[channels_last ? x.shape().rank() - 1 : 1]};
  return {.op = "GlobalResponseNorm",
          .domain = "lenslet",
          .opset = 0,
          .attributes = {{"channels_last", std::int64_t{channels_last}}, {"epsilon", epsilon}},
          .inputs = {x, random_f32(channels, seed + 1), random_f32(channels, seed + 2)},
          .maybe_constant = {1, 2},
          .tolerance = 1.7e-6};
}

}  // namespace

TEST_CASE("global_response_norm/ranks_and_layouts") {
  unsigned seed = 1;
  const auto check = [&](const Shape& x, bool channels_last) {
    seed += 3;
    check_op(response_norm(random_f32(x, seed, 0.5), channels_last, seed));
  };
  for (const bool last : {false, true}) {
    for (const Shape& x :
         {Shape{2, 5, 3, 7}, Shape{3, 24, 4, 4}, Shape{1, 16, 13, 8}, Shape{2, 8, 40}, Shape{2, 3, 4, 5, 6},
          Shape{1, 7, 1, 1}, Shape{0, 4, 2, 2}, Shape{2, 0, 3, 4}, Shape{2, 4, 0, 3}})
      check(x, last);
    check(last ? Shape{2, 61, 35, 16} : Shape{2, 16, 61, 35}, last);  // sums of squares in several parts
  }
  if (op_runner().device() != DeviceKind::cuda) return;
  // Blocks have some of an image's channels.
  check({2, 2056, 3, 2}, false);
  check({2, 3, 2, 2056}, true);
  check({3, 160, 56, 56}, false);
}

TEST_CASE("global_response_norm/sizes_of_numbers") {
  const auto check = [](float factor, bool channels_last, double epsilon) {
    Tensor x = random_f32({2, 8, 50, 50}, 1);
    for (float& value : x.values<float>()) value *= factor;
    OpCase c = response_norm(x, channels_last, 2, epsilon);
    for (float& value : c.inputs[2].values<float>()) value *= factor;
    check_op(c);
  };
  for (const bool last : {false, true}) {
    check(1500, last, 1e-6);   // norms of 75,000 are beyond float16
    check(2e-6F, last, 1e-6);  // an epsilon that float16 would lose counts
    check(0, last, 1e-6);
    check(1, last, 100);
  }
}

TEST_CASE("global_response_norm/by_hand_and_refusals") {
  const auto tensor = [](std::initializer_list<float> values) {
    return Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values);
  };
  // Norms 5 and 1; with epsilon 1 their mean is 4.
  OpCase c = response_norm(Tensor::of<float>({1, 2, 2}, {3, -4, 0, 1}), false, 1, 1);
  c.inputs[1] = tensor({2, 4}), c.inputs[2] = tensor({0, 0.5F});
  const std::vector<Tensor> y = run_op(c);
  const float expected[] = {10.5F, -14, 0.5F, 2.5F};
  for (std::size_t i = 0; i < 4; ++i) CHECK(y[0].values<float>()[i] == expected[i]);
  const auto error = [&](const auto& change) {
    OpCase bad = c;
    change(bad);
    return infer_error(bad);
  };
  CHECK(error([](OpCase& bad) { bad.inputs[1] = Tensor(DType::f32, {3}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& bad) { bad.inputs[2] = Tensor(DType::f32, {1, 2}); }) == ErrorKind::invalid_model);
  CHECK(error([](OpCase& bad) { bad.inputs[0] = Tensor(DType::f32, {2, 2}); }) == ErrorKind::unsupported);
  CHECK(error([](OpCase& bad) { bad.inputs[0] = Tensor(DType::f32, {1, 3, 2}); }) == ErrorKind::invalid_model);
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

// CUDA keeps rows of up to 2048 elements in registers, or 8192 in multiples of four; it reads longer ones of 16 bits in
// eights, where their length allows it.
TEST_CASE("layer_norm/lengths_of_rows") {
  unsigned seed = 1;
  for (const std::int64_t length : {1, 2, 33, 255, 768, 1027, 2047, 2048, 2049, 2052, 8191, 8192, 8196, 70001, 70008})
    for (const std::int64_t rows : {1, 3}) check_op(layer_norm({rows, length}, -1, seed += 3, true, 10));
  for (const std::int64_t length : {3, 96}) check_op(layer_norm({5003, length}, 1, seed += 3));
}

// Without its statistics: CUDA then sums rows that a warp holds in float32, and in double where squares leave its
// range.
TEST_CASE("layer_norm/short_rows") {
  unsigned seed = 1;
  const auto alone = [&](std::int64_t rows, std::int64_t length, double mean, double size, double epsilon) {
    OpCase c = layer_norm({rows, length}, -1, seed += 3, length % 8 != 0, mean);
    for (float& value : c.inputs[0].values<float>()) value = static_cast<float>(value * size);
    c.attributes[1].second = epsilon;
    c.outputs = 1;
    return c;
  };
  for (const std::int64_t length : {4, 12, 96, 260, 384, 768, 1000, 1024, 1028})
    for (const double mean : {0.0, 100.0, 1e4}) check_op(alone(length == 96 ? 5003 : 7, length, mean, 1, 1e-5));
  for (const double size : {1e25, 1e-25, 1e36}) check_op(alone(9, 96, 0.5, size, 1e-38));
}

TEST_CASE("layer_norm/scales_that_broadcast") {
  unsigned seed = 1;
  const Shape x{2, 3, 4, 5};
  for (const int axis : {1, 2, 3, -1})
    for (const Shape& scale : {Shape{5}, Shape{1}, Shape{}, Shape{4, 1}, Shape{1, 4, 5}, Shape{3, 1, 5},
                               Shape{2, 1, 1, 5}, Shape{2, 3, 4, 5}})
      for (const Shape& bias : {Shape{5}, Shape{2, 1, 4, 1}, Shape{0}}) {
        OpCase c = layer_norm(x, axis, seed += 3, bias.elems() != 0);
        c.inputs[1] = random_f32(scale, seed + 1);
        if (bias.elems() != 0) c.inputs[2] = random_f32(bias, seed + 2);
        check_op(c);
        c.inputs.resize(2);
        c.op = "RMSNormalization";
        c.opset = 23;
        c.outputs = 1;
        check_op(c);
      }
}

TEST_CASE("layer_norm/empty") {
  for (const Shape& x : {Shape{0, 4}, Shape{3, 0}, Shape{2, 0, 5}, Shape{0}})
    for (int axis = 0; axis < x.rank(); ++axis) check_op(layer_norm(x, axis, 1));
}

namespace {

/// With one output, and a residual added to it, as fuse_residual makes it.
OpCase with_residual(OpCase c) {
  c.opset = 0;
  c.outputs = 1;
  c.inputs.resize(3);  // RMSNormalization has no B
  c.inputs.push_back(random_f32(c.inputs[0].shape(), 9999));
  return c;
}

}  // namespace

TEST_CASE("layer_norm/residual") {
  unsigned seed = 1;
  const auto check = [&](const Shape& x, int axis = -1) {
    check_op(with_residual(layer_norm(x, axis, seed += 3, x.rank() != 3, 3)));
    check_op(with_residual(rms_norm(x, axis, seed += 3)));
  };
  for (const Shape& x : {Shape{7}, Shape{3, 5, 7}, Shape{2, 6, 5, 8}, Shape{0, 4}, Shape{3, 0}})
    for (int axis = 0; axis < x.rank(); ++axis) check(x, axis);
  // On CUDA held in a warp's registers (16 bits, multiples of eight), in a block's, or in two kernels.
  for (const std::int64_t length : {8, 96, 768, 1000, 1024, 1028, 2047, 8191, 8192, 70001, 70008}) check({3, length});
  check({5003, 96});
  for (const Shape& scale : {Shape{5}, Shape{4, 1}, Shape{2, 1, 1, 5}})
    for (const bool bias : {false, true}) {
      OpCase c = with_residual(layer_norm({2, 3, 4, 5}, -1, seed += 3, bias));
      c.inputs[1] = random_f32(scale, seed);
      check_op(c);
    }
  if (op_runner().device() != DeviceKind::cuda) return;
  for (const DType half : {DType::f16, DType::bf16})
    for (const std::int64_t length : {24, 768, 1024, 8196}) {  // 16 bits beside a Scale and B of float32
      OpCase c = with_residual(layer_norm({70, length}, -1, seed += 3));
      for (const std::size_t i : {0U, 3U}) c.inputs[i] = random_of(half, {70, length}, ++seed, -2, 2);
      check_op(c);
    }
}

TEST_CASE("layer_norm/a_residual_of_another_shape_or_type_is_refused") {
  const auto refused = [](const Tensor& residual) {
    OpCase c = with_residual(layer_norm({2, 3, 4}, 1, 1));
    c.inputs[3] = residual;
    return refusal(c);
  };
  CHECK(refused(Tensor(DType::f32, {2, 3, 4})) == "");
  CHECK(refused(Tensor(DType::f32, {3, 4})) == "the residual has shape [3,4], expected [2,3,4]");
  CHECK(refused(Tensor(DType::f16, {2, 3, 4})) == "the residual has element type float16 (supported: float32)");
}

// (1, 2, 3, 6) has mean 3 and variance 3.5; a row of equal values has variance 0.
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

TEST_CASE("layer_norm/scales_that_do_not_broadcast_are_refused") {
  const auto message = [](const auto& change) {
    OpCase c = layer_norm({2, 3, 4}, 1, 1);
    change(c);
    return refusal(c);
  };
  CHECK(message([](OpCase&) {}).empty());
  CHECK(message([](OpCase& c) {
          c.attributes = {{"stash_type", std::int64_t{10}}};
        }) == "attribute 'stash_type' = 10 (supported: 1, float32)");
  CHECK(message([](OpCase& c) {
          c.inputs[1] = Tensor(DType::f32, {3, 1, 3, 4});
        }) == "input Scale has shape [3,1,3,4], which does not broadcast to [2,3,4]");
  CHECK(message([](OpCase& c) {
          c.inputs[0] = Tensor(DType::f32, {1, 3, 4});
          c.inputs[2] = Tensor(DType::f32, {2, 3, 4});
        }) == "input B has shape [2,3,4], which does not broadcast to [1,3,4]");
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
        }) == "input 0 has element type float64 (supported: float32, float16, bfloat16)");
  CHECK(message([](OpCase& c) { c.opset = 16; }).empty());  // as ONNX Runtime writes it into older files
}

// Kernels whose own tests have a single piece, which the caller computes alone, or are slow: here threads share the
// work of each. threads.txt names the case that does so for each of the others.

#include <doctest/doctest.h>

#include <vector>

#include "ops/core/onnx_types.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

TEST_CASE("threads/share_what_other_cases_compute_in_one_piece") {
  const Tensor x = random_f32({1, 116, 28, 28}, 1, 0, 3);
  SUBCASE("cast") { check_op({.op = "Cast", .attributes = {{"to", dtype_to_onnx(DType::f16)}}, .inputs = {x}}); }
  SUBCASE("channel_shuffle") {
    check_op({.op = "ChannelShuffle",
              .domain = "lenslet",
              .opset = 1,
              .attributes = {{"groups", 2}, {"num_outputs", 2}},
              .inputs = {x, x},
              .outputs = 2});
  }
  SUBCASE("one_hot") {
    check_op({.op = "OneHot",
              .inputs = {random_of(DType::i64, {3000}, 1, -9, 9), int64_scalar(40), random_f32({2}, 2)},
              .constant = {1}});
  }
  SUBCASE("batch_norm") {
    const Tensor one = random_f32({116}, 2, 0.5F, 2);
    check_op({.op = "BatchNormalization", .inputs = {x, one, one, one, one}, .tolerance = 1e-6});
  }
  SUBCASE("binary") { check_op({.op = "Add", .inputs = {x, x}, .tolerance = 1e-7}); }
  SUBCASE("instance_norm") {
    const Tensor one = random_f32({116}, 2, 0.5F, 2);
    check_op({.op = "InstanceNormalization", .inputs = {x, one, one}, .tolerance = 2e-6});
  }
  SUBCASE("arg_max") {
    for (const std::int64_t axis : {1, 3}) check_op({.op = "ArgMax", .attributes = {{"axis", axis}}, .inputs = {x}});
  }
  SUBCASE("lrn") { check_op({.op = "LRN", .attributes = {{"size", 5}}, .inputs = {x}, .tolerance = 1e-6}); }
  SUBCASE("codes of 8 bits") {
    const Tensor codes = random_of(DType::u8, {2, 116, 28, 28}, 1, 0, 255.9);
    for (const char* const op : {"QuantizedTable", "QuantizedGlobalAveragePool", "QuantizedAveragePool"}) {
      OpCase c{.op = op, .domain = "lenslet", .inputs = {codes}};
      if (c.op == "QuantizedTable") c.attributes = {{"table", std::vector<std::int64_t>(256, 7)}};
      if (c.op == "QuantizedAveragePool") c.attributes = {{"kernel_shape", std::vector<std::int64_t>{3, 3}}};
      check_op(c);
    }
    check_op({.op = "MaxPool", .attributes = {{"kernel_shape", std::vector<std::int64_t>{3, 3}}}, .inputs = {codes}});
  }
  SUBCASE("range") {
    check_op({.op = "Range", .inputs = {int64_scalar(0), int64_scalar(90000), int64_scalar(1)}, .constant = {0, 1, 2}});
  }
  SUBCASE("sparse_voxelize") {
    using Reals = std::vector<double>;
    check_op({.op = "SparseVoxelize",
              .domain = "lenslet",
              .attributes = {{"voxel_size", Reals(3, 0.01)}, {"range_min", Reals(3, -1)}, {"range_max", Reals(3, 1)}},
              .inputs = {random_f32({20000, 4}, 3)},
              .outputs = 2});
  }
}

}  // namespace lenslet::test

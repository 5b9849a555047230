// What CUDA supports in float16 and bfloat16, and the CPU in bfloat16, as a list, so that support cannot shrink
// unnoticed: networks in 16 bits rely on it. Needs no device. check_op() tests the results in the other tests.

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/kernel.h"
#include "ops/elementwise/unary_kinds.h"
#include "oracle/oracle.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

constexpr DType halves[] = {DType::f16, DType::bf16};

using Ints = std::vector<std::int64_t>;

/// Computed in float and rounded once.
std::vector<std::string_view> computing() {
  std::vector<std::string_view> names{"Add",
                                      "Sub",
                                      "Mul",
                                      "Div",
                                      "Max",
                                      "Min",
                                      "PRelu",
                                      "Pow",
                                      "Sum",
                                      "Mean",
                                      "Mod",
                                      "Clip",
                                      "SwiGLU",
                                      "ElementwiseChain",
                                      "MaxPool",
                                      "SparseMaxPool",
                                      "AveragePool",
                                      "LpPool",
                                      "GlobalAveragePool",
                                      "GlobalMaxPool",
                                      "GlobalLpPool",
                                      "ReduceSum",
                                      "ReduceMean",
                                      "ReduceMax",
                                      "ReduceMin",
                                      "ReduceProd",
                                      "ReduceSumSquare",
                                      "ReduceL1",
                                      "ReduceL2",
                                      "ReduceLogSum",
                                      "ReduceLogSumExp",
                                      "BatchNormalization",
                                      "InstanceNormalization",
                                      "GroupNormalization",
                                      "LayerNormalization",
                                      "RMSNormalization",
                                      "MeanVarianceNormalization",
                                      "LpNormalization",
                                      "Softmax",
                                      "LogSoftmax",
                                      "GlobalResponseNorm",
                                      "LRN"};
  for (const UnaryRow& row : unary_table)
    if (row.types.contains(DType::f32)) names.push_back(row.name);
  return names;
}

/// Of these, what the CPU computes in float32 alone.
constexpr std::string_view not_by_the_cpu[] = {"Pow",
                                               "Mean",
                                               "SwiGLU",
                                               "SparseMaxPool",
                                               "LpPool",
                                               "GlobalMaxPool",
                                               "GlobalLpPool",
                                               "ReduceSum",
                                               "ReduceMax",
                                               "ReduceMin",
                                               "ReduceProd",
                                               "ReduceL1",
                                               "ReduceL2",
                                               "ReduceSumSquare",
                                               "ReduceLogSum",
                                               "ReduceLogSumExp",
                                               "InstanceNormalization",
                                               "GroupNormalization",
                                               "LayerNormalization",
                                               "RMSNormalization",
                                               "MeanVarianceNormalization",
                                               "LpNormalization",
                                               "Softmax",
                                               "LogSoftmax",
                                               "GlobalResponseNorm",
                                               "LRN"};

/// For any type.
constexpr std::string_view moving[] = {
    "Concat",         "Slice",        "Split",        "Pad",           "Transpose",
    "ChannelShuffle", "DepthToSpace", "SpaceToDepth", "Expand",        "Tile",
    "LayoutConvert",  "Gather",       "Where",        "Resize",        "Upsample",
    "Reshape",        "Flatten",      "Unsqueeze",    "Squeeze",       "Dropout",
    "Identity",       "Cast",         "SparseSort",   "SparseToDense", "SparseFromDense"};

bool some_takes(std::string_view op, DeviceKind device, DType dtype) {
  for (const Kernel* kernel : kernels_of(op, device))
    if (kernel->types().contains(dtype)) return true;
  return false;
}

bool computed_by_the_cpu(std::string_view op) {
  return std::ranges::find(not_by_the_cpu, op) == std::end(not_by_the_cpu);
}

/// The refusals of the device's kernels; empty if one accepts the case.
std::string refusals(const OpCase& c, DeviceKind device = DeviceKind::cuda) {
  const std::shared_ptr<const Op> op = test::make_op(c);
  const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
  const Problem problem(op, infos, infer_types(*op, infos));
  CHECK(problem.outputs()[0].dtype == c.inputs[0].dtype());
  std::string all;
  for (const Kernel* kernel : kernels_of(op->type(), device)) {
    const Offer offer =
        kernel->offer(problem, {.device = device == DeviceKind::cuda ? reference_gpu() : cpu_profile(1)});
    if (offer.refusal.empty()) return {};
    all += offer.refusal + "; ";
  }
  return all;
}

Tensor image(DType dtype) { return random_of(dtype, {2, 16, 8, 8}, 1, 0.5, 2); }

}  // namespace

TEST_CASE("halves/operators_computed_in_16_bits") {
  for (const DType dtype : halves) {
    for (const std::string_view op : computing()) {
      CAPTURE(std::string(op));
      CHECK(some_takes(op, DeviceKind::cuda, dtype));
      CHECK(some_takes(op, DeviceKind::cpu, dtype) == (dtype == DType::bf16 && computed_by_the_cpu(op)));
    }
    for (const std::string_view op : moving) {
      CAPTURE(std::string(op));
      CHECK(some_takes(op, DeviceKind::cuda, dtype));
    }
  }
}

TEST_CASE("halves/problems_that_networks_have") {
  for (const DType dtype : halves) {
    const Tensor x = image(dtype), channels = random_of(dtype, {16, 1, 1}, 2, 0.5, 2);
    const Tensor line = random_of(dtype, {16}, 3, 0.5, 2), number = random_of(dtype, {}, 4, 2, 2.5);
    const Tensor line_f32 = random_of(DType::f32, {16}, 3, 0.5, 2), rows = random_of(dtype, {2, 49, 16}, 5, 0.5, 2);
    const Tensor scales = Tensor::of<float>(Shape{4}, {1, 1, 2, 2});
    std::vector<OpCase> cases{
        {.op = "Relu", .inputs = {x}},
        {.op = "Sigmoid", .inputs = {x}},
        {.op = "SiLU", .domain = "lenslet", .inputs = {x}},
        {.op = "AffineRelu", .domain = "lenslet", .attributes = {{"alpha", 0.9}, {"beta", -0.4}}, .inputs = {x}},
        {.op = "StarRelu", .domain = "lenslet", .attributes = {{"alpha", 0.9}, {"beta", -0.4}}, .inputs = {x}},
        {.op = "HardSwish", .opset = 14, .inputs = {x}},
        {.op = "Clip", .inputs = {x, number, number}, .constant = {1, 2}},
        {.op = "Add", .inputs = {x, x}},
        {.op = "Mul", .inputs = {x, channels}, .constant = {1}},
        {.op = "Pow", .inputs = {x, number}, .constant = {1}},
        {.op = "PRelu", .inputs = {x, channels}, .constant = {1}},
        {.op = "MaxPool", .attributes = {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}}, .inputs = {x}},
        {.op = "AveragePool", .attributes = {{"kernel_shape", Ints{8, 8}}}, .inputs = {x}},
        {.op = "SparseMaxPool",
         .domain = "lenslet",
         .attributes = {{"kernel_shape", Ints{2, 2}}},
         .inputs = {random_of(dtype, {9, 16}, 1, 0.5, 2), Tensor(DType::i32, {7 + 2 * 8}), Tensor(DType::i32, {4, 3})}},
        {.op = "GlobalAveragePool", .inputs = {x}},
        {.op = "ReduceMean", .attributes = {{"axes", Ints{2, 3}}}, .inputs = {x}},
        {.op = "BatchNormalization", .inputs = {x, line, line, line, line}, .constant = {1, 2, 3, 4}},
        {.op = "BatchNormalization", .inputs = {x, line_f32, line_f32, line_f32, line_f32}, .constant = {1, 2, 3, 4}},
        {.op = "InstanceNormalization", .inputs = {x, line, line}},
        {.op = "InstanceNormalization", .inputs = {x, line_f32, line_f32}, .constant = {1, 2}},
        {.op = "GroupNormalization",
         .opset = 21,
         .attributes = {{"num_groups", std::int64_t{4}}},
         .inputs = {x, line_f32, line_f32},
         .constant = {1, 2}},
        {.op = "LayerNormalization", .opset = 17, .inputs = {rows, line, line}},
        {.op = "LayerNormalization", .opset = 17, .inputs = {rows, line_f32, line_f32}, .constant = {1, 2}},
        {.op = "LayerNormalization", .opset = 0, .inputs = {rows, line_f32, line_f32, rows}, .constant = {1, 2}},
        {.op = "RMSNormalization", .opset = 23, .inputs = {rows, line_f32}, .constant = {1}},
        {.op = "MeanVarianceNormalization", .inputs = {x}},
        {.op = "Softmax", .inputs = {x}},
        {.op = "LogSoftmax", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x}},
        {.op = "LRN", .attributes = {{"size", 5}}, .inputs = {x}},
        {.op = "Concat", .attributes = {{"axis", 1}}, .inputs = {x, x}},
        {.op = "Pad", .inputs = {x, int64s({0, 0, 1, 1, 0, 0, 1, 1}), number}, .constant = {1, 2}},
        {.op = "Transpose", .attributes = {{"perm", Ints{0, 2, 3, 1}}}, .inputs = {x}},
        {.op = "LayoutConvert", .domain = "lenslet", .attributes = {{"from", "nchw"}, {"to", "nhwc"}}, .inputs = {x}},
    };
    for (const char* mode : {"nearest", "linear"})
      cases.push_back({.op = "Resize", .attributes = {{"mode", mode}}, .inputs = {x, {}, scales}, .constant = {2}});
    for (const OpCase& c : cases) {
      CAPTURE(c.op);
      CHECK(refusals(c) == "");
      const bool half_parameters = c.op == "BatchNormalization" && c.inputs[1].dtype() == dtype;
      if (dtype == DType::bf16 && computed_by_the_cpu(c.op) && !half_parameters)
        CHECK(refusals(c, DeviceKind::cpu) == "");
    }
  }
}

TEST_CASE("halves/what_would_round_more_than_once_is_refused") {
  for (const DType dtype : halves) {
    const Tensor x = image(dtype);
    CHECK(refusals({.op = "Sum", .inputs = {x, x}}) == "");
    for (const DeviceKind device : {DeviceKind::cuda, DeviceKind::cpu})
      CHECK(refusals({.op = "Sum", .inputs = {x, x, x}}, device) != "");
    CHECK(refusals({.op = "Max", .inputs = {x, x, x}}) == "");
    const Tensor scales = Tensor::of<float>(Shape{4}, {1, 1, 0.2F, 0.2F});
    const AttributeList smooth{{"mode", "linear"}, {"antialias", 1}};
    CHECK(refusals({.op = "Resize", .opset = 18, .attributes = smooth, .inputs = {x, {}, scales}, .constant = {2}}) !=
          "");
    const OpCase norm{.op = "LayerNormalization", .opset = 17, .inputs = {x, random_f32({8}, 1)}};
    CHECK(refusals(norm) == "");
    CHECK(refusals(with(norm, {x, random_f32({}, 1)})) != "");
    CHECK(refusals(with(norm, {x, random_f32({8}, 1), random_f32({8, 1}, 2)})) != "");
  }
}

TEST_CASE("halves/rounding_once_is_no_error") {
  using oracle::error_beyond_rounding;
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  struct Type {
    DType dtype;
    double unit, largest, subnormal;
  };
  for (const auto& [dtype, unit, largest, subnormal] :
       {Type{DType::f16, 0x1p-11, 65504, 0x1p-24}, Type{DType::bf16, 0x1p-8, 0x1.FEp127, 0x1p-133}}) {
    CHECK(error_beyond_rounding(1 + 2 * unit, 1 + unit, dtype) == 0);
    CHECK(error_beyond_rounding(1 + 4 * unit, 1 + unit, dtype) > unit);
    CHECK(error_beyond_rounding(1, 1 - unit, dtype) <= unit * unit);
    CHECK(error_beyond_rounding(subnormal, subnormal / 2, dtype) == 0);
    CHECK(error_beyond_rounding(subnormal, 0, dtype) > 0);
    CHECK(error_beyond_rounding(inf, largest * (1 + 2 * unit), dtype) == 0);
    CHECK(error_beyond_rounding(largest, largest * (1 + unit / 2), dtype) == 0);
    CHECK(error_beyond_rounding(-inf, largest * (1 + 2 * unit), dtype) == inf);
    CHECK(error_beyond_rounding(inf, largest, dtype) == inf);
    CHECK(error_beyond_rounding(largest, inf, dtype) == inf);
    CHECK(error_beyond_rounding(nan, 1, dtype) == inf);
    CHECK(error_beyond_rounding(1, nan, dtype) == inf);
    CHECK(error_beyond_rounding(nan, nan, dtype) == 0);
    CHECK(error_beyond_rounding(inf, inf, dtype) == 0);
    // The harness and verify use the same rounding.
    const Tensor random = random_of(DType::f64, {4096}, 5, -2, 2);
    oracle::Array exact = oracle::from_tensor(random);
    exact.dtype = dtype;
    const oracle::Array rounded = oracle::from_tensor(oracle::to_tensor(exact));
    for (std::size_t i = 0; i < exact.values.size(); ++i)
      CHECK(error_beyond_rounding(rounded.values[i], exact.values[i], dtype) == 0);
  }
  CHECK(error_beyond_rounding(1 + 0x1p-20, 1, DType::f32) == 0x1p-20);
  CHECK(error_beyond_rounding(inf, 1e300, DType::f32) == inf);
}

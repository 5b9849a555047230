// Pooling, softmax, normalization, reductions, and products that are not memory-bound, as a plan calls them.

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tools/measuring/cuda/memory_bench.h"

namespace lenslet::bench {
namespace {

using Ints = std::vector<std::int64_t>;

}  // namespace

std::vector<Row> reduction(cuda::Session& session) {
  constexpr Format nchw = formats::nchw, nhwc = formats::nhwc;
  const AttributeList three{{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}};
  const AttributeList five{{"kernel_shape", Ints{5, 5}}, {"pads", Ints{2, 2, 2, 2}}};
  const AttributeList pixels{{"axes", Ints{2, 3}}}, last{{"axis", std::int64_t{-1}}},
      channels{{"axis", std::int64_t{1}}};
  std::vector<Row> rows;
  const auto add = [&](const char* op, const AttributeList& attributes, const Shape& shape, Format format,
                       bool few_bytes = false) {
    rows.push_back(measure_op(session, fmt::format("{} {} {}", op, shape.str(), to_string(format)),
                              {.op = op, .attributes = attributes, .inputs = {{DType::f32, shape}}, .format = format},
                              few_bytes));
  };
  const auto add_small = [&](const char* op, const AttributeList& attributes, const Shape& shape, Format format) {
    add(op, attributes, shape, format, true);
  };
  for (const Format format : {nhwc, nchw}) {
    add("MaxPool", three, {64, 64, 112, 112}, format);
    add("AveragePool", three, {64, 64, 112, 112}, format);
    add("MaxPool", five, {64, 64, 56, 56}, format);
    add("GlobalAveragePool", {}, {64, 2048, 7, 7}, format);
    add("GlobalAveragePool", {}, {64, 96, 112, 112}, format);
    add("GlobalMaxPool", {}, {64, 2048, 7, 7}, format);
    add("LRN", {{"size", std::int64_t{5}}}, {64, 96, 55, 55}, format);
    add("Softmax", channels, {16, 21, 512, 512}, format);
    add("ReduceMean", pixels, {64, 256, 56, 56}, format);
    add("ArgMax", channels, {16, 21, 512, 512}, format);
    for (const Shape& shape :
         {Shape{1, 2048, 7, 7}, Shape{1, 1280, 7, 7}, Shape{1, 512, 13, 13}, Shape{1, 96, 112, 112}})
      add_small("GlobalAveragePool", {}, shape, format);
    add_small("MaxPool", three, {1, 64, 112, 112}, format);
    add_small("MaxPool", five, {1, 256, 20, 20}, format);  // YOLOv5's pyramid
  }
  add("Softmax", last, {4096, 1000}, nchw);
  add("Softmax", last, {262144, 1000}, nchw);
  add("Softmax", last, {1 << 22, 21}, nchw);
  add_small("Softmax", last, {1, 1000}, nchw);
  // Tokens of ViT-B and pixels of ConvNeXt-T, which fit in registers; and rows that are too long for them.
  for (const Shape& x : {Shape{64 * 197, 768}, Shape{64 * 56 * 56, 96}, Shape{4096, 12288}}) {
    const TensorType row{DType::f32, {x[1]}};
    rows.push_back(measure_op(session, fmt::format("LayerNormalization {}", x.str()),
                              {.op = "LayerNormalization", .inputs = {{DType::f32, x}, row, row}, .opset = 17}));
    rows.push_back(measure_op(session, fmt::format("RMSNormalization {}", x.str()),
                              {.op = "RMSNormalization", .inputs = {{DType::f32, x}, row}, .opset = 23}));
  }
  for (const Shape& x : {Shape{64, 256, 56, 56}, Shape{64, 1024, 14, 14}}) {
    const TensorType channel{DType::f32, {x[1]}};
    rows.push_back(measure_op(session, fmt::format("GroupNormalization 32 {}", x.str()),
                              {.op = "GroupNormalization",
                               .attributes = {{"num_groups", std::int64_t{32}}},
                               .inputs = {{DType::f32, x}, channel, channel},
                               .opset = 21}));
    add("MeanVarianceNormalization", {}, x, nchw);
    add("LpNormalization", channels, x, nchw);
    add("LpPool", three, x, nchw);
    add("LpPool", three, x, nhwc);
    add("GlobalLpPool", {}, x, nchw);
  }
  add("LpNormalization", last, {262144, 512}, nchw);
  add("ReduceMean", {{"axes", Ints{1}}}, {16384, 4096}, nchw);
  add("ReduceMean", {{"axes", Ints{0}}}, {16384, 4096}, nchw);
  add("ReduceMean", {{"axes", Ints{0, 1}}}, {16384, 4096}, nchw);
  for (const std::int32_t axis : {0, 1}) {
    const TensorType x{DType::f32, {4096, 4096}};
    const Tensor known = Tensor::of<std::int32_t>(Shape{}, {axis});
    for (const auto& [op, opset] : {std::pair("CumSum", 14), std::pair("CumProd", 26)})
      rows.push_back(measure_op(session, fmt::format("{} {} axis {}", op, x.shape.str(), axis),
                                {.op = op, .inputs = {x}, .opset = opset, .constants = {known}}));
  }

  // Offsets, weights and integers are arbitrary memory.
  rows.push_back(measure_op(
      session, "DeformConv 3x3 [1,64,128,128] to 64",
      {.op = "DeformConv",
       .attributes = {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}},
       .inputs = {{DType::f32, {1, 64, 128, 128}}, {DType::f32, {64, 64, 3, 3}}, {DType::f32, {1, 18, 128, 128}}},
       .opset = 19}));
  const TensorType bytes{DType::u8, {4096, 1024}}, filter{DType::i8, {256, 256, 3, 3}},
      picture{DType::u8, {8, 256, 28, 28}};
  rows.push_back(measure_op(session, "MatMulInteger [4096,1024] by [1024,1024]",
                            {.op = "MatMulInteger", .inputs = {bytes, {DType::i8, {1024, 1024}}}}));
  rows.push_back(
      measure_op(session, "ConvInteger 3x3 [8,256,28,28] to 256",
                 {.op = "ConvInteger", .attributes = {{"pads", Ints{1, 1, 1, 1}}}, .inputs = {picture, filter}}));
  return rows;
}

}  // namespace lenslet::bench

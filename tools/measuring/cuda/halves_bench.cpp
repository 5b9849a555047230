// Operators between the products of a network in 16 bits, channels last.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/measuring/cuda/memory_bench.h"

namespace lenslet::bench {

std::vector<Row> halves(cuda::Session& session) {
  using Ints = std::vector<std::int64_t>;
  const Shape images{64, 256, 56, 56};
  std::vector<Row> rows;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto add = [&](const char* op, const Shape& x, const std::vector<Shape>& others = {},
                         const AttributeList& attributes = {}, std::vector<Tensor> constants = {}) {
      Node node{.op = op, .attributes = attributes, .inputs = {{dtype, x}}, .format = formats::nhwc};
      for (const Shape& other : others) node.inputs.push_back({dtype, other});
      node.constants = std::move(constants);
      if (node.op == "Clip") node.opset = 6;
      if (node.op == "HardSwish" || node.op == "Gelu") node.opset = 20;
      std::string what = fmt::format("{} {} {}", op, to_string(dtype), x.str());
      if (!others.empty() && others[0].rank() < x.rank()) what += " per channel";
      rows.push_back(measure_op(session, what, node));
    };
    for (const char* op : {"Relu", "Sigmoid", "SiLU", "HardSwish", "Gelu"}) add(op, images);
    add("Clip", images, {}, {{"min", 0.0}, {"max", 6.0}});
    add("Relu", {64, 255, 55, 55});
    add("Add", images, {images});
    add("Mul", images, {{256, 1, 1}});
    add("Mul", images, {{64, 256, 1, 1}});
    add("BatchNormalization", images, {{256}, {256}, {256}, {256}});
    const auto add_chain = [&](const std::string& functions, const Ints& inputs, const std::vector<Shape>& others) {
      const std::vector<double> numbers(inputs.size(), 0.5);
      add("ElementwiseChain", images, others,
          {{"functions", functions},
           {"inputs", inputs},
           {"reversed", Ints(inputs.size(), 0)},
           {"a", numbers},
           {"b", numbers}});
    };
    add_chain("Add", {1}, {images});
    add_chain("relu+Square+Mul+Add", {0, 0, 0, 0}, {});
    add_chain("Mul+Add+relu", {1, 1, 0}, {{64, 256, 1, 1}, images});
    add("LRN", {64, 96, 55, 55}, {}, {{"size", std::int64_t{5}}});
    for (const Shape& x : {Shape{1, 64, 56, 56}, Shape{1, 512, 7, 7}, Shape{64, 64, 56, 56}}) {
      const TensorType channels{DType::f32, {x[1]}};
      rows.push_back(measure_op(session, fmt::format("GroupNormalization 1 {} {}", to_string(dtype), x.str()),
                                {.op = "GroupNormalization",
                                 .attributes = {{"num_groups", std::int64_t{1}}},
                                 .inputs = {{dtype, x}, channels, channels},
                                 .format = formats::nhwc,
                                 .opset = 21}));
    }
    // Of Swin V2, with and without the residual.
    for (const Shape& x : {Shape{64 * 56 * 56, 96}, Shape{64 * 14 * 14, 384}}) {
      const TensorType row{DType::f32, {x[1]}};
      Node norm{.op = "LayerNormalization", .inputs = {{dtype, x}, row, row}, .opset = 17};
      rows.push_back(measure_op(session, fmt::format("LayerNormalization {} {}", to_string(dtype), x.str()), norm));
      norm.inputs.push_back({dtype, x});
      rows.push_back(
          measure_op(session, fmt::format("LayerNormalization + residual {} {}", to_string(dtype), x.str()), norm));
    }
    // Of ConvNeXtV2-atto.
    for (const std::int64_t n : {1, 64})
      for (const Shape& x :
           {Shape{n, 160, 56, 56}, Shape{n, 320, 28, 28}, Shape{n, 640, 14, 14}, Shape{n, 1280, 7, 7}}) {
        const TensorType channels{DType::f32, {x[1]}};
        rows.push_back(measure_op(
            session, fmt::format("GlobalResponseNorm {} {}", to_string(dtype), x.str()),
            {.op = "GlobalResponseNorm", .inputs = {{dtype, x}, channels, channels}, .format = formats::nhwc}));
      }
    const AttributeList three{{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}};
    const AttributeList five{{"kernel_shape", Ints{5, 5}}, {"pads", Ints{2, 2, 2, 2}}};
    for (const char* op : {"MaxPool", "AveragePool"}) {
      add(op, {64, 64, 112, 112}, {}, three);
      add(op, {64, 64, 56, 56}, {}, five);
    }
    add("GlobalAveragePool", {64, 2048, 7, 7});
    add("GlobalAveragePool", {64, 96, 112, 112});
    add("GlobalMaxPool", {64, 2048, 7, 7});
    add("ReduceMean", images, {}, {{"axes", Ints{2, 3}}});
    add("Concat", images, {images}, {{"axis", std::int64_t{1}}});
    for (const char* mode : {"nearest", "linear"})
      rows.push_back(measure_op(session, fmt::format("Upsample {} twice {}", mode, to_string(dtype)),
                                {.op = "Upsample",
                                 .attributes = {{"mode", std::string(mode)}},
                                 .inputs = {{dtype, {64, 256, 28, 28}}},
                                 .format = formats::nhwc,
                                 .opset = 9,
                                 .constants = {Tensor::of<float>(Shape{4}, {1, 1, 2, 2})}}));
  }
  return rows;
}

}  // namespace lenslet::bench

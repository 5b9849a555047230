// Pooling, softmax, normalization and reductions, as a plan calls them.

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/buffer.h"
#include "ops/core/op.h"
#include "tests/cuda/bench.h"

namespace lenslet::bench {
namespace {

using Ints = std::vector<std::int64_t>;

/// One call of the operator `name`, float32, one input, input and output 4-D ones in `layout`.
Row measure_op(const cuda::Session& session, const char* name, const AttributeList& attributes, const Shape& shape,
               Format layout, bool few_bytes = false) {
  const auto op = find_op(name, "")->make({attributes, 13, 1, 1});
  const std::vector<InputInfo> infos{{true, {DType::f32, shape}, nullptr}};
  const std::vector<TensorType> types = op->infer(infos);
  const auto bytes = [](const TensorType& of) {
    return static_cast<std::size_t>(of.shape.elems()) * dtype_bytes(of.dtype);
  };
  const Format to_layout = types[0].shape.rank() == 4 ? layout : formats::nchw;
  const std::vector<Format> layouts{layout};
  cuda::DeviceBuffer<std::byte> workspace(op->workspace_bytes({infos, layouts, types, to_layout, 1, DeviceKind::cuda}));
  return measure(
      session, fmt::format("{} {} {}{}", name, shape.str(), to_string(layout), few_bytes ? ", in L2" : ""),
      bytes(infos[0].type), bytes(types[0]),
      [&](const std::byte* from, std::byte* to) {
        const std::array<Tensor, 1> in{Tensor::share(DType::f32, shape, nullptr, from, layout)}, host{};
        std::array<Tensor, 1> out{Tensor::view(types[0].dtype, types[0].shape, to, to_layout)};
        op->run_cuda({in, out, host, {workspace.data(), workspace.bytes()}, nullptr, session.context()});
      },
      few_bytes);
}

}  // namespace

std::vector<Row> reduction(const cuda::Session& session) {
  constexpr Format nchw = formats::nchw, nhwc = formats::nhwc;
  const AttributeList three{{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}};
  const AttributeList five{{"kernel_shape", Ints{5, 5}}, {"pads", Ints{2, 2, 2, 2}}};
  const AttributeList pixels{{"axes", Ints{2, 3}}}, last{{"axis", std::int64_t{-1}}},
      channels{{"axis", std::int64_t{1}}};
  std::vector<Row> rows;
  const auto add = [&](const char* name, const AttributeList& attributes, const Shape& shape, Format layout) {
    rows.push_back(measure_op(session, name, attributes, shape, layout));
  };
  const auto add_small = [&](const char* name, const AttributeList& attributes, const Shape& shape, Format layout) {
    rows.push_back(measure_op(session, name, attributes, shape, layout, true));
  };
  for (const Format layout : {nhwc, nchw}) {
    add("MaxPool", three, {64, 64, 112, 112}, layout);
    add("AveragePool", three, {64, 64, 112, 112}, layout);
    add("MaxPool", five, {64, 64, 56, 56}, layout);
    add("GlobalAveragePool", {}, {64, 2048, 7, 7}, layout);
    add("GlobalAveragePool", {}, {64, 96, 112, 112}, layout);
    add("GlobalMaxPool", {}, {64, 2048, 7, 7}, layout);
    add("LRN", {{"size", std::int64_t{5}}}, {64, 96, 55, 55}, layout);
    add("Softmax", channels, {16, 21, 512, 512}, layout);
    add("ReduceMean", pixels, {64, 256, 56, 56}, layout);
    add("ArgMax", channels, {16, 21, 512, 512}, layout);
    for (const Shape& shape :
         {Shape{1, 2048, 7, 7}, Shape{1, 1280, 7, 7}, Shape{1, 512, 13, 13}, Shape{1, 96, 112, 112}})
      add_small("GlobalAveragePool", {}, shape, layout);
    add_small("MaxPool", three, {1, 64, 112, 112}, layout);
    add_small("MaxPool", five, {1, 256, 20, 20}, layout);  // YOLOv5's pyramid
  }
  add("Softmax", last, {4096, 1000}, nchw);
  add("Softmax", last, {262144, 1000}, nchw);
  add("Softmax", last, {1 << 22, 21}, nchw);
  add_small("Softmax", last, {1, 1000}, nchw);
  add("ReduceMean", {{"axes", Ints{1}}}, {16384, 4096}, nchw);
  add("ReduceMean", {{"axes", Ints{0}}}, {16384, 4096}, nchw);
  add("ReduceMean", {{"axes", Ints{0, 1}}}, {16384, 4096}, nchw);
  return rows;
}

}  // namespace lenslet::bench

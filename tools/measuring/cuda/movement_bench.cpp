// Operators that move bytes, as a plan calls them.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/measuring/cuda/memory_bench.h"

namespace lenslet::bench {
namespace {

using Ints = std::vector<std::int64_t>;

}  // namespace

std::vector<Row> movement(cuda::Session& session) {
  constexpr Format nchw = formats::nchw, nhwc = formats::nhwc;
  const Shape images{64, 64, 56, 56};
  std::vector<Row> rows;

  const auto add = [&](const std::string& what, const TensorType& type, Node node, bool few_bytes = false,
                       std::size_t inputs = 1) {
    node.inputs.assign(inputs, type);
    rows.push_back(
        measure_op(session, fmt::format("{} {} {}", what, type.shape.str(), to_string(type.dtype)), node, few_bytes));
  };
  const auto both_ways = [&](DType dtype, const Shape& shape, bool few_bytes = false) {
    for (const Format to : {nhwc, nchw}) {
      const Format from = to == nhwc ? nchw : nhwc;
      add(to == nhwc ? "to NHWC" : "to NCHW", {dtype, shape},
          {.op = "LayoutConvert", .attributes = {{"from", to_string(from)}, {"to", to_string(to)}}, .format = to},
          few_bytes);
    }
  };
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Shape& shape : {images, Shape{64, 256, 56, 56}, Shape{256, 3, 224, 224}}) both_ways(dtype, shape);
  both_ways(DType::u8, {256, 3, 224, 224});
  both_ways(DType::f32, {256, 4, 224, 224});
  both_ways(DType::f32, {256, 3, 227, 227});  // planes that end with a partial vector
  both_ways(DType::f32, {256, 2048, 7, 7});   // likewise
  both_ways(DType::f32, {64, 24, 112, 112});  // half-empty tiles
  both_ways(DType::f32, {1, 64, 56, 56}, true);
  both_ways(DType::f32, {1, 3, 224, 224}, true);

  for (const char* mode : {"constant", "reflect"}) {
    Node pad{
        .op = "Pad", .attributes = {{"mode", std::string(mode)}, {"pads", Ints{0, 0, 1, 1, 0, 0, 1, 1}}}, .opset = 2};
    for (const Format format : {nchw, nhwc}) {
      pad.format = format;
      for (const DType dtype : {DType::f32, DType::f16})
        add(fmt::format("Pad {} {}", mode, to_string(format)), {dtype, images}, pad);
    }
    add(fmt::format("Pad {} nhwc", mode), {DType::f32, {1, 64, 56, 56}}, pad, true);
  }

  for (const Format format : {nchw, nhwc}) {
    const std::string what = fmt::format("Concat of 2 {}", to_string(format));
    const Node concat{.op = "Concat", .attributes = {{"axis", std::int64_t{1}}}, .format = format};
    add(what, {DType::f32, images}, concat, false, 2);
    add(what, {DType::f32, {1, 64, 55, 55}}, concat, true, 2);
  }

  const auto transpose = [&](const Ints& perm, const Shape& shape, DType dtype) {
    add(fmt::format("Transpose {}", fmt::join(perm, ",")), {dtype, shape},
        {.op = "Transpose", .attributes = {{"perm", perm}}});
  };
  transpose({1, 0}, {8192, 8192}, DType::f32);
  transpose({1, 0}, {8191, 8191}, DType::f32);
  transpose({1, 0}, {8192, 8192}, DType::f16);
  transpose({0, 2, 1, 3}, {64, 197, 12, 64}, DType::f32);
  transpose({0, 2, 1, 3, 4}, {64, 4, 29, 28, 28}, DType::f32);  // ShuffleNet's channels
  for (const Format format : {nchw, nhwc})
    for (const char* op : {"DepthToSpace", "SpaceToDepth"})
      add(fmt::format("{} 2 {}", op, to_string(format)), {DType::f32, images},
          {.op = op, .attributes = {{"blocksize", std::int64_t{2}}}, .format = format});
  for (const Format format : {nchw, nhwc})
    for (const char* mode : {"nearest", "linear"})
      for (const double scale : {2.0, 0.5}) {
        const AttributeList attributes{{"mode", std::string(mode)},
                                       {"scales", std::vector<double>{1, 1, scale, scale}}};
        add(fmt::format("Upsample {} by {} {}", mode, scale, to_string(format)), {DType::f32, images},
            {.op = "Upsample", .attributes = attributes, .format = format, .opset = 7});
      }

  // Indices spread over the axis by a multiplicative sequence.
  const auto elements = [&](std::int64_t axis) {
    const TensorType x{DType::f32, {4096, 4096}};
    Tensor indices(DType::i64, x.shape);
    std::uint64_t state = 1;
    for (std::int64_t& index : indices.values<std::int64_t>()) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      index = static_cast<std::int64_t>(state >> 52);
    }
    rows.push_back(
        measure_op(session, fmt::format("GatherElements {} axis {}", x.shape.str(), axis),
                   {.op = "GatherElements", .attributes = {{"axis", axis}}, .inputs = {x}, .constants = {indices}}));
  };
  elements(0);
  elements(1);
  // Swin's windows of 7x7 pixels of images rolled by 3, as merge_moves writes them; without the roll, a Transpose.
  Tensor table(DType::i32, {56 * 56});
  for (std::int32_t i = 0; i < 56 * 56; ++i) {
    const std::int32_t window = i / 49, pixel = i % 49;
    table.values<std::int32_t>()[static_cast<std::size_t>(i)] =
        (window / 8 * 7 + pixel / 7 + 3) % 56 * 56 + (window % 8 * 7 + pixel % 7 + 3) % 56;
  }
  for (const DType dtype : {DType::f32, DType::f16}) {
    const TensorType x{dtype, {64, 56 * 56, 96}};
    rows.push_back(
        measure_op(session, fmt::format("Gather rows {} {}", to_string(dtype), x.shape.str()),
                   {.op = "Gather", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x}, .constants = {table}}));
    transpose({0, 1, 3, 2, 4, 5}, {64, 8, 7, 8, 7, 96}, dtype);
  }
  // The indices are arbitrary memory; those outside the output are skipped.
  const AttributeList two{{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  rows.push_back(
      measure_op(session, "MaxUnpool 2x2 [64,64,56,56]",
                 {.op = "MaxUnpool", .attributes = two, .inputs = {{DType::f32, images}, {DType::i64, images}}}));
  return rows;
}

}  // namespace lenslet::bench

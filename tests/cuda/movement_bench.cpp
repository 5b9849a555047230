// Operators that move bytes, as a plan calls them.

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/op.h"
#include "ops/movement/layout_convert.h"
#include "tests/cuda/bench.h"

namespace lenslet::bench {
namespace {

using Ints = std::vector<std::int64_t>;

std::shared_ptr<const Op> op_of(const char* name, const AttributeList& attributes, std::int64_t opset,
                                std::size_t inputs) {
  return find_op(name, "")->make({attributes, opset, inputs, 1});
}

/// One call of `op`: `inputs` equal inputs, one after the other in memory, give one output.
Row measure_op(const cuda::Session& session, std::string what, const Op& op, DType dtype, const Shape& shape,
               Format from_layout, Format to_layout, std::size_t inputs = 1, bool few_bytes = false) {
  const std::vector<InputInfo> infos(inputs, {true, {dtype, shape}, nullptr});
  const TensorType type = op.infer(infos)[0];
  const std::size_t input_bytes = static_cast<std::size_t>(shape.elems()) * dtype_bytes(dtype);
  const std::size_t output_bytes = static_cast<std::size_t>(type.shape.elems()) * dtype_bytes(dtype);
  what += fmt::format(" {} {}{}", shape.str(), to_string(dtype), few_bytes ? ", in L2" : "");
  return measure(
      session, what, inputs * input_bytes, output_bytes,
      [&](const std::byte* from, std::byte* to) {
        std::vector<Tensor> in;
        for (std::size_t i = 0; i < inputs; ++i)
          in.push_back(Tensor::share(dtype, shape, nullptr, from + i * input_bytes, from_layout));
        std::array<Tensor, 1> out{Tensor::view(dtype, type.shape, to, to_layout)};
        const std::vector<Tensor> host(inputs);
        op.run_cuda({in, out, host, {}, nullptr, session.context()});
      },
      few_bytes);
}

}  // namespace

std::vector<Row> movement(const cuda::Session& session) {
  constexpr Format nchw = formats::nchw, nhwc = formats::nhwc;
  const Shape images{64, 64, 56, 56};
  std::vector<Row> rows;

  const auto convert = make_layout_convert();
  const auto both_ways = [&](DType dtype, const Shape& shape, bool few_bytes = false) {
    rows.push_back(measure_op(session, "to NHWC", *convert, dtype, shape, nchw, nhwc, 1, few_bytes));
    rows.push_back(measure_op(session, "to NCHW", *convert, dtype, shape, nhwc, nchw, 1, few_bytes));
  };
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Shape& shape : {images, Shape{64, 256, 56, 56}, Shape{256, 3, 224, 224}}) both_ways(dtype, shape);
  both_ways(DType::u8, {256, 3, 224, 224});
  both_ways(DType::f32, {256, 4, 224, 224});
  both_ways(DType::f32, {256, 3, 227, 227});  // planes that do not end with a vector
  both_ways(DType::f32, {256, 2048, 7, 7});   // nor here
  both_ways(DType::f32, {64, 24, 112, 112});  // half-empty tiles
  both_ways(DType::f32, {1, 64, 56, 56}, true);
  both_ways(DType::f32, {1, 3, 224, 224}, true);

  for (const char* mode : {"constant", "reflect"}) {
    const auto pad = op_of("Pad", {{"mode", std::string(mode)}, {"pads", Ints{0, 0, 1, 1, 0, 0, 1, 1}}}, 2, 1);
    for (const Format layout : {nchw, nhwc})
      for (const DType dtype : {DType::f32, DType::f16})
        rows.push_back(measure_op(session, fmt::format("Pad {} {}", mode, to_string(layout)), *pad, dtype, images,
                                  layout, layout));
    rows.push_back(
        measure_op(session, fmt::format("Pad {} nhwc", mode), *pad, DType::f32, {1, 64, 56, 56}, nhwc, nhwc, 1, true));
  }

  const auto concat = op_of("Concat", {{"axis", std::int64_t{1}}}, 13, 2);
  for (const Format layout : {nchw, nhwc}) {
    const std::string what = fmt::format("Concat of 2 {}", to_string(layout));
    rows.push_back(measure_op(session, what, *concat, DType::f32, images, layout, layout, 2));
    rows.push_back(measure_op(session, what, *concat, DType::f32, {1, 64, 55, 55}, layout, layout, 2, true));
  }

  const auto transpose = [&](const Ints& perm, const Shape& shape, DType dtype) {
    const auto op = op_of("Transpose", {{"perm", perm}}, 13, 1);
    rows.push_back(
        measure_op(session, fmt::format("Transpose {}", fmt::join(perm, ",")), *op, dtype, shape, nchw, nchw));
  };
  transpose({1, 0}, {8192, 8192}, DType::f32);
  transpose({1, 0}, {8191, 8191}, DType::f32);
  transpose({1, 0}, {8192, 8192}, DType::f16);
  transpose({0, 2, 1, 3}, {64, 197, 12, 64}, DType::f32);
  transpose({0, 2, 1, 3, 4}, {64, 4, 29, 28, 28}, DType::f32);  // ShuffleNet's channels
  const auto to_space = op_of("DepthToSpace", {{"blocksize", std::int64_t{2}}}, 13, 1);
  const auto to_depth = op_of("SpaceToDepth", {{"blocksize", std::int64_t{2}}}, 13, 1);
  for (const Format layout : {nchw, nhwc}) {
    rows.push_back(measure_op(session, fmt::format("DepthToSpace 2 {}", to_string(layout)), *to_space, DType::f32,
                              images, layout, layout));
    rows.push_back(measure_op(session, fmt::format("SpaceToDepth 2 {}", to_string(layout)), *to_depth, DType::f32,
                              images, layout, layout));
  }
  return rows;
}

}  // namespace lenslet::bench

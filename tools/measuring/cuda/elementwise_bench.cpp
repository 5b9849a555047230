// Elementwise kernels, one row for each family.

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "ops/core/onnx_types.h"
#include "tools/measuring/cuda/memory_bench.h"

namespace lenslet::bench {

std::vector<Row> elementwise(cuda::Session& session) {
  constexpr Format nchw = formats::nchw, nhwc = formats::nhwc;
  constexpr DType f32 = DType::f32;
  std::vector<Row> rows;

  const auto unary = [&](const char* op, const AttributeList& attributes, std::int64_t opset, std::int64_t count,
                         bool few_bytes = false) {
    const TensorType x{f32, {count}};
    rows.push_back(measure_op(session, fmt::format("{} {}", op, x.shape.str()),
                              {.op = op, .attributes = attributes, .inputs = {x}, .opset = opset}, few_bytes));
  };
  const AttributeList bounds{{"min", 0.0}, {"max", 6.0}};
  for (const int power : {20, 24, 26, 28}) unary("Clip", bounds, 6, std::int64_t{1} << power);
  unary("Clip", bounds, 6, (std::int64_t{1} << 26) + 3);
  unary("Clip", bounds, 6, 64 * 56 * 56, true);
  for (const char* op : {"Sigmoid", "SiLU", "Tanh", "Erf", "Mish"}) unary(op, {}, 18, std::int64_t{1} << 26);

  const auto binary = [&](const std::string& what, const char* op, const Shape& a, const Shape& b, Format format,
                          bool few_bytes = false) {
    rows.push_back(measure_op(session, fmt::format("{} {}", what, a.str()),
                              {.op = op, .inputs = {{f32, a}, {f32, b}}, .format = format}, few_bytes));
  };
  const Shape images{64, 256, 56, 56};
  for (const Format format : {nchw, nhwc}) {
    const auto per_channel = [&](const Shape& shape, bool few_bytes = false) {
      binary(fmt::format("Mul per channel {}", to_string(format)), "Mul", shape, {shape[1], 1, 1}, format, few_bytes);
    };
    binary(fmt::format("Add {}", to_string(format)), "Add", images, images, format);
    per_channel(images);
    per_channel({64, 255, 55, 55});  // rows that end with a partial vector
    per_channel({1, 64, 56, 56}, true);
    binary(fmt::format("Mul per image and channel {}", to_string(format)), "Mul", images, {64, 256, 1, 1}, format);
  }
  binary("Add", "Add", {1, 64, 56, 56}, {1, 64, 56, 56}, nhwc, true);
  binary("Mul by a scalar", "Mul", images, {}, nhwc);
  binary("Div", "Div", images, images, nhwc);

  const auto other = [&](const std::string& what, const Node& node) {
    rows.push_back(measure_op(session, fmt::format("{} {}", what, images.str()), node));
  };
  other("Where", {.op = "Where", .inputs = {{DType::boolean, images}, {f32, images}, {f32, images}}});
  other("SwiGLU", {.op = "SwiGLU", .inputs = {{f32, images}, {f32, images}}, .opset = 28});
  other("Less", {.op = "Less", .inputs = {{f32, images}, {f32, images}}});
  const auto cast = [&](DType from, DType to) {
    other(fmt::format("Cast {} to {}", to_string(from), to_string(to)),
          {.op = "Cast", .attributes = {{"to", dtype_to_onnx(to)}}, .inputs = {{from, images}}});
  };
  cast(f32, DType::f16);
  cast(DType::f16, f32);
  cast(DType::u8, f32);
  cast(DType::i32, DType::i64);
  return rows;
}

}  // namespace lenslet::bench

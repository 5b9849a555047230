// Elementwise kernels, a row for each family.

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/elementwise/binary_cuda.h"
#include "ops/elementwise/cast_cuda.h"
#include "ops/elementwise/logic_cuda.h"
#include "ops/elementwise/unary_cuda.h"
#include "tests/cuda/bench.h"

namespace lenslet::bench {
namespace {

struct Operand {
  DType dtype;
  Shape shape;
  Format layout;
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elems()) * dtype_bytes(dtype); }
};

/// f(inputs, y): one call.
template <typename F>
Row measure_call(const cuda::Session& session, std::string_view what, std::span<const Operand> inputs,
                 const Operand& output, const F& f, bool few_bytes = false) {
  // Each begins as aligned as a plan would place it. What separates them counts as read: less than 256 bytes each.
  std::size_t from_bytes = 0;
  std::vector<std::size_t> begins;
  for (const Operand& input : inputs) {
    begins.push_back((from_bytes + 255) / 256 * 256);
    from_bytes = begins.back() + input.bytes();
  }
  return measure(
      session, fmt::format("{} {}{}", what, output.shape.str(), few_bytes ? ", in L2" : ""), from_bytes, output.bytes(),
      [&](const std::byte* from, std::byte* to) {
        std::vector<Tensor> tensors;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          tensors.push_back(
              Tensor::share(inputs[i].dtype, inputs[i].shape, nullptr, from + begins[i], inputs[i].layout));
        Tensor y = Tensor::view(output.dtype, output.shape, to, output.layout);
        f(tensors, y);
      },
      few_bytes);
}

}  // namespace

std::vector<Row> elementwise(const cuda::Session& session) {
  using Tensors = std::vector<Tensor>;
  constexpr Format nchw = formats::nchw, nhwc = formats::nhwc;
  constexpr DType f32 = DType::f32;
  const cuda::Context& context = session.context();
  std::vector<Row> rows;

  const auto unary = [&](std::string_view what, UnaryFunction f, std::int64_t count, bool few_bytes = false) {
    const Operand x{f32, {count}, nchw};
    rows.push_back(measure_call(
        session, what, {{x}}, x, [&](const Tensors& in, Tensor& y) { cuda::unary(context, f, in[0], y); }, few_bytes));
  };
  for (const int power : {20, 24, 26, 28}) unary("Clip", {UnaryKind::clip, 0, 6}, std::int64_t{1} << power);
  unary("Clip", {UnaryKind::clip, 0, 6}, (std::int64_t{1} << 26) + 3);
  unary("Clip", {UnaryKind::clip, 0, 6}, 64 * 56 * 56, true);
  for (const auto& [what, kind] : {std::pair{"Sigmoid", UnaryKind::sigmoid},
                                   {"SiLU", UnaryKind::silu},
                                   {"Tanh", UnaryKind::tanh},
                                   {"Erf", UnaryKind::erf},
                                   {"Mish", UnaryKind::mish}})
    unary(what, {kind, 0, 0}, std::int64_t{1} << 26);

  const auto binary = [&](std::string_view what, BinaryKind kind, const Operand& a, const Operand& b,
                          bool few_bytes = false) {
    rows.push_back(measure_call(
        session, what, {{a, b}}, a, [&](const Tensors& in, Tensor& y) { cuda::binary(context, kind, in[0], in[1], y); },
        few_bytes));
  };
  const auto images = [](std::int64_t n, std::int64_t c, std::int64_t size, Format layout) {
    return Operand{f32, {n, c, size, size}, layout};
  };
  for (const Format layout : {nchw, nhwc}) {
    const auto per_channel = [&](std::int64_t n, std::int64_t c, std::int64_t size, bool few_bytes = false) {
      binary(fmt::format("Mul per channel {}", to_string(layout)), BinaryKind::mul, images(n, c, size, layout),
             {f32, {c, 1, 1}, nchw}, few_bytes);
    };
    binary(fmt::format("Add {}", to_string(layout)), BinaryKind::add, images(64, 256, 56, layout),
           images(64, 256, 56, layout));
    per_channel(64, 256, 56);
    per_channel(64, 255, 55);  // rows that do not end with a pack
    per_channel(1, 64, 56, true);
    binary(fmt::format("Mul per image and channel {}", to_string(layout)), BinaryKind::mul, images(64, 256, 56, layout),
           {f32, {64, 256, 1, 1}, layout});
  }
  binary("Add", BinaryKind::add, images(1, 64, 56, nhwc), images(1, 64, 56, nhwc), true);
  binary("Mul by a scalar", BinaryKind::mul, images(64, 256, 56, nhwc), {f32, {}, nchw});
  binary("Div", BinaryKind::div, images(64, 256, 56, nhwc), images(64, 256, 56, nhwc));

  const Operand big = images(64, 256, 56, nchw), mask{DType::boolean, big.shape, nchw};
  rows.push_back(measure_call(session, "Where", {{mask, big, big}}, big,
                              [&](const Tensors& in, Tensor& y) { cuda::where(context, in[0], in[1], in[2], y); }));
  rows.push_back(measure_call(session, "Less", {{big, big}}, mask, [&](const Tensors& in, Tensor& y) {
    cuda::logic(context, LogicKind::less, in[0], in[1], y);
  }));
  const auto cast = [&](DType from, DType to) {
    rows.push_back(measure_call(session, fmt::format("Cast {} to {}", to_string(from), to_string(to)),
                                {{Operand{from, big.shape, nchw}}}, {to, big.shape, nchw},
                                [&](const Tensors& in, Tensor& y) { cuda::cast(context, in[0], y); }));
  };
  cast(f32, DType::f16);
  cast(DType::f16, f32);
  cast(DType::u8, f32);
  cast(DType::i32, DType::i64);
  return rows;
}

}  // namespace lenslet::bench

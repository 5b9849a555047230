// QuantizedAdd and QuantizedMul: arithmetic of two broadcast tensors of 8-bit codes.

#include <algorithm>
#include <array>

#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/quantized/byte_kernels.h"
#include "ops/quantized/codes.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {

namespace {

/// y = the code of (a's number + or * b's number), rounded to nearest even and clamped. In float32: both numbers, the
/// sum or product and the quotient by y_scale are rounded. A sum may be in fixed point instead (choose_fixed_point):
/// where its quotient is within 1/100 of a tie, y is one of the two codes.
class QuantizedBinary final : public Op {
 public:
  explicit QuantizedBinary(const NodeSpec& spec) : multiplies(spec.name == "QuantizedMul") {
    AttributeReader reader(spec);
    a = read_codes(reader, "a");
    b = read_codes(reader, "b");
    y = read_stored_codes(reader);
    reader.finish();
  }

  bool multiplies;
  Codes a, b;
  StoredCodes y;

  std::string_view type() const override { return multiplies ? "QuantizedMul" : "QuantizedAdd"; }
  AttributeList attributes() const override {
    AttributeList list;
    append_codes(list, "a", a);
    append_codes(list, "b", b);
    append_codes(list, y);
    return list;
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    require_dtype("input a", required_input(inputs, 0, "a").dtype, {DType::u8, DType::i8});
    require_dtype("input b", required_input(inputs, 1, "b").dtype, {DType::u8, DType::i8});
    return {{y.type, broadcast_shapes(inputs[0].type.shape, inputs[1].type.shape)}};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return static_cast<double>(outputs[0].shape.elems());
  }
  std::size_t elementwise_inputs() const override { return 2; }
};

std::unique_ptr<const BoundKernel> bind_binary(const Binding& binding) {
  const BroadcastLoops::Operand operands[] = {{&binding.output_shape(), binding.output_format()},
                                              {&binding.shape(0), binding.format(0)},
                                              {&binding.shape(1), binding.format(1)}};
  const BroadcastLoops loops(binding.output_shape(), binding.output_format(), operands);
  const auto& op = binding.op<QuantizedBinary>();
  const auto operand = [&](std::size_t input, const Codes& codes) {
    const DType type = binding.problem.inputs()[input].type.dtype;
    return ByteOperand{.stride = loops.inner_stride(static_cast<int>(input) + 1),
                       .flip = sign_flip(type),
                       .zero_point = codes.zero_point + flipped_offset(type),
                       .scale = codes.scale};
  };
  BinaryCodes codes{.multiplies = op.multiplies,
                    .y_scale = op.y.scale,
                    .y_zero_point = op.y.zero_point,
                    .least = op.y.least,
                    .most = op.y.most,
                    .y_flip = sign_flip(op.y.type)};
  const bool long_rows = loops.rank == 1 || loops.inner() > elementwise_grain;
  const ByteOperand a = operand(0, op.a), b = operand(1, op.b);
  choose_fixed_point(codes, a, b);
  return bound([=](const KernelRun& run) {
    const auto apply = [&](const auto& at, std::int64_t rows, std::int64_t n, const std::array<std::int64_t, 3>& row) {
      ByteOperand left = a, right = b;
      left.at = run.in<std::uint8_t>(0) + at[1];
      right.at = run.in<std::uint8_t>(1) + at[2];
      left.row = row[1];
      right.row = row[2];
      binary_codes(codes, left, right, run.out<std::uint8_t>() + at[0], row[0], rows, n);
    };
    if (long_rows)
      return for_each_run(loops, *run.pool, elementwise_grain,
                          [&](const auto& at, std::int64_t n) { apply(at, 1, n, {}); });
    // Short rows (a pixel's channels) are processed many at a time.
    BroadcastLoops outer = loops;
    --outer.rank;
    const std::int64_t inner = loops.inner();
    for_each_run(outer, *run.pool, std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(inner, 1)),
                 [&](const auto& at, std::int64_t rows) {
                   apply(at, rows, inner, {outer.inner_stride(0), outer.inner_stride(1), outer.inner_stride(2)});
                 });
  });
}

constexpr SimpleKernel kernels[] = {{.types = dtypes<Int8Types>,
                                     .formats = nchw_or_nhwc,
                                     .in_place = input_bit(0) | input_bit(1),
                                     .bind = bind_binary}};

}  // namespace

OpParts quantized_binary() { return {make_from<QuantizedBinary>, kernels}; }

}  // namespace lenslet

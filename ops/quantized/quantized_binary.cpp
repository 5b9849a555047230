// QuantizedAdd and QuantizedMul: arithmetic of two broadcast tensors of 8-bit codes.

#include <algorithm>
#include <cmath>

#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/quantized/codes.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {

namespace {

/// y = the code of (a's number + or * b's number), rounded to nearest even and clamped. In float32: both numbers, the
/// sum or product and the quotient by y_scale are rounded.
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
  return bound([loops, op = binding.op<QuantizedBinary>()](const KernelRun& run) {
    const std::uint8_t *const a = run.in<std::uint8_t>(0), *const b = run.in<std::uint8_t>(1);
    std::uint8_t* const y = run.out<std::uint8_t>();
    const auto number = [](std::uint8_t code, DType type, const Codes& of) {
      const int offset = of.zero_point + flipped_offset(type);
      return static_cast<float>((code ^ sign_flip(type)) - offset) * of.scale;
    };
    for_each_run(loops, *run.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) {
        const float left = number(a[at[1] + i * loops.inner_stride(1)], run.inputs[0].dtype(), op.a);
        const float right = number(b[at[2] + i * loops.inner_stride(2)], run.inputs[1].dtype(), op.b);
        const float code =
            std::rint((op.multiplies ? left * right : left + right) / op.y.scale) + static_cast<float>(op.y.zero_point);
        const float least = static_cast<float>(op.y.least), most = static_cast<float>(op.y.most);
        y[at[0] + i] = static_cast<std::uint8_t>(static_cast<int>(code > least ? std::min(code, most) : least));
      }
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

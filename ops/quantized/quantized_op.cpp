#include "ops/quantized/quantized_op.h"

#include <fmt/format.h>

#include <tuple>

namespace lenslet {

DType IntegerInputs::result_type(std::span<const InputInfo> inputs) const {
  for (const auto& [data, zero, name] :
       {std::tuple(left, left_zero, "the left operand"), std::tuple(right, right_zero, "the right operand")}) {
    const DType dtype = required_input(inputs, data, name).dtype;
    require_dtype(name, dtype, {DType::i8, DType::u8});
    if (present(inputs, zero) && inputs[zero].type.dtype != dtype)
      throw Error(ErrorKind::invalid_model, fmt::format("the zero point of {} is {}, but {} is {}", name,
                                                        to_string(inputs[zero].type.dtype), name, to_string(dtype)));
  }
  if (present(inputs, bias)) require_dtype("the bias", inputs[bias].type.dtype, {DType::i32});
  if (y_scale == none) return DType::i32;
  for (const auto& [input, name] :
       {std::pair(left_scale, "the left scale"), {right_scale, "the right scale"}, {y_scale, "y_scale"}})
    require_dtype(name, required_input(inputs, input, name).dtype, {DType::f32});
  const DType dtype = required_input(inputs, y_zero, "y_zero_point").dtype;
  require_dtype("y_zero_point", dtype, {DType::i8, DType::u8});
  for (const auto& [input, name] : {std::pair(y_scale, "y_scale"), {y_zero, "y_zero_point"}})
    if (inputs[input].type.shape.elems() != 1)
      throw Error(ErrorKind::unsupported, fmt::format("{} has shape {}; one for the whole tensor is done", name,
                                                      inputs[input].type.shape.str()));
  return dtype;
}

IntegerRun::IntegerRun(const KernelRun& run, const IntegerInputs& inputs, const IntegerLines& lines) {
  const auto operand = [&](std::size_t data, std::size_t zero, const Lines& zeros) {
    return IntegerOperand{.data = run.in<std::uint8_t>(data),
                          .is_signed = run.inputs[data].dtype() == DType::i8,
                          .zero = run.in<std::uint8_t>(zero),
                          .zeros = zeros};
  };
  left = operand(inputs.left, inputs.left_zero, lines.left_zero);
  right = operand(inputs.right, inputs.right_zero, lines.right_zero);
  result.y = run.outputs[0].data();
  result.bias = run.in<std::int32_t>(inputs.bias);
  if (inputs.y_scale == IntegerInputs::none) return;
  result.row_scale = {run.in<float>(inputs.left_scale), lines.left_scale};
  result.column_scale = {run.in<float>(inputs.right_scale), lines.right_scale};
  result.y_scale = run.in<float>(inputs.y_scale);
  result.y_zero = {.is_signed = run.outputs[0].dtype() == DType::i8, .zero = run.in<std::uint8_t>(inputs.y_zero)};
}

IntegerOperand operand_of(const Problem& problem, std::size_t data, std::size_t zero, const Lines& zeros) {
  const auto bytes = [&](std::size_t input) {
    return present(problem.inputs(), input) ? static_cast<const std::uint8_t*>(problem.inputs()[input].constant->data())
                                            : nullptr;
  };
  return {.data = bytes(data),
          .is_signed = problem.inputs()[data].type.dtype == DType::i8,
          .zero = bytes(zero),
          .zeros = zeros};
}

bool is_known(std::span<const InputInfo> inputs, std::size_t data, std::size_t zero) {
  return inputs[data].constant != nullptr && (!present(inputs, zero) || inputs[zero].constant != nullptr);
}

}  // namespace lenslet

// QuantizedTable: any function of an 8-bit code, from a table of its 256 results.

#include <fmt/format.h>

#include <array>
#include <limits>

#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/quantized/byte_kernels.h"
#include "ops/quantized/codes.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {

namespace {

/// y = table[x], by the bits of x.
class QuantizedTable final : public Op {
 public:
  explicit QuantizedTable(const NodeSpec& spec) {
    AttributeReader reader(spec);
    stored = read_stored_type(reader);
    values = reader.integers("table");
    reader.finish();
    if (values.size() != table.size())
      throw Error(ErrorKind::invalid_model, fmt::format("attribute 'table' has {} codes, not 256", values.size()));
    const std::int64_t least = stored == DType::i8 ? -128 : 0;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (values[i] < least || values[i] > least + 255)
        throw Error(ErrorKind::invalid_model,
                    fmt::format("attribute 'table' has {}, which is no {}", values[i], to_string(stored)));
      table[i] = static_cast<std::uint8_t>(values[i]);
    }
  }

  DType stored = DType::u8;
  std::array<std::uint8_t, 256> table{};  ///< the bits of `values`
  std::vector<std::int64_t> values;

  std::string_view type() const override { return "QuantizedTable"; }
  AttributeList attributes() const override {
    return {{"table", values}, {"stored_type", std::string(to_string(stored))}};
  }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "x");
    require_dtype("input x", x.dtype, {DType::u8, DType::i8});
    return {{stored, x.shape}};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return static_cast<double>(outputs[0].shape.elems());
  }
  std::size_t elementwise_inputs() const override { return 1; }
};

void run_table(const QuantizedTable& op, const KernelRun& run) {
  const auto bytes = static_cast<std::int64_t>(run.inputs[0].bytes());
  run.pool->parallel_for(bytes, elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
    look_up_codes(op.table, run.in<std::uint8_t>(0) + begin, end - begin, run.out<std::uint8_t>() + begin);
  });
}

std::span<const Format> formats_for(const Problem& problem) {
  return problem.inputs()[0].constant != nullptr ? std::span<const Format>(nchw_only) : nchw_or_nhwc;
}

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Int8Types>, .formats_for = formats_for, .in_place = input_bit(0), .bind = bind_run<run_table>}};

}  // namespace

OpParts quantized_table() { return {make_from<QuantizedTable>, kernels}; }

}  // namespace lenslet

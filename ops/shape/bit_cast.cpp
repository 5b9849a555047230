// BitCast: the same bytes as another type with equal bits.

#include <fmt/format.h>

#include "base/small_types.h"
#include "ops/core/checks.h"
#include "ops/core/onnx_types.h"
#include "ops/shape/view_op.h"

namespace lenslet {

namespace {

class BitCast final : public Op {
 public:
  explicit BitCast(const NodeSpec& spec) {
    AttributeReader reader(spec);
    to_ = dtype_from_onnx(reader.required_integer("to"));
    reader.finish();
  }

  std::string_view type() const override { return "BitCast"; }
  AttributeList attributes() const override { return {{"to", dtype_to_onnx(to_)}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    if (dtype_bits(x.dtype) != dtype_bits(to_)) {
      const std::string what =
          fmt::format("{} and {} differ in the number of bits", to_string(x.dtype), to_string(to_));
      // Not for 16 and 64 bit floats: the network stores them as float32.
      throw Error(x.dtype == DType::f32 ? ErrorKind::unsupported : ErrorKind::invalid_model, what);
    }
    if (dtype_bits(to_) < 8)
      throw Error(ErrorKind::unsupported, fmt::format("the bits of {} as {}", to_string(x.dtype), to_string(to_)));
    return {{to_, x.shape}};
  }
  std::size_t elementwise_inputs() const override { return any_number; }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return inputs[0].type.dtype == to_; }

 private:
  DType to_ = DType::f32;
};

constexpr auto kernels = on_either({.formats = nchw_or_nhwc, .bind = bind_run<run_view>});

}  // namespace

OpParts bit_cast() { return {make_from<BitCast>, kernels}; }

}  // namespace lenslet

// Cast between all numeric types and bool, and CastLike, whose type is that of another tensor: as convert.h converts.

#include "base/convert.h"
#include "ops/core/checks.h"
#include "ops/core/onnx_types.h"
#include "ops/elementwise/cast_cuda.h"
#include "ops/elementwise/elementwise.h"

namespace lenslet {

namespace {

class CastOp final : public Op {
 public:
  explicit CastOp(DType to) : to_(to) {}

  std::string_view type() const override { return "Cast"; }
  AttributeList attributes() const override { return {{"to", dtype_to_onnx(to_)}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {{to_, required_input(inputs, 0, "input").shape}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return elementwise_axes(inputs, y);
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return inputs[0].type.dtype == to_; }

 private:
  DType to_;
};

class CastLikeOp final : public Op {
 public:
  std::string_view type() const override { return "CastLike"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    return {{required_input(inputs, 1, "target_type").dtype, required_input(inputs, 0, "input").shape}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return elementwise_axes(inputs, y, 1);
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    return inputs[0].type.dtype == inputs[1].type.dtype;
  }
};

void run_cast(const Op&, const KernelRun& run) {
  const Tensor& x = run.inputs[0];
  Tensor& y = run.outputs[0];
  if (run.cuda != nullptr) {
    if constexpr (cuda_built) cuda::cast(*run.cuda, x.dtype(), x.data(), y.dtype(), y.data(), stored_elems(x));
    return;
  }
  run.pool->parallel_for(stored_elems(x), elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
    const auto at = [begin](auto* data, DType dtype) {
      return data + static_cast<std::size_t>(begin) * dtype_bytes(dtype);
    };
    convert_elements(x.dtype(), at(static_cast<const std::byte*>(x.data()), x.dtype()), y.dtype(),
                     at(static_cast<std::byte*>(y.data()), y.dtype()), end - begin);
  });
}

constexpr auto kernels = on_both({.formats_for = formats_of_x, .in_place = input_bit(0), .reads = input_bit(0)},
                                 bind_run<run_cast>, bind_run<run_cast>);

// What concerns floats of 8 bits alone.
void ignore_rounding(const NodeSpec& spec, AttributeReader& reader) {
  if (!spec.before(19)) reader.ignore("saturate");
  if (!spec.before(24)) reader.ignore("round_mode");
}

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const DType to = dtype_from_onnx(reader.required_integer("to"));
  ignore_rounding(spec, reader);
  reader.finish();
  return std::make_shared<CastOp>(to);
}

std::shared_ptr<const Op> make_like(const NodeSpec& spec) {
  AttributeReader reader(spec);
  ignore_rounding(spec, reader);
  reader.finish();
  return std::make_shared<CastLikeOp>();
}

}  // namespace

OpParts cast() { return {make, kernels}; }
OpParts cast_like() { return {make_like, kernels}; }

}  // namespace lenslet

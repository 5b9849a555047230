// Cast between all numeric types and bool: as convert.h converts.

#include "ops/core/checks.h"
#include "ops/core/onnx_types.h"
#include "ops/elementwise/cast_cuda.h"
#include "ops/elementwise/convert.h"
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

void run_cast(const CastOp&, const KernelRun& run) {
  const Tensor& x = run.inputs[0];
  Tensor& y = run.outputs[0];
  if (run.cuda != nullptr) {
    if constexpr (cuda_built) cuda::cast(*run.cuda, x.dtype(), x.data(), y.dtype(), y.data(), stored_elems(x));
    return;
  }
  dispatch(x.dtype(), AllTypes(), [&]<typename From>(std::type_identity<From>) {
    dispatch(y.dtype(), AllTypes(), [&]<typename To>(std::type_identity<To>) {
      transform(*run.pool, stored_elems(x), Convert<To, From>(), static_cast<Stored<To>*>(y.data()),
                static_cast<const Stored<From>*>(x.data()));
    });
  });
}

constexpr auto kernels =
    on_both({.formats_for = formats_of_x, .in_place = input_bit(0)}, bind_run<run_cast>, bind_run<run_cast>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const DType to = dtype_from_onnx(reader.required_integer("to"));
  // Both concern floats of 8 bits alone.
  if (!spec.before(19)) reader.ignore("saturate");
  if (!spec.before(24)) reader.ignore("round_mode");
  reader.finish();
  return std::make_shared<CastOp>(to);
}

}  // namespace

OpParts cast() { return {make, kernels}; }

}  // namespace lenslet

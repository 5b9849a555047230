// InstanceNormalization: each image's each channel gets mean 0 and variance 1, then a factor and an offset per channel.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/normalization/row_kernels.h"

namespace lenslet {

namespace {

/// Inputs: x [N,C,...] of rank 3 to 5, scale and bias [C].
class InstanceNormOp final : public Op {
 public:
  float epsilon = 1e-5f;

  std::string_view type() const override { return "InstanceNormalization"; }
  AttributeList attributes() const override { return {{"epsilon", static_cast<double>(epsilon)}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_rank("input", x.shape, 3, 5);
    require_equal_dtypes(inputs);
    constexpr std::string_view names[] = {"input", "scale", "B"};
    for (std::size_t i = 1; i < 3; ++i)
      require_shape(fmt::format("input {}", names[i]), required_input(inputs, i, names[i]).shape, Shape{x.shape[1]});
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 6.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0, 1});
  }
};

/// Planes are rows.
struct Planes {
  float epsilon;
  std::int64_t channels, count, length;

  explicit Planes(const Binding& binding)
      : epsilon(binding.op<InstanceNormOp>().epsilon),
        channels(binding.shape(0)[1]),
        count(binding.shape(0)[0] * channels),
        length(count == 0 ? 0 : binding.shape(0).elems() / count) {}
  AffineOfChannel affine(const KernelRun& run) const { return {run.in<float>(1), run.in<float>(2), channels}; }
};

constexpr auto kernels = on_both({.types = dtypes<Types<float>>, .tolerance = 2e-6, .in_place = input_bit(0)},
                                 bind_rows<Planes>, bind_rows_cuda<Planes>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<InstanceNormOp>();
  AttributeReader reader(spec);
  op->epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  reader.ignore("consumed_inputs");
  reader.finish();
  return op;
}

}  // namespace

OpParts instance_norm() { return {make, kernels}; }

}  // namespace lenslet

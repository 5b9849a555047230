// InstanceNormalization: each image's each channel gets mean 0 and variance 1, then a factor and an offset per channel.

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/normalization/normalize_rows.h"

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
  std::int64_t channels, rows, length;

  explicit Planes(const Binding& binding)
      : epsilon(binding.op<InstanceNormOp>().epsilon),
        channels(binding.shape(0)[1]),
        rows(binding.shape(0)[0] * channels),
        length(rows == 0 ? 0 : binding.shape(0).elems() / rows) {}
  AffineOfChannel affine(const KernelRun& run) const { return {data(run, 1), data(run, 2), channels}; }
  static const float* data(const KernelRun& run, std::size_t input) {
    return static_cast<const float*>(run.inputs[input].data());
  }
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([p = Planes(binding)](const KernelRun& run) {
    normalize_rows(p.affine(run), p.epsilon, p.rows, p.length, p.data(run, 0), run.outputs[0].values<float>().data(),
                   *run.pool);
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const Planes p(binding);
    const auto run_on = [p](const KernelRun& run) {
      cuda::normalize_rows(*run.cuda, p.affine(run), p.epsilon, p.rows, p.length, p.data(run, 0),
                           static_cast<float*>(run.outputs[0].data()), run.workspace.data());
    };
    return bound(run_on, cuda::normalize_rows_workspace_bytes<AffineOfChannel>(p.rows, p.length));
  }
  return nullptr;
}

constexpr auto kernels =
    on_both({.types = dtypes<Types<float>>, .tolerance = 2e-6, .in_place = input_bit(0)}, bind_cpu, bind_cuda);

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

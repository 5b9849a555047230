// InstanceNormalization: each image's each channel gets mean 0 and variance 1, then a factor and an offset per channel.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/normalization/instance_norm_cuda.h"

namespace lenslet {

namespace {

/// Inputs: x [N,C,...] of rank 3 to 5, scale and bias [C]; float32, layout nchw. Statistics are taken in double.
class InstanceNormOp final : public Op {
 public:
  explicit InstanceNormOp(float epsilon) : epsilon_(epsilon) {}
  std::string_view type() const override { return "InstanceNormalization"; }
  AttributeList attributes() const override { return {{"epsilon", static_cast<double>(epsilon_)}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_dtype("input", x.dtype, {DType::f32});
    if (x.shape.rank() < 3 || x.shape.rank() > 5)
      throw Error(ErrorKind::unsupported, fmt::format("input has shape {} (supported: rank 3 to 5)", x.shape.str()));
    constexpr std::string_view names[] = {"input", "scale", "B"};
    for (std::size_t i = 1; i < 3; ++i) {
      const TensorType& parameter = required_input(inputs, i, names[i]);
      require_dtype(fmt::format("input {}", names[i]), parameter.dtype, {DType::f32});
      require_shape(fmt::format("input {}", names[i]), parameter.shape, Shape{x.shape[1]});
    }
    return {x};
  }

  bool may_overwrite(int input) const override { return input == 0; }

  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 6.0 * static_cast<double>(outputs[0].shape.elems());
  }

  void run_cpu(const RunContext& context) const override {
    const Tensor& x = context.inputs[0];
    const std::int64_t channels = x.shape()[1], planes = x.shape()[0] * channels;
    if (x.elems() == 0) return;
    const std::int64_t area = x.elems() / planes;
    const float* x0 = x.values<float>().data();
    const float* scale = context.inputs[1].values<float>().data();
    const float* bias = context.inputs[2].values<float>().data();
    float* y0 = context.outputs[0].values<float>().data();
    context.pool.parallel_for(
        planes, std::max<std::int64_t>(1, elementwise_grain / area), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t plane = begin; plane < end; ++plane)
            normalize(x0 + plane * area, scale[plane % channels], bias[plane % channels], y0 + plane * area, area);
        });
  }

  std::size_t workspace_bytes(const PlanContext& context) const override {
    if constexpr (cuda_built) {
      const Shape& x = context.inputs[0].type.shape;
      const std::int64_t planes = x[0] * x[1];
      if (context.device == DeviceKind::cuda && planes > 0)
        return cuda::instance_norm_workspace_bytes(planes, x.elems() / planes);
    }
    return 0;
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }

  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor& x = run.inputs[0];
      if (x.elems() == 0) return;
      const auto address = [&](std::size_t i) { return static_cast<const float*>(run.inputs[i].data()); };
      const std::int64_t channels = x.shape()[1], planes = x.shape()[0] * channels;
      cuda::instance_norm(run.context, epsilon_, planes, channels, x.elems() / planes, address(1), address(2),
                          address(0), static_cast<float*>(run.outputs[0].data()), run.workspace.data());
    }
  }

 private:
  void normalize(const float* x, float scale, float bias, float* y, std::int64_t area) const {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < area; ++i) sum += static_cast<double>(x[i]);
    const double mean = sum / static_cast<double>(area);
    for (std::int64_t i = 0; i < area; ++i) {
      const double distance = static_cast<double>(x[i]) - mean;
      squares += distance * distance;
    }
    const double variance = squares / static_cast<double>(area);
    const double factor = static_cast<double>(scale) / std::sqrt(variance + static_cast<double>(epsilon_));
    // x * factor - mean * factor would cancel for a large mean: the subtraction comes first.
    const auto center = static_cast<float>(mean), gain = static_cast<float>(factor);
    const float minus_rest =
        static_cast<float>(static_cast<double>(bias) - (mean - static_cast<double>(center)) * factor);
    for (std::int64_t i = 0; i < area; ++i) y[i] = (x[i] - center) * gain + minus_rest;
  }

  float epsilon_;
};

}  // namespace

std::shared_ptr<const Op> make_instance_norm(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const auto epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  reader.ignore("consumed_inputs");
  reader.finish();
  return std::make_shared<InstanceNormOp>(epsilon);
}

}  // namespace lenslet

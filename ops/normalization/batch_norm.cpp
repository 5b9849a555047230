#include "ops/normalization/batch_norm.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/core/broadcast.h"
#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/elementwise/binary_kernels.h"
#include "ops/normalization/batch_norm_cuda.h"

namespace lenslet {

namespace {

void fold(float epsilon, float scale, float bias, float mean, float var, double& factor, double& offset) {
  factor = static_cast<double>(scale) / std::sqrt(static_cast<double>(var) + static_cast<double>(epsilon));
  offset = static_cast<double>(bias) - static_cast<double>(mean) * factor;
}

}  // namespace

void batch_norm_as_scale(float epsilon, std::span<const float> scale, std::span<const float> bias,
                         std::span<const float> mean, std::span<const float> var, std::span<double> factor,
                         std::span<double> offset) {
  for (std::size_t c = 0; c < scale.size(); ++c)
    fold(epsilon, scale[c], bias[c], mean[c], var[c], factor[c], offset[c]);
}

AttributeList BatchNormOp::attributes() const { return {{"epsilon", static_cast<double>(epsilon)}}; }

std::vector<TensorType> BatchNormOp::infer(std::span<const InputInfo> inputs) const {
  const TensorType& x = required_input(inputs, 0, "X");
  require_dtype("input X", x.dtype, {DType::f32});
  if (x.shape.rank() < 2 || x.shape.rank() > 5)
    throw Error(ErrorKind::unsupported, fmt::format("input X has shape {} (supported: rank 2 to 5)", x.shape.str()));
  constexpr std::string_view names[] = {"X", "scale", "B", "mean", "var"};
  for (std::size_t i = 1; i < 5; ++i) {
    const TensorType& parameter = required_input(inputs, i, names[i]);
    require_dtype(fmt::format("input {}", names[i]), parameter.dtype, {DType::f32});
    require_shape(fmt::format("input {}", names[i]), parameter.shape, Shape{x.shape[1]});
  }
  return {x};
}

double BatchNormOp::flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const {
  return 2.0 * static_cast<double>(outputs[0].shape.elems());
}

std::size_t BatchNormOp::workspace_bytes(const PlanContext& context) const {
  return 2 * sizeof(float) * static_cast<std::size_t>(context.outputs[0].shape[1]);
}

void BatchNormOp::run_cpu(const RunContext& context) const {
  const Tensor& x = context.inputs[0];
  Tensor& y = context.outputs[0];
  const std::int64_t channels = x.shape()[1];
  auto* factor = reinterpret_cast<float*>(context.workspace.data());
  float* offset = factor + channels;
  const auto parameter = [&](std::size_t input, std::int64_t c) {
    return context.inputs[input].values<float>()[static_cast<std::size_t>(c)];
  };
  for (std::int64_t c = 0; c < channels; ++c) {
    double a = 0, b = 0;
    fold(epsilon, parameter(1, c), parameter(2, c), parameter(3, c), parameter(4, c), a, b);
    factor[c] = static_cast<float>(a);
    offset[c] = static_cast<float>(b);
  }
  std::array<std::int64_t, Shape::max_rank> ones;
  ones.fill(1);
  Shape per_channel(std::span<const std::int64_t>(ones.data(), static_cast<std::size_t>(x.shape().rank())));
  per_channel = per_channel.with(1, channels);
  const BroadcastLoops::Operand operands[] = {
      {&y.shape(), y.format()}, {&x.shape(), x.format()}, {&per_channel, formats::nchw}};
  const BroadcastLoops loops(y.shape(), y.format(), operands);
  const float* x0 = x.values<float>().data();
  float* y0 = y.values<float>().data();
  for_each_run(loops, context.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
    apply_scale_shift(x0 + at[1], factor + at[2], offset + at[2], loops.inner_stride(2), y0 + at[0], n);
  });
}

void BatchNormOp::run_cuda(const CudaRun& run) const {
  if constexpr (cuda_built) {
    const Tensor& x = run.inputs[0];
    if (x.elems() == 0) return;
    const auto address = [&](std::size_t i) { return static_cast<const float*>(run.inputs[i].data()); };
    const std::int64_t channels = x.shape()[1], rest = x.elems() / channels, images = x.shape()[0];
    const bool nhwc = x.format() == formats::nhwc && x.shape().rank() == 4;
    cuda::batch_norm(run.context, {address(1), address(2), address(3), address(4), epsilon}, nhwc ? rest : images,
                     channels, nhwc ? 1 : rest / images, address(0), static_cast<float*>(run.outputs[0].data()),
                     reinterpret_cast<float*>(run.workspace.data()));
  }
}

std::shared_ptr<const Op> make_batch_norm(const NodeSpec& spec) {
  auto op = std::make_shared<BatchNormOp>();
  AttributeReader reader(spec.attributes);
  op->epsilon = static_cast<float>(reader.real("epsilon", 1e-5));
  reader.ignore("momentum");
  if (reader.integer("spatial", 1) != 1)
    throw Error(ErrorKind::unsupported, "attribute 'spatial' = 0 (statistics per element) is not supported");
  if (reader.integer("training_mode", 0) != 0)
    throw Error(ErrorKind::unsupported, "attribute 'training_mode' = 1 is not supported: lenslet does inference");
  if (spec.outputs > 1)
    throw Error(ErrorKind::unsupported, "outputs of training (running statistics) are not supported");
  reader.finish();
  return op;
}

}  // namespace lenslet

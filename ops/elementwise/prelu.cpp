// PRelu: y = x < 0 ? slope * x : x, the slope broadcast to x.

#include <fmt/format.h>

#include "ops/core/broadcast.h"
#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/elementwise/binary_cuda.h"
#include "ops/elementwise/binary_kernels.h"

namespace lenslet {

namespace {

class PReluOp final : public Op {
 public:
  std::string_view type() const override { return "PRelu"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    const TensorType& slope = required_input(inputs, 1, "slope");
    require_dtype("input X", x.dtype, {DType::f32});
    require_dtype("input slope", slope.dtype, {DType::f32});
    if (!(broadcast_shapes(x.shape, slope.shape) == x.shape))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("slope {} does not broadcast to {}", slope.shape.str(), x.shape.str()));
    return {x};
  }

  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  bool may_overwrite(int input) const override { return input == 0; }

  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return static_cast<double>(outputs[0].shape.elems());
  }

  void run_cpu(const RunContext& context) const override {
    const Tensor &x = context.inputs[0], &slope = context.inputs[1];
    Tensor& y = context.outputs[0];
    const BroadcastLoops::Operand operands[] = {
        {&y.shape(), y.format()}, {&x.shape(), x.format()}, {&slope.shape(), slope.format()}};
    const BroadcastLoops loops(y.shape(), y.format(), operands);
    const float* x0 = x.values<float>().data();
    const float* slope0 = slope.values<float>().data();
    float* y0 = y.values<float>().data();
    for_each_run(loops, context.pool, elementwise_grain, [&](const auto& at, std::int64_t n) {
      apply_binary(BinaryKind::prelu, x0 + at[1], loops.inner_stride(1), slope0 + at[2], loops.inner_stride(2),
                   y0 + at[0], n);
    });
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built)
      cuda::binary(run.context, BinaryKind::prelu, run.inputs[0], run.inputs[1], run.outputs[0]);
  }
};

}  // namespace

std::shared_ptr<const Op> make_prelu(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<PReluOp>();
}

}  // namespace lenslet

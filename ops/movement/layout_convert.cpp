#include "ops/movement/layout_convert.h"
#include "base/format.h"

#include "ops/core/copy.h"
#include "ops/movement/layout_convert_cuda.h"
#include "ops/movement/transpose_planes.h"

namespace lenslet {
namespace {

class LayoutConvert final : public Op {
 public:
  std::string_view type() const override { return "LayoutConvert"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    if (inputs.empty() || !inputs[0].present || inputs[0].type.shape.rank() != 4)
      throw Error(ErrorKind::invalid_model, "LayoutConvert: input is no 4-D tensor");
    return {inputs[0].type};
  }
  // Input and output have each its own layout: the pass that inserts the node says which.
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }

  void run_cpu(const RunContext& context) const override {
    const Tensor& x = context.inputs[0];
    Tensor& y = context.outputs[0];
    if (x.format() == y.format() || same_bytes(formats::nchw, formats::nhwc, x.shape()))
      return copy_bytes(x, y, context.pool);
    const std::int64_t channels = x.shape()[1], pixels = x.shape()[2] * x.shape()[3];
    const bool to_nhwc = y.format() == formats::nhwc;
    transpose_planes(x.data(), y.data(), dtype_bytes(x.dtype()), x.shape()[0], to_nhwc ? channels : pixels,
                     to_nhwc ? pixels : channels, context.pool);
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  void run_cuda(const CudaRun& run) const override {
    const Tensor& x = run.inputs[0];
    Tensor& y = run.outputs[0];
    if constexpr (cuda_built)
      cuda::convert_layout(run.context, dtype_bytes(x.dtype()), x.shape(), x.format(), y.format(), x.data(), y.data());
  }
};

}  // namespace

std::shared_ptr<const Op> make_layout_convert() { return std::make_shared<LayoutConvert>(); }

std::shared_ptr<const Op> make_layout_convert(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return make_layout_convert();
}

}  // namespace lenslet

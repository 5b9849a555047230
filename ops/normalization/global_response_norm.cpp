// GlobalResponseNorm (S. Woo et al., "ConvNeXt V2", 2023): x + scale * x * n + bias, where n is a channel's norm over
// the image, divided by the mean norm of the channels plus epsilon. Files spell it out; the pass fuse_response_norm
// makes it.

#include <utility>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/elementwise/elementwise.h"
#include "ops/normalization/global_response_norm_cuda.h"
#include "ops/normalization/parameters.h"
#include "ops/normalization/row_kernels.h"
#include "ops/reduce/reduce_cuda.h"

namespace lenslet {

namespace {

/// Inputs: x [N,C,...] or, with `channels_last`, [N,...,C], of rank 3 and more; scale and bias [C].
class ResponseNormOp final : public Op {
 public:
  bool channels_last = false;
  float epsilon = 1e-6F;

  explicit ResponseNormOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    channels_last = reader.flag("channels_last", false);
    epsilon = static_cast<float>(reader.real("epsilon", 1e-6));
    reader.finish();
  }

  std::string_view type() const override { return "GlobalResponseNorm"; }
  AttributeList attributes() const override {
    return {{"channels_last", std::int64_t{channels_last}}, {"epsilon", static_cast<double>(epsilon)}};
  }
  int channel_axis(int rank) const { return channels_last ? rank - 1 : 1; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_rank("input X", x.shape, 3, Shape::max_rank);
    require_parameter_dtypes(inputs);
    const Shape channels{x.shape[channel_axis(x.shape.rank())]};
    require_shape("input scale", required_input(inputs, 1, "scale").shape, channels);
    require_shape("input bias", required_input(inputs, 2, "bias").shape, channels);
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 4.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    return axes_kept(inputs.size(), {0});
  }
};

ResponseImages images_of(const Binding& binding) {
  const Shape& x = binding.shape(0);
  ResponseImages of{.images = x[0], .channels = x[binding.op<ResponseNormOp>().channel_axis(x.rank())]};
  if (x.elems() > 0) of.pixels = x.elems() / (of.images * of.channels);
  const bool nhwc = binding.format(0).order == Format::Order::channels_last;
  of.channels_last = nhwc || binding.op<ResponseNormOp>().channels_last;
  of.x_pixel = nhwc ? element_strides(x, binding.format(0))[3] : of.channels;
  of.y_pixel = nhwc ? element_strides(x, binding.output_format())[3] : of.channels;
  return of;
}
/// From x to norms [images, channels].
reduce::Loops norm_loops(const ResponseImages& of) {
  return reduce::plane_loops(of.images, of.channels, of.pixels, of.channels_last, {of.x_pixel, of.channels});
}
std::size_t norm_bytes(const ResponseImages& of) {
  return static_cast<std::size_t>(of.images * of.channels) * sizeof(float);
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const ResponseImages of = images_of(binding);
  const float epsilon = binding.op<ResponseNormOp>().epsilon;
  const Shape x =
      of.channels_last ? Shape{of.images, of.pixels, of.channels} : Shape{of.images, of.channels, of.pixels};
  const Shape factors = x.with(of.channels_last ? 1 : 2, 1), biases = factors.with(0, 1);
  const BroadcastLoops::Operand operands[] = {{&x}, {&x}, {&factors}, {&biases}};
  const auto run_on = [=, map = BroadcastLoops(x, formats::nchw, operands)](const KernelRun& run) {
    using Squares = reduce::SumFold<float, reduce::Term::square>;
    if (of.empty()) return;
    auto* const all = reinterpret_cast<float*>(run.workspace.data());
    reduce::run<Squares>(norm_loops(of), reduce::Finish::root, run.in<float>(0), all, *run.pool);
    for (std::int64_t image = 0; image < of.images; ++image) {
      float* const factor = all + image * of.channels;  // still the norms
      double sum = 0;
      for (std::int64_t c = 0; c < of.channels; ++c) sum += static_cast<double>(factor[c]);
      const auto divisor = static_cast<float>(sum / static_cast<double>(of.channels) + static_cast<double>(epsilon));
      for (std::int64_t c = 0; c < of.channels; ++c) factor[c] = 1 + run.in<float>(1)[c] * (factor[c] / divisor);
    }
    transform(
        *run.pool, map, [](float value, float factor, float bias) { return value * factor + bias; }, run.out<float>(),
        run.in<float>(0), all, run.in<float>(2));
  };
  return bound(run_on, norm_bytes(of));
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    constexpr std::size_t alignment = 256;
    const ResponseImages of = images_of(binding);
    const DType dtype = binding.problem.inputs()[0].type.dtype;
    const std::size_t partials = (norm_bytes(of) + alignment - 1) / alignment * alignment;
    const std::size_t parameters = partials + cuda::reduce_workspace_bytes(norm_loops(of), dtype);
    const auto run_on = [=, epsilon = binding.op<ResponseNormOp>().epsilon](const KernelRun& run) {
      auto* const norms = reinterpret_cast<float*>(run.workspace.data());
      auto* buffer = reinterpret_cast<float*>(run.workspace.data() + parameters);
      const float* const scale = as_floats(run, 1, buffer);
      const float* const bias = as_floats(run, 2, buffer);
      cuda::norms(*run.cuda, dtype, norm_loops(of), run.inputs[0].data(), norms, run.workspace.data() + partials);
      cuda::apply_response(*run.cuda, of, epsilon, dtype, norms, scale, bias, run.inputs[0].data(),
                           run.outputs[0].data());
    };
    return bound(run_on, parameters + widened_bytes(binding.problem));
  }
  return nullptr;
}

std::span<const Format> formats_for(const Problem& problem) {
  return problem.as<ResponseNormOp>().channels_last ? std::span<const Format>(nchw_only) : nchw_or_nhwc;
}

// Roundings, of 2^-24 each, of the term with scale: 3 of the norm and the mean (of float16 8 more, of squares' short
// sums), 2 of quotient and product, 3 of the three terms' sum; and the terms' sum is at most sqrt(3) of their scale.
constexpr auto kernels = on_both({.types = dtypes<Types<float>>,
                                  .more_on_cuda = dtypes<HalfTypes>,
                                  .formats_for = formats_for,
                                  .tolerance = 1.7e-6,
                                  .in_place = input_bit(0),
                                  .skips_padding = true},
                                 bind_cpu, bind_cuda);

}  // namespace

OpParts global_response_norm() { return {make_from<ResponseNormOp>, kernels}; }

}  // namespace lenslet

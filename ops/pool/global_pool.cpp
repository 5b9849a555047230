// GlobalAveragePool and GlobalMaxPool: one value per image and channel.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/core/grain.h"
#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/reduce/reduce_cuda.h"
#include "ops/reduce/reduce_kernels.h"

namespace lenslet {

namespace {

/// x [N,C,...] of rank 3 or more to [N,C,1,...]; float32. Means are summed in double, so that large images stay exact.
class GlobalPoolOp final : public Op {
 public:
  explicit GlobalPoolOp(bool max) : max_(max) {}
  std::string_view type() const override { return max_ ? "GlobalMaxPool" : "GlobalAveragePool"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_dtype("input X", x.dtype, {DType::f32});
    if (x.shape.rank() < 3)
      throw Error(ErrorKind::unsupported,
                  fmt::format("input X has shape {} (supported: rank 3 and more)", x.shape.str()));
    TensorType y = x;
    for (int d = 2; d < x.shape.rank(); ++d) {
      if (x.shape[d] == 0) throw Error(ErrorKind::invalid_model, fmt::format("input X {} is empty", x.shape.str()));
      y.shape = y.shape.with(d, 1);
    }
    return {y};
  }

  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }

  double flops(std::span<const InputInfo> inputs, std::span<const TensorType>) const override {
    return static_cast<double>(inputs[0].type.shape.elems());
  }

  std::size_t workspace_bytes(const PlanContext& context) const override {
    const Shape& x = context.inputs[0].type.shape;
    if (context.device == DeviceKind::cuda) {
      if constexpr (cuda_built) return cuda::reduce_workspace_bytes(plane_loops(x, context.input_layouts[0]));
      return 0;
    }
    if (context.input_layouts[0] != formats::nhwc) return 0;
    return static_cast<std::size_t>(x[0] * x[1]) * sizeof(double);
  }

  void run_cpu(const RunContext& context) const override {
    const Tensor& x = context.inputs[0];
    const std::int64_t planes = x.shape()[0] * x.shape()[1];
    if (planes == 0) return;
    const std::int64_t area = x.elems() / planes;
    const float* x0 = x.values<float>().data();
    float* y0 = context.outputs[0].values<float>().data();
    if (x.format() == formats::nhwc && x.shape().rank() == 4)
      run_nhwc(context, x.shape()[0], x.shape()[1], area, x0, y0);
    else
      context.pool.parallel_for(planes, std::max<std::int64_t>(1, elementwise_grain / area),
                                [&](std::int64_t begin, std::int64_t end, int) {
                                  for (std::int64_t i = begin; i < end; ++i) y0[i] = plane(x0 + i * area, area);
                                });
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }

  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor& x = run.inputs[0];
      cuda::reduce(run.context, max_ ? ReduceKind::max : ReduceKind::mean, DType::f32,
                   plane_loops(x.shape(), x.format()), x.data(), run.outputs[0].data(), run.workspace.data());
    }
  }

 private:
  static reduce::Loops plane_loops(const Shape& x, Format layout) {
    std::int64_t area = 1;
    for (int d = 2; d < x.rank(); ++d) area *= x[d];
    return reduce::plane_loops(x[0], x[1], area, layout == formats::nhwc && x.rank() == 4);
  }

  // Four sums side by side: one would wait for its own last addition each time.
  float plane(const float* x, std::int64_t area) const {
    if (max_) return *std::max_element(x, x + area);
    double sums[4] = {};
    std::int64_t i = 0;
    for (; i + 4 <= area; i += 4)
      for (std::int64_t k = 0; k < 4; ++k) sums[k] += static_cast<double>(x[i + k]);
    for (; i < area; ++i) sums[0] += static_cast<double>(x[i]);
    return static_cast<float>((sums[0] + sums[1] + sums[2] + sums[3]) / static_cast<double>(area));
  }

  // Channels lie side by side: each thread takes a strip of them through all pixels.
  void run_nhwc(const RunContext& context, std::int64_t images, std::int64_t channels, std::int64_t area,
                const float* x, float* y) const {
    constexpr std::int64_t strip = 64;
    const std::int64_t strips = (channels + strip - 1) / strip;
    auto* sums = reinterpret_cast<double*>(context.workspace.data());
    context.pool.parallel_for(images * strips, std::max<std::int64_t>(1, elementwise_grain / (strip * area)),
                              [&](std::int64_t begin, std::int64_t end, int) {
                                for (std::int64_t i = begin; i < end; ++i) {
                                  const std::int64_t first = i % strips * strip,
                                                     count = std::min(strip, channels - first);
                                  const float* pixel = x + i / strips * area * channels + first;
                                  float* out = y + i / strips * channels + first;
                                  double* sum = sums + i / strips * channels + first;
                                  std::fill(sum, sum + count, 0.0);
                                  if (max_) std::fill(out, out + count, -std::numeric_limits<float>::infinity());
                                  for (std::int64_t p = 0; p < area; ++p, pixel += channels) {
                                    if (max_)
                                      for (std::int64_t c = 0; c < count; ++c)
                                        out[c] = out[c] < pixel[c] ? pixel[c] : out[c];
                                    else
                                      for (std::int64_t c = 0; c < count; ++c) sum[c] += static_cast<double>(pixel[c]);
                                  }
                                  if (!max_)
                                    for (std::int64_t c = 0; c < count; ++c)
                                      out[c] = static_cast<float>(sum[c] / static_cast<double>(area));
                                }
                              });
  }

  bool max_;
};

}  // namespace

std::shared_ptr<const Op> make_global_average_pool(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<GlobalPoolOp>(false);
}

std::shared_ptr<const Op> make_global_max_pool(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<GlobalPoolOp>(true);
}

}  // namespace lenslet

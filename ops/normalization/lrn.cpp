// LRN: local response normalization across channels (AlexNet, GoogLeNet).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cuda_built.h"
#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/normalization/lrn_cuda.h"

namespace lenslet {

namespace {

/// y = x / (bias + alpha / size * sum of squares over the channels c - floor((size-1)/2) .. c + ceil((size-1)/2))^beta.
/// x [N,C,...] of rank 3 to 5.
class LrnOp final : public Op {
 public:
  std::int64_t size = 1;
  float alpha = 1e-4f, beta = 0.75f, bias = 1;

  std::string_view type() const override { return "LRN"; }
  AttributeList attributes() const override {
    return {{"size", size},
            {"alpha", static_cast<double>(alpha)},
            {"beta", static_cast<double>(beta)},
            {"bias", static_cast<double>(bias)}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    require_rank("input X", x.shape, 3, 5);
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return static_cast<double>(2 * size + 4) * static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [](int axis) { return axis != 1; });
  }

  std::int64_t before() const { return (size - 1) / 2; }
  std::int64_t after() const { return size / 2; }
};

// sum^-0.75 by square roots, which all published networks use; other exponents by the C library.
float factor(const LrnOp& op, float squares) {
  const float sum = op.bias + op.alpha / static_cast<float>(op.size) * squares;
  if (op.beta == 0.75f && sum > 0) {
    const float root = std::sqrt(sum);
    return 1.0f / (root * std::sqrt(root));
  }
  return std::pow(sum, -op.beta);
}

void pixel(const LrnOp& op, const float* x, float* y, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) {
    float squares = 0;
    for (std::int64_t k = std::max<std::int64_t>(0, c - op.before()); k <= std::min(channels - 1, c + op.after()); ++k)
      squares += x[k] * x[k];
    y[c] = x[c] * factor(op, squares);
  }
}

// y holds the sums first, so that inner loops run along memory.
void line(const LrnOp& op, const float* x, float* y, std::int64_t c, std::int64_t channels, std::int64_t area) {
  std::fill(y, y + area, 0.0f);
  for (std::int64_t k = std::max<std::int64_t>(0, c - op.before()); k <= std::min(channels - 1, c + op.after()); ++k) {
    const float* other = x + (k - c) * area;
    for (std::int64_t i = 0; i < area; ++i) y[i] += other[i] * other[i];
  }
  for (std::int64_t i = 0; i < area; ++i) y[i] = x[i] * factor(op, y[i]);
}

void run_cpu(const LrnOp& op, const KernelRun& run) {
  const Tensor& x = run.inputs[0];
  const Shape& shape = x.shape();
  if (x.elems() == 0) return;
  const std::int64_t channels = shape[1], area = x.elems() / shape[0] / channels;
  const auto strides = element_strides(shape, x.format());
  // nhwc: a pixel's channels are contiguous. nchw: adjacent pixels of one channel are processed together.
  const bool nhwc = strides[1] == 1 && area > 1;
  const float* x0 = x.values<float>().data();
  float* y0 = run.outputs[0].values<float>().data();
  const std::int64_t rows = nhwc ? shape[0] * area : shape[0] * channels;
  const std::int64_t length = nhwc ? channels : area;
  run.pool->parallel_for(rows, std::max<std::int64_t>(1, (4 << 10) / length),
                         [&](std::int64_t begin, std::int64_t end, int) {
                           for (std::int64_t row = begin; row < end; ++row) {
                             const float* from = x0 + row * length;
                             float* to = y0 + row * length;
                             if (nhwc)
                               pixel(op, from, to, channels);
                             else
                               line(op, from, to, row % channels, channels, area);
                           }
                         });
}

void run_cuda(const LrnOp& op, const KernelRun& run) {
  if constexpr (cuda_built) {
    const Tensor& x = run.inputs[0];
    if (x.elems() == 0) return;
    const std::int64_t images = x.shape()[0], channels = x.shape()[1], area = x.elems() / images / channels;
    cuda::LrnProblem problem{images,  channels, area, op.before(), op.after(), op.alpha / static_cast<float>(op.size),
                             op.beta, op.bias};
    if (x.format() == formats::nhwc && x.shape().rank() == 4) {
      problem.outer = images * area;
      problem.inner = 1;
    }
    cuda::lrn(*run.cuda, problem, x.dtype(), x.data(), run.outputs[0].data());
  }
}

constexpr auto kernels = on_both(
    {.types = dtypes<Types<float>>, .more_on_cuda = dtypes<HalfTypes>, .formats = nchw_or_nhwc, .tolerance = 2e-6},
    bind_run<run_cpu>, bind_run<run_cuda>);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<LrnOp>();
  AttributeReader reader(spec);
  op->size = reader.required_integer("size");
  if (op->size < 1 || op->size > (1 << 20))
    throw Error(ErrorKind::invalid_model, fmt::format("attribute 'size' is {}", op->size));
  op->alpha = static_cast<float>(reader.real("alpha", 1e-4));
  op->beta = static_cast<float>(reader.real("beta", 0.75));
  op->bias = static_cast<float>(reader.real("bias", 1.0));
  reader.finish();
  return op;
}

}  // namespace

OpParts lrn() { return {make, kernels}; }

}  // namespace lenslet

// Softmax and LogSoftmax, numerically stable: the greatest value is subtracted before exponentiating.

#include <algorithm>
#include <cmath>

#include "ops/core/checks.h"
#include "ops/core/kernel.h"
#include "ops/normalization/softmax_kernels.h"

namespace lenslet {

namespace {

class SoftmaxOp final : public Op {
 public:
  bool log = false;
  std::int64_t axis = -1;
  /// As before opset 13: the dimensions from `axis` on are one. Else the sum runs along `axis` alone.
  bool flatten = false;

  std::string_view type() const override { return log ? "LogSoftmax" : "Softmax"; }
  AttributeList attributes() const override { return {{"axis", axis}, {"flatten", std::int64_t{flatten}}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    first_axis(x.shape);
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 4.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const int first = first_axis(y);
    return axes_kept_if(inputs.size(), y.rank(), [&](int i) { return i < first || (i > first && !flatten); });
  }

  int first_axis(const Shape& shape) const {
    // Flattening may put the cut behind the last dimension or, for a scalar, before nothing.
    if (flatten && axis == shape.rank()) return shape.rank();
    if (shape.rank() == 0 && (axis == 0 || axis == -1)) return 0;
    return resolve_axis(axis, shape.rank());
  }
};

/// x as [outer, length, inner]: the sum runs along the middle.
struct Extents {
  std::int64_t outer = 1, length = 1, inner = 1;

  Extents(const SoftmaxOp& op, const Shape& shape, const Format& format) {
    const int axis = op.first_axis(shape);
    for (int d = 0; d < axis; ++d) outer *= shape[d];
    for (int d = axis; d < shape.rank(); ++d) (op.flatten || d == axis ? length : inner) *= shape[d];
    if (format != formats::nhwc || op.flatten) return;
    outer *= inner;
    inner = 1;
  }
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const auto& op = binding.op<SoftmaxOp>();
  return bound([log = op.log, e = Extents(op, binding.shape(0), binding.format(0))](const KernelRun& run) {
    if (run.outputs[0].elems() == 0) return;
    const float* x = run.inputs[0].values<float>().data();
    float* y = run.outputs[0].values<float>().data();
    const std::int64_t grain = std::max<std::int64_t>(1, (8 << 10) / e.length);
    if (e.inner == 1)
      return run.pool->parallel_for(e.outer, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) softmax_row(x + i * e.length, y + i * e.length, e.length, log);
      });
    // Columns of a plane, cut into strips so that one strip's lines stay in the nearest cache.
    constexpr std::int64_t strip = softmax_strip;
    const std::int64_t strips = (e.inner + strip - 1) / strip;
    run.pool->parallel_for(
        e.outer * strips, std::max<std::int64_t>(1, grain / strip), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t first = i % strips * strip;
            const std::int64_t at = i / strips * e.length * e.inner + first;
            softmax_columns(x + at, y + at, e.length, e.inner, std::min(strip, e.inner - first), log);
          }
        });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([op = binding.problem.shared_op(),
                e = Extents(binding.op<SoftmaxOp>(), binding.shape(0), binding.format(0))](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::softmax(*run.cuda, run.in<float>(0), run.out<float>(), e.outer, e.length, e.inner,
                    static_cast<const SoftmaxOp&>(*op).log);
  });
}

// In nhwc the elements along C lie side by side; flattened, their order does not matter when one image is summed up.
std::span<const Format> formats_for(const Problem& problem) {
  const Shape& x = problem.shape(0);
  if (x.rank() == 4 && problem.as<SoftmaxOp>().first_axis(x) == 1) return nchw_or_nhwc;
  return nchw_only;
}

/// A peaked row holds one value near 1, good to a few of its last bits, and has an rms of 1 / sqrt(length). Logarithms
/// are no smaller than log(length).
double tolerance_for(const Problem& problem) {
  const auto& op = problem.as<SoftmaxOp>();
  const auto length = static_cast<double>(Extents(op, problem.shape(0), formats::nchw).length);
  return op.log ? 2e-6 : std::max(2e-6, 3e-7 * std::sqrt(length));
}

constexpr auto kernels = on_both({.types = dtypes<Types<float>>,
                                  .formats_for = formats_for,
                                  .tolerance_for = tolerance_for,
                                  .in_place = input_bit(0)},
                                 bind_cpu, bind_cuda);

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  auto op = std::make_shared<SoftmaxOp>();
  AttributeReader reader(spec);
  op->log = spec.name == "LogSoftmax";
  op->flatten = spec.normalised ? reader.flag("flatten", false) : spec.before(13);
  op->axis = reader.integer("axis", op->flatten ? 1 : -1);
  reader.finish();
  return op;
}

}  // namespace

OpParts softmax() { return {make, kernels}; }

}  // namespace lenslet

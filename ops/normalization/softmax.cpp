// Softmax and LogSoftmax, numerically stable: the greatest value is subtracted before exponentiating.

#include <algorithm>
#include <cmath>

#include "ops/core/makers.h"
#include "ops/core/type_check.h"
#include "ops/normalization/softmax_cuda.h"
#include "ops/normalization/softmax_kernels.h"

namespace lenslet {

namespace {

/// Before opset 13 the dimensions from `axis` on are one (flatten); from 13 on the sum runs along `axis` alone.
class SoftmaxOp final : public Op {
 public:
  SoftmaxOp(bool log, std::int64_t axis, bool flatten) : log_(log), axis_(axis), flatten_(flatten) {}
  std::string_view type() const override { return log_ ? "LogSoftmax" : "Softmax"; }
  AttributeList attributes() const override { return {{"axis", axis_}, {"flatten", std::int64_t{flatten_ ? 1 : 0}}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    require_dtype("input", x.dtype, {DType::f32});
    first_axis(x.shape);
    return {x};
  }

  // In nhwc the elements along C lie side by side; flattened, their order does not matter when one image is summed up.
  bool runs_in(Format layout, std::span<const InputInfo> inputs) const override {
    if (layout == formats::nchw) return true;
    const Shape& shape = inputs[0].type.shape;
    if (shape.rank() != 4) return false;
    return first_axis(shape) == 1;
  }
  bool may_overwrite(int input) const override { return input == 0; }

  /// A peaked row holds one value near 1, good to a few of its last bits, and has an rms of 1 / sqrt(length).
  /// Logarithms are no smaller than log(length).
  double tolerance(std::span<const InputInfo> inputs) const override {
    const double length = static_cast<double>(split(inputs[0].type.shape, formats::nchw).length);
    return log_ ? 2e-6 : std::max(2e-6, 3e-7 * std::sqrt(length));
  }

  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 4.0 * static_cast<double>(outputs[0].shape.elems());
  }

  void run_cpu(const RunContext& context) const override {
    const Tensor& x = context.inputs[0];
    const Extents extents = split(x);
    const std::int64_t outer = extents.outer, length = extents.length, inner = extents.inner;
    if (x.elems() == 0) return;
    const float* x0 = x.values<float>().data();
    float* y0 = context.outputs[0].values<float>().data();
    const std::int64_t grain = std::max<std::int64_t>(1, (8 << 10) / length);
    if (inner == 1) {
      context.pool.parallel_for(outer, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) softmax_row(x0 + i * length, y0 + i * length, length, log_);
      });
      return;
    }
    // Columns of a plane, cut into strips so that one strip's lines stay in the nearest cache.
    constexpr std::int64_t strip = softmax_strip;
    const std::int64_t strips = (inner + strip - 1) / strip;
    context.pool.parallel_for(
        outer * strips, std::max<std::int64_t>(1, grain / strip), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t first = i % strips * strip;
            const std::int64_t at = i / strips * length * inner + first;
            softmax_columns(x0 + at, y0 + at, length, inner, std::min(strip, inner - first), log_);
          }
        });
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }

  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor& x = run.inputs[0];
      const Extents e = split(x);
      cuda::softmax(run.context, static_cast<const float*>(x.data()), static_cast<float*>(run.outputs[0].data()),
                    e.outer, e.length, e.inner, log_);
    }
  }

 private:
  /// x as [outer, length, inner]: the sum runs along the middle.
  struct Extents {
    std::int64_t outer = 1, length = 1, inner = 1;
  };
  Extents split(const Tensor& x) const { return split(x.shape(), x.format()); }
  Extents split(const Shape& shape, Format layout) const {
    const int axis = first_axis(shape);
    Extents e;
    for (int d = 0; d < axis; ++d) e.outer *= shape[d];
    for (int d = axis; d < shape.rank(); ++d) (flatten_ || d == axis ? e.length : e.inner) *= shape[d];
    if (shape.rank() == 4 && layout == formats::nhwc && !flatten_) {
      e.outer *= e.inner;
      e.inner = 1;
    }
    return e;
  }

  int first_axis(const Shape& shape) const {
    // Flattening may put the cut behind the last dimension or, for a scalar, before nothing.
    if (flatten_ && axis_ == shape.rank()) return shape.rank();
    if (shape.rank() == 0 && (axis_ == 0 || axis_ == -1)) return 0;
    return resolve_axis(axis_, shape.rank());
  }

  bool log_;
  std::int64_t axis_;
  bool flatten_;
};

std::shared_ptr<const Op> make(bool log, const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const bool flatten = spec.opset < 13;
  const std::int64_t axis = reader.integer("axis", flatten ? 1 : -1);
  reader.finish();
  return std::make_shared<SoftmaxOp>(log, axis, flatten);
}

}  // namespace

std::shared_ptr<const Op> make_softmax(const NodeSpec& spec) { return make(false, spec); }
std::shared_ptr<const Op> make_log_softmax(const NodeSpec& spec) { return make(true, spec); }

}  // namespace lenslet

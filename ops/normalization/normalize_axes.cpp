// MeanVarianceNormalization and LpNormalization: normalise over some axes to mean 0 and deviation 1, or to a norm of 1.

#include "ops/normalization/normalize_axes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/elementwise/elementwise.h"
#include "ops/normalization/row_sums.h"
#include "ops/reduce/reduce_cuda.h"

namespace lenslet {

namespace {

class AxesNormOp final : public Op {
 public:
  AxesNorm norm = AxesNorm::mean_variance;
  AxisInts axes;

  std::string_view type() const override {
    return norm == AxesNorm::mean_variance ? "MeanVarianceNormalization" : "LpNormalization";
  }
  AttributeList attributes() const override {
    if (norm != AxesNorm::mean_variance) return {{"axis", axes[0]}, {"p", std::int64_t{norm == AxesNorm::l1 ? 1 : 2}}};
    return {{"axes", std::vector<std::int64_t>(axes.span().begin(), axes.span().end())}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    axis_mask(axes.span(), x.shape.rank());
    return {x};
  }
  double flops(std::span<const InputInfo>, std::span<const TensorType> outputs) const override {
    return 5.0 * static_cast<double>(outputs[0].shape.elems());
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [together = axis_mask(axes.span(), y.rank())](int i) {
      return !together[static_cast<std::size_t>(i)];
    });
  }
};

struct Normalization {
  AxesNorm norm;
  reduce::Loops statistics;  ///< from x to maps without gaps
  BroadcastLoops map;        ///< y, x, maps

  static Normalization of(const Binding& binding) {
    const auto& op = binding.op<AxesNormOp>();
    const Shape& x = binding.shape(0);
    const auto together = axis_mask(op.axes.span(), x.rank());
    Shape maps = x;
    for (int i = 0; i < x.rank(); ++i)
      if (together[static_cast<std::size_t>(i)]) maps = maps.with(i, 1);
    const auto from = element_strides(x, binding.format(0)), to = element_strides(maps, binding.format(0));
    const auto order = memory_order(x.rank(), binding.format(0));
    reduce::Loops statistics;
    for (int i = 0; i < x.rank(); ++i) {
      const auto axis = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      const std::int64_t dim = x[static_cast<int>(axis)];
      if (together[axis])
        statistics.reduced.add(dim, from[axis], 0);
      else
        statistics.kept.add(dim, from[axis], to[axis]);
    }
    const Format& format = binding.format(0);
    const BroadcastLoops::Operand operands[] = {{&x, format}, {&x, format}, {&maps, format}};
    return {op.norm, statistics, BroadcastLoops(x, format, operands)};
  }
  /// True if the elements normalised together are contiguous rows.
  bool of_rows() const {
    const StridedLoops &kept = statistics.kept, &reduced = statistics.reduced;
    return reduced.rank() == 1 && reduced[0].from == 1 &&
           (kept.rank() == 0 || (kept.rank() == 1 && kept[0].from == reduced[0].dim));
  }
  std::size_t maps_bytes() const { return static_cast<std::size_t>(statistics.kept.count()) * sizeof(AxesMap); }
};

void run_rows(const Normalization& of, const KernelRun& run) {
  const std::int64_t length = of.statistics.reduced[0].dim;
  run.pool->parallel_for(
      of.statistics.kept.count(), std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(1, length)),
      [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row) {
          const float* const from = run.in<float>(0) + row * length;
          AxesNormFold fold;
          if (of.norm == AxesNorm::l1) fold.sum = row_magnitudes(from, length);
          if (of.norm == AxesNorm::mean_variance) fold.sum = row_sum(from, length);
          if (of.norm != AxesNorm::l1) fold.squares = row_squares(from, length, 0);
          transform_run(length, fold.result(length, of.norm), run.out<float>() + row * length, Neighbours<float>{from});
        }
      });
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const Normalization of = Normalization::of(binding);
  if (of.of_rows()) return bound([of](const KernelRun& run) { run_rows(of, run); });
  const auto run_on = [of](const KernelRun& run) {
    auto* maps = reinterpret_cast<AxesMap*>(run.workspace.data());
    reduce::run<AxesNormFold>(of.statistics, of.norm, run.in<float>(0), maps, *run.pool);
    transform(*run.pool, of.map, ApplyAxesMap(), run.out<float>(), run.in<float>(0), maps);
  };
  return bound(run_on, of.maps_bytes());
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const Normalization of = Normalization::of(binding);
    constexpr std::size_t alignment = 256;
    const std::size_t partials = (of.maps_bytes() + alignment - 1) / alignment * alignment;
    const auto run_on = [of, partials](const KernelRun& run) {
      cuda::normalize_axes(*run.cuda, of.norm, of.statistics, of.map, run.inputs[0].dtype(), run.inputs[0].data(),
                           run.outputs[0].data(), run.workspace.data(), partials);
    };
    const DType dtype = binding.problem.inputs()[0].type.dtype;
    return bound(run_on, partials + cuda::reduce_workspace_bytes(of.statistics, dtype));
  }
  return nullptr;
}

constexpr auto kernels = on_both({.types = dtypes<Types<float>>,
                                  .more_on_cuda = dtypes<HalfTypes>,
                                  .formats = nchw_or_nhwc,
                                  .tolerance = 2e-6,
                                  .in_place = input_bit(0)},
                                 bind_cpu, bind_cuda);

std::shared_ptr<const Op> make_mean_variance(const NodeSpec& spec) {
  auto op = std::make_shared<AxesNormOp>();
  AttributeReader reader(spec);
  const std::vector<std::int64_t> all_but_channels{0, 2, 3};
  op->axes = AxisInts(reader.has("axes") ? reader.integers("axes") : all_but_channels, "axes");
  reader.finish();
  return op;
}

std::shared_ptr<const Op> make_lp(const NodeSpec& spec) {
  auto op = std::make_shared<AxesNormOp>();
  AttributeReader reader(spec);
  const std::int64_t axis = reader.integer("axis", -1), p = reader.integer("p", 2);
  if (p != 1 && p != 2) throw Error(ErrorKind::invalid_model, fmt::format("attribute 'p' = {} (ONNX has 1 and 2)", p));
  op->norm = p == 1 ? AxesNorm::l1 : AxesNorm::l2;
  op->axes = AxisInts(std::span(&axis, 1), "axis");
  reader.finish();
  return op;
}

}  // namespace

OpParts mean_variance_normalization() { return {make_mean_variance, kernels}; }
OpParts lp_normalization() { return {make_lp, kernels}; }

}  // namespace lenslet

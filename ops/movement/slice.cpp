// Slice: start, end and step along some axes. Attributes in opset 1, inputs from 10 on (then with steps).

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/strided_copy.h"
#include "ops/core/type_check.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet {

namespace {

/// Elements start, start + step ... (count of them) of one axis.
struct AxisRange {
  std::int64_t start = 0, step = 1, count = 0;
};

struct Arguments {
  AxisInts starts, ends;
  std::optional<AxisInts> axes, steps;
};

// Clamping as ONNX defines it: starts and ends count from the end when negative; forwards they are cut to [0, dim],
// backwards to [0, dim-1] and [-1, dim-1].
AxisRange resolve(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  if (step == 0) throw Error(ErrorKind::invalid_model, "a step of 0");
  if (start < 0) start += dim;
  if (end < 0) end += dim;
  AxisRange range;
  if (step > 0) {
    range.start = std::clamp<std::int64_t>(start, 0, dim);
    end = std::clamp<std::int64_t>(end, 0, dim);
    // Any step beyond the axis takes one element; cut so that nothing below overflows.
    range.step = std::min(step, std::max<std::int64_t>(dim, 1));
    if (end > range.start) range.count = (end - range.start - 1) / range.step + 1;
  } else if (dim > 0) {
    range.start = std::clamp<std::int64_t>(start, 0, dim - 1);
    end = std::clamp<std::int64_t>(end, -1, dim - 1);
    range.step = std::max(step, -dim);
    if (range.start > end) range.count = (range.start - end - 1) / -range.step + 1;
  }
  return range;
}

std::array<AxisRange, Shape::max_rank> resolve(const Shape& shape, const Arguments& arguments) {
  std::array<AxisRange, Shape::max_rank> ranges;
  for (int i = 0; i < shape.rank(); ++i) ranges[static_cast<std::size_t>(i)] = {0, 1, shape[i]};
  const int count = arguments.starts.size;
  if (arguments.ends.size != count || (arguments.axes && arguments.axes->size != count) ||
      (arguments.steps && arguments.steps->size != count) || (!arguments.axes && count > shape.rank()))
    throw Error(ErrorKind::invalid_model,
                fmt::format("starts, ends, axes and steps of different lengths for a tensor of shape {}", shape.str()));
  if (arguments.axes) axis_mask(arguments.axes->span(), shape.rank());  // refuses an axis named twice
  for (int i = 0; i < count; ++i) {
    const int axis = arguments.axes ? resolve_axis((*arguments.axes)[i], shape.rank()) : i;
    ranges[static_cast<std::size_t>(axis)] =
        resolve(shape[axis], arguments.starts[i], arguments.ends[i], arguments.steps ? (*arguments.steps)[i] : 1);
  }
  return ranges;
}

class Slice final : public Op {
 public:
  explicit Slice(std::optional<Arguments> arguments) : arguments_(std::move(arguments)) {}

  std::string_view type() const override { return "Slice"; }
  AttributeList attributes() const override {
    if (!arguments_) return {};
    const auto list = [](const AxisInts& ints) {
      return std::vector<std::int64_t>(ints.span().begin(), ints.span().end());
    };
    AttributeList attributes{{"starts", list(arguments_->starts)}, {"ends", list(arguments_->ends)}};
    if (arguments_->axes) attributes.emplace_back("axes", list(*arguments_->axes));
    return attributes;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType type = required_input(inputs, 0, "data");
    Arguments arguments;
    if (arguments_) {
      arguments = *arguments_;
    } else {
      arguments.starts = required_axis_ints(inputs, 1, "starts");
      arguments.ends = required_axis_ints(inputs, 2, "ends");
      arguments.axes = constant_axis_ints(inputs, 3, "axes");
      arguments.steps = constant_axis_ints(inputs, 4, "steps");
    }
    const auto ranges = resolve(type.shape, arguments);
    for (int i = 0; i < type.shape.rank(); ++i)
      type.shape = type.shape.with(i, ranges[static_cast<std::size_t>(i)].count);
    return {type};
  }
  bool runs_in(Format, std::span<const InputInfo>) const override { return true; }
  double tolerance(std::span<const InputInfo>) const override { return 0; }

  void run_cpu(const RunContext& context) const override {
    const Tensor& from = context.inputs[0];
    Tensor& to = context.outputs[0];
    if (to.elems() == 0) return;
    const Source source = source_of(context.inputs, from, to);
    strided_copy(dtype_bytes(to.dtype()), source.loops, element_at(from, source.start), to.data(), context.pool);
  }

  std::optional<std::string> refuse_cuda(std::span<const InputInfo>) const override { return std::nullopt; }
  bool reads_on_cuda(int input, const PlanContext&) const override { return input == 0; }
  void run_cuda(const CudaRun& run) const override {
    if constexpr (cuda_built) {
      const Tensor& from = run.inputs[0];
      Tensor& to = run.outputs[0];
      if (to.elems() == 0) return;
      const Source source = source_of(run.host_inputs, from, to);
      cuda::strided_copy(run.context, dtype_bytes(to.dtype()), source.loops, element_at(from, source.start), to.data());
    }
  }

 private:
  struct Source {
    StridedLoops loops;      ///< over the output
    std::int64_t start = 0;  ///< element of the input that is the output's first
  };

  /// The arguments that are inputs are read from host_inputs.
  Source source_of(std::span<const Tensor> host_inputs, const Tensor& from, const Tensor& to) const {
    const auto ranges = resolve(from.shape(), arguments_ ? *arguments_ : read(host_inputs));
    const auto from_strides = element_strides(from.shape(), from.format());
    const auto to_strides = element_strides(to.shape(), to.format());
    const auto order = memory_order(to.shape().rank(), to.format());
    Source source;
    for (int i = 0; i < to.shape().rank(); ++i) {
      const auto axis = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      source.start += ranges[axis].start * from_strides[axis];
      source.loops.add(ranges[axis].count, ranges[axis].step * from_strides[axis], to_strides[axis]);
    }
    return source;
  }

  static Arguments read(std::span<const Tensor> inputs) {
    Arguments arguments{axis_ints(inputs[1], "starts"), axis_ints(inputs[2], "ends"), {}, {}};
    if (present(inputs, 3)) arguments.axes = axis_ints(inputs[3], "axes");
    if (present(inputs, 4)) arguments.steps = axis_ints(inputs[4], "steps");
    return arguments;
  }

  std::optional<Arguments> arguments_;  ///< of the attribute form
};

}  // namespace

std::shared_ptr<const Op> make_slice(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  std::optional<Arguments> arguments;
  if (spec.opset < 10) {
    if (spec.inputs > 1)
      throw Error(ErrorKind::invalid_model, "starts and ends are attributes before opset 10, not inputs");
    if (!reader.has("starts") || !reader.has("ends"))
      throw Error(ErrorKind::invalid_model, "attribute 'starts' or 'ends' is missing");
    arguments.emplace();
    arguments->starts = AxisInts(reader.integers("starts"), "starts");
    arguments->ends = AxisInts(reader.integers("ends"), "ends");
    if (reader.has("axes")) arguments->axes = AxisInts(reader.integers("axes"), "axes");
  } else if (spec.inputs < 3) {
    throw Error(ErrorKind::invalid_model, "input starts or ends is missing");
  }
  reader.finish();
  return std::make_shared<Slice>(std::move(arguments));
}

}  // namespace lenslet

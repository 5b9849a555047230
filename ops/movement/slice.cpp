// Slice: start, end and step along some axes. Attributes in opset 1, inputs from 10 on (then with steps).

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

/// Elements start, start + step ... of one axis, `count` of them.
struct AxisRange {
  std::int64_t start = 0, step = 1, count = 0;
};

struct Arguments {
  AxisInts starts, ends;
  std::optional<AxisInts> axes, steps;
};
using Ranges = std::array<AxisRange, Shape::max_rank>;

// Clamping as in ONNX: negative starts and ends count from the end; forwards they are clamped to [0, dim], backwards to
// [0, dim-1] and [-1, dim-1].
AxisRange resolve(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  if (step == 0) throw Error(ErrorKind::invalid_model, "a step of 0");
  if (start < 0) start += dim;
  if (end < 0) end += dim;
  AxisRange range;
  if (step > 0) {
    range.start = std::clamp<std::int64_t>(start, 0, dim);
    end = std::clamp<std::int64_t>(end, 0, dim);
    // Any step beyond the axis takes one element; clamped to avoid overflow below.
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

Ranges resolve(const Shape& shape, const Arguments& arguments) {
  Ranges ranges;
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
  explicit Slice(const NodeSpec& spec) {
    AttributeReader reader(spec);
    if (spec.normalised ? reader.has("starts") : spec.before(10)) {
      if (spec.inputs > 1)
        throw Error(ErrorKind::invalid_model, "starts and ends are attributes before opset 10, not inputs");
      if (!reader.has("starts") || !reader.has("ends"))
        throw Error(ErrorKind::invalid_model, "attribute 'starts' or 'ends' is missing");
      const auto list = [&](std::string_view name) { return AxisInts(reader.integers(name), name); };
      arguments_ = {list("starts"), list("ends"), {}, {}};
      if (reader.has("axes")) arguments_->axes = list("axes");
      if (spec.normalised && reader.has("steps")) arguments_->steps = list("steps");
    } else if (spec.inputs < 3) {
      throw Error(ErrorKind::invalid_model, "input starts or ends is missing");
    }
    reader.finish();
  }

  std::string_view type() const override { return "Slice"; }
  AttributeList attributes() const override {
    if (!arguments_) return {};
    AttributeList attributes;
    const auto add = [&](const char* name, const AxisInts& ints) {
      attributes.emplace_back(name, std::vector<std::int64_t>(ints.span().begin(), ints.span().end()));
    };
    add("starts", arguments_->starts);
    add("ends", arguments_->ends);
    if (arguments_->axes) add("axes", *arguments_->axes);
    if (arguments_->steps) add("steps", *arguments_->steps);
    return attributes;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType type = required_input(inputs, 0, "data");
    const Ranges taken = ranges(inputs);
    for (int i = 0; i < type.shape.rank(); ++i)
      type.shape = type.shape.with(i, taken[static_cast<std::size_t>(i)].count);
    return {type};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const Shape& x = inputs[0].type.shape;
    return axes_kept_if(inputs.size(), y.rank(), [&, taken = ranges(inputs)](int axis) {
      const AxisRange& range = taken[static_cast<std::size_t>(axis)];
      return range.start == 0 && range.step == 1 && range.count == x[axis];
    });
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    const Shape& x = inputs[0].type.shape;
    const Ranges taken = ranges(inputs);
    for (int i = 0; i < x.rank(); ++i)
      if (const auto& [start, step, count] = taken[static_cast<std::size_t>(i)]; count != x[i] || step < 0)
        return false;
    return true;
  }

  /// Indexed by the data's axis.
  Ranges ranges(std::span<const InputInfo> inputs) const {
    return resolve(inputs[0].type.shape,
                   arguments_
                       ? *arguments_
                       : Arguments{required_axis_ints(inputs, 1, "starts"), required_axis_ints(inputs, 2, "ends"),
                                   constant_axis_ints(inputs, 3, "axes"), constant_axis_ints(inputs, 4, "steps")});
  }

 private:
  std::optional<Arguments> arguments_;  ///< of the attribute form
};

std::vector<Move> moves(const Binding& binding) {
  const Shape& y = binding.output_shape();
  if (y.elems() == 0) return {};
  const Ranges ranges = binding.op<Slice>().ranges(binding.problem.inputs());
  AxisSteps from = element_strides(binding.shape(0), binding.format(0));
  std::int64_t start = 0;
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    start += ranges[axis].start * from[axis];
    from[axis] *= ranges[axis].step;
  }
  const Format& format = binding.output_format();
  return {{.loops{y, format, from, element_strides(y, format)}, .from = start}};
}

constexpr auto kernels =
    on_either({.formats = nchw_or_nhwc, .skips_padding = true, .reads = input_bit(0), .bind = bind_moves<moves>});

}  // namespace

OpParts slice() { return {make_from<Slice>, kernels}; }

}  // namespace lenslet

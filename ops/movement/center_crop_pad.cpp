// CenterCropPad: crops axes or pads them with zeros to given sizes, symmetrically.

#include <fmt/format.h>

#include <numeric>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/movement/padding.h"

namespace lenslet {

namespace {

class CenterCropPad final : public Op {
 public:
  explicit CenterCropPad(const NodeSpec& spec) {
    AttributeReader reader(spec);
    if (reader.has("axes")) axes_ = AxisInts(reader.integers("axes"), "axes");
    reader.finish();
  }

  std::string_view type() const override { return "CenterCropPad"; }
  AttributeList attributes() const override {
    if (!axes_) return {};
    return {{"axes", std::vector<std::int64_t>(axes_->span().begin(), axes_->span().end())}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input_data");
    const Shape y = output(inputs);
    y.elems();  // throws for impossible sizes
    return {{data.dtype, y}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [&](int axis) { return y[axis] == inputs[0].type.shape[axis]; });
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    return output(inputs) == inputs[0].type.shape;
  }

 private:
  Shape output(std::span<const InputInfo> inputs) const {
    Shape y = inputs[0].type.shape;
    const AxisInts sizes = required_axis_ints(inputs, 1, "shape");
    AxisInts axes = axes_.value_or(AxisInts());
    if (!axes_) {
      axes.size = y.rank();
      std::iota(axes.values.begin(), axes.values.end(), 0);
    }
    if (sizes.size != axes.size)
      throw Error(ErrorKind::invalid_model, fmt::format("shape has {} sizes for {} axes", sizes.size, axes.size));
    (void)axis_mask(axes.span(), y.rank());  // throws outside or for repeated axes
    for (int i = 0; i < axes.size; ++i) {
      if (sizes[i] < 0) throw Error(ErrorKind::invalid_model, fmt::format("shape has the size {}", sizes[i]));
      y = y.with(resolve_axis(axes[i], y.rank()), sizes[i]);
    }
    return y;
  }

  std::optional<AxisInts> axes_;  ///< none: all
};

std::unique_ptr<const BoundKernel> bind_padding(const Binding& binding) {
  const Shape &x = binding.shape(0), &y = binding.output_shape();
  const auto rank = static_cast<std::size_t>(x.rank());
  std::vector<std::int64_t> pads(2 * rank);
  for (int axis = 0; axis < x.rank(); ++axis) {
    // An odd element is padded or cropped at the end.
    const std::int64_t more = y[axis] - x[axis], before = more / 2;
    pads[static_cast<std::size_t>(axis)] = before;
    pads[static_cast<std::size_t>(axis) + rank] = more - before;
  }
  return std::make_unique<BoundPadding>(binding, PadMode::constant, pads, 0);
}

constexpr auto kernels = on_both({.formats = nchw_or_nhwc, .reads = input_bit(0)}, bind_padding, bind_padding);

}  // namespace

OpParts center_crop_pad() { return {make_from<CenterCropPad>, kernels}; }

}  // namespace lenslet

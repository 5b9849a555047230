// Squeeze and Unsqueeze: dimensions of 1 dropped or added. The axes are an attribute before opset 13, then an input.

#include <fmt/format.h>

#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/type_check.h"
#include "ops/core/view_op.h"

namespace lenslet {

namespace {

using Axes = std::optional<AxisInts>;

AttributeList axes_attribute(const Axes& axes) {
  if (!axes) return {};
  return {{"axes", std::vector<std::int64_t>(axes->span().begin(), axes->span().end())}};
}

Axes parse_axes(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  Axes axes;
  if (spec.opset < 13 && reader.has("axes")) axes = AxisInts(reader.integers("axes"), "axes");
  reader.finish();
  if (spec.opset < 13 && spec.inputs > 1)
    throw Error(ErrorKind::invalid_model, "axes are an attribute before opset 13, not an input");
  return axes;
}

class Squeeze final : public ViewOp {
 public:
  explicit Squeeze(Axes axes) : axes_(axes) {}

  std::string_view type() const override { return "Squeeze"; }
  AttributeList attributes() const override { return axes_attribute(axes_); }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const Axes axes = axes_ ? axes_ : constant_axis_ints(inputs, 1, "axes");
    const auto named = axes ? axis_mask(axes->span(), data.shape.rank()) : std::array<bool, Shape::max_rank>{};
    AxisInts dims;
    for (int i = 0; i < data.shape.rank(); ++i) {
      const bool drop = axes ? named[static_cast<std::size_t>(i)] : data.shape[i] == 1;
      if (!drop)
        dims.values[static_cast<std::size_t>(dims.size++)] = data.shape[i];
      else if (data.shape[i] != 1)
        throw Error(ErrorKind::invalid_model, fmt::format("cannot squeeze axis {} of {}", i, data.shape.str()));
    }
    return {{data.dtype, Shape(dims.span())}};
  }

 private:
  Axes axes_;
};

class Unsqueeze final : public ViewOp {
 public:
  explicit Unsqueeze(Axes axes) : axes_(axes) {}

  std::string_view type() const override { return "Unsqueeze"; }
  AttributeList attributes() const override { return axes_attribute(axes_); }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const AxisInts axes = axes_ ? *axes_ : required_axis_ints(inputs, 1, "axes");
    const int rank = data.shape.rank() + axes.size;
    if (rank > Shape::max_rank)
      throw Error(ErrorKind::limit, fmt::format("a result of rank {}; at most {} is supported", rank, Shape::max_rank));
    const auto added = axis_mask(axes.span(), rank);
    AxisInts dims;
    for (int i = 0, from = 0; i < rank; ++i)
      dims.values[static_cast<std::size_t>(dims.size++)] = added[static_cast<std::size_t>(i)] ? 1 : data.shape[from++];
    return {{data.dtype, Shape(dims.span())}};
  }

 private:
  Axes axes_;
};

}  // namespace

std::shared_ptr<const Op> make_squeeze(const NodeSpec& spec) { return std::make_shared<Squeeze>(parse_axes(spec)); }

std::shared_ptr<const Op> make_unsqueeze(const NodeSpec& spec) {
  const Axes axes = parse_axes(spec);
  if (spec.opset < 13 && !axes) throw Error(ErrorKind::invalid_model, "attribute 'axes' is missing");
  return std::make_shared<Unsqueeze>(axes);
}

}  // namespace lenslet

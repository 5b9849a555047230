// Squeeze and Unsqueeze: dimensions of 1 dropped or added. The axes are an attribute before opset 13, then an input.

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/shape/view_op.h"

namespace lenslet {

namespace {

using Mask = std::array<bool, Shape::max_rank>;

/// The common base of both.
class AxesOp : public ViewOp {
 public:
  explicit AxesOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    if ((spec.normalised || spec.before(13)) && reader.has("axes")) axes_.emplace(reader.integers("axes"), "axes");
    reader.finish();
    if (spec.before(13) && spec.inputs > 1)
      throw Error(ErrorKind::invalid_model, "axes are an attribute before opset 13, not an input");
  }
  explicit AxesOp(std::span<const std::int64_t> axes) : axes_(std::in_place, axes, "axes") {}

  AttributeList attributes() const override {
    if (!axes_) return {};
    return {{"axes", std::vector<std::int64_t>(axes_->span().begin(), axes_->span().end())}};
  }

 protected:
  std::optional<AxisInts> axes_;
};

class Squeeze final : public AxesOp {
 public:
  using AxesOp::AxesOp;

  std::string_view type() const override { return "Squeeze"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const Mask drops = dropped(inputs);
    AxisInts dims;
    for (int i = 0; i < data.shape.rank(); ++i)
      if (!drops[static_cast<std::size_t>(i)])
        dims.values[static_cast<std::size_t>(dims.size++)] = data.shape[i];
      else if (data.shape[i] != 1)
        throw Error(ErrorKind::invalid_model, fmt::format("cannot squeeze axis {} of {}", i, data.shape.str()));
    return {{data.dtype, Shape(dims.span())}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    AxisMap map = axes_kept(inputs.size(), {});
    const Mask drops = dropped(inputs);
    std::size_t to = 0;
    for (int i = 0; i < inputs[0].type.shape.rank(); ++i)
      if (!drops[static_cast<std::size_t>(i)]) map.inputs[0].axis[to++] = static_cast<std::int8_t>(i);
    return map;
  }
  /// Only if axes are named and the remaining ones keep their order.
  std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const override {
    const auto known = axes(inputs);
    if (!known || known->size == 0) return std::nullopt;
    const Mask drops = dropped(inputs);
    std::vector<std::int64_t> moved, left;
    for (std::size_t i = 0; i < to.size(); ++i) (drops[i] ? moved : left).push_back(to[i]);
    if (!std::is_sorted(left.begin(), left.end())) return std::nullopt;
    std::sort(moved.begin(), moved.end());
    return PermutedOp{.op = std::make_shared<Squeeze>(moved), .inputs = {{.number = 0}}, .same_result = true};
  }

 private:
  std::optional<AxisInts> axes(std::span<const InputInfo> inputs) const {
    return axes_ ? axes_ : constant_axis_ints(inputs, 1, "axes");
  }
  Mask dropped(std::span<const InputInfo> inputs) const {
    const Shape& shape = inputs[0].type.shape;
    if (const auto named = axes(inputs)) return axis_mask(named->span(), shape.rank());
    Mask ones{};
    for (int i = 0; i < shape.rank(); ++i) ones[static_cast<std::size_t>(i)] = shape[i] == 1;
    return ones;
  }
};

class Unsqueeze final : public AxesOp {
 public:
  explicit Unsqueeze(const NodeSpec& spec) : AxesOp(spec) {
    if (spec.before(13) && !axes_) throw Error(ErrorKind::invalid_model, "attribute 'axes' is missing");
  }

  std::string_view type() const override { return "Unsqueeze"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType type = required_input(inputs, 0, "data");
    const AxisInts axes = axes_ ? *axes_ : required_axis_ints(inputs, 1, "axes");
    const int rank = type.shape.rank() + axes.size;
    if (rank > Shape::max_rank)
      throw Error(ErrorKind::limit, fmt::format("a result of rank {}; at most {} is supported", rank, Shape::max_rank));
    const Mask added = axis_mask(axes.span(), rank);
    AxisInts dims;
    for (int i = 0, from = 0; i < rank; ++i)
      dims.values[static_cast<std::size_t>(dims.size++)] = added[static_cast<std::size_t>(i)] ? 1 : type.shape[from++];
    return {{type.dtype, Shape(dims.span())}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    AxisMap map = axes_kept(inputs.size(), {});
    const AxisInts axes = axes_ ? *axes_ : required_axis_ints(inputs, 1, "axes");
    const Mask added = axis_mask(axes.span(), y.rank());
    std::int8_t from = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(y.rank()); ++i)
      if (!added[i]) map.inputs[0].axis[i] = from++;
    return map;
  }
};

}  // namespace

OpParts squeeze() { return {make_from<Squeeze>, view_kernels}; }
OpParts unsqueeze() { return {make_from<Unsqueeze>, view_kernels}; }

}  // namespace lenslet

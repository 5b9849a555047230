#pragma once
// Shared by Softmax, LogSoftmax and Hardmax: the axis or axes.

#include <cstdint>
#include <memory>

#include "ops/core/checks.h"
#include "ops/core/kernel.h"

namespace lenslet {

class SoftmaxOp final : public Op {
 public:
  std::string_view name;  ///< the row's
  std::int64_t axis = -1;
  /// Before opset 13: the dimensions from `axis` on count as one. Otherwise only `axis` is summed.
  bool flatten = false;

  std::string_view type() const override { return name; }
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
    // Flattening may split behind the last dimension or, for a scalar, before nothing.
    if (flatten && axis == shape.rank()) return shape.rank();
    if (shape.rank() == 0 && (axis == 0 || axis == -1)) return 0;
    return resolve_axis(axis, shape.rank());
  }
};

/// x as [outer, length, inner], summed along the middle.
struct SoftmaxExtents {
  std::int64_t outer = 1, length = 1, inner = 1;

  SoftmaxExtents(const SoftmaxOp& op, const Shape& shape, const Format& format) {
    const int axis = op.first_axis(shape);
    for (int d = 0; d < axis; ++d) outer *= shape[d];
    for (int d = axis; d < shape.rank(); ++d) (op.flatten || d == axis ? length : inner) *= shape[d];
    if (format != formats::nhwc || op.flatten) return;
    outer *= inner;
    inner = 1;
  }
};

inline std::shared_ptr<const Op> make_softmax(const NodeSpec& spec) {
  auto op = std::make_shared<SoftmaxOp>();
  AttributeReader reader(spec);
  op->name = spec.name;
  op->flatten = spec.normalised ? reader.flag("flatten", false) : spec.before(13);
  op->axis = reader.integer("axis", op->flatten ? 1 : -1);
  reader.finish();
  return op;
}

}  // namespace lenslet

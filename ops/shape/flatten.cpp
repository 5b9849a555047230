// Flatten: merges the dimensions before `axis`, and those from it on.

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/shape/view_op.h"

namespace lenslet {

namespace {

class Flatten final : public ViewOp {
 public:
  explicit Flatten(const NodeSpec& spec) {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", 1);
    reader.finish();
  }

  std::string_view type() const override { return "Flatten"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input");
    const int rank = data.shape.rank();
    // axis == rank is allowed: all dimensions are outer.
    const int axis = axis_ == rank ? rank : resolve_axis(axis_, rank);
    std::int64_t outer = 1, inner = 1;
    for (int i = 0; i < rank; ++i) {
      std::int64_t& side = i < axis ? outer : inner;
      side = multiply_dims(side, data.shape[i]);
    }
    return {{data.dtype, Shape{outer, inner}}};
  }
  /// Images stay outermost unless all dimensions are inner.
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    AxisMap map = axes_kept(1, {});
    map.keeps_order = axis_ != 0 && axis_ != -inputs[0].type.shape.rank();
    return map;
  }

 private:
  std::int64_t axis_ = 0;
};

}  // namespace

OpParts flatten() { return {make_from<Flatten>, view_kernels}; }

}  // namespace lenslet

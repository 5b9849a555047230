// Flatten: the dimensions before `axis` and those from it on become one each.

#include "ops/core/makers.h"
#include "ops/core/shape_args.h"
#include "ops/core/type_check.h"
#include "ops/core/view_op.h"

namespace lenslet {

namespace {

class Flatten final : public ViewOp {
 public:
  explicit Flatten(std::int64_t axis) : axis_(axis) {}

  std::string_view type() const override { return "Flatten"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input");
    const int rank = data.shape.rank();
    // axis == rank is allowed here: everything is outer.
    const int axis = axis_ == rank ? rank : resolve_axis(axis_, rank);
    std::int64_t outer = 1, inner = 1;
    for (int i = 0; i < rank; ++i) {
      std::int64_t& side = i < axis ? outer : inner;
      side = multiply_dims(side, data.shape[i]);
    }
    return {{data.dtype, Shape{outer, inner}}};
  }

 private:
  std::int64_t axis_;
};

}  // namespace

std::shared_ptr<const Op> make_flatten(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const std::int64_t axis = reader.integer("axis", 1);
  reader.finish();
  return std::make_shared<Flatten>(axis);
}

}  // namespace lenslet

// Reshape (opset 5: the shape is an input; 14: allowzero).

#include <fmt/format.h>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/shape/view_op.h"

namespace lenslet {

namespace {

class Reshape final : public ViewOp {
 public:
  explicit Reshape(const NodeSpec& spec) {
    AttributeReader reader(spec);
    allow_zero_ = !spec.before(14) && reader.flag("allowzero", false);
    reader.finish();
  }

  std::string_view type() const override { return "Reshape"; }
  AttributeList attributes() const override { return {{"allowzero", std::int64_t{allow_zero_}}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const AxisInts wanted = required_axis_ints(inputs, 1, "shape");
    AxisInts dims = wanted;
    int free_axis = -1;
    for (int i = 0; i < dims.size; ++i) {
      std::int64_t& dim = dims.values[static_cast<std::size_t>(i)];
      if (dim == -1) {
        if (free_axis >= 0) throw Error(ErrorKind::invalid_model, "shape has more than one -1");
        free_axis = i;
        dim = 1;
      } else if (dim == 0 && !allow_zero_) {
        if (i >= data.shape.rank())
          throw Error(ErrorKind::invalid_model,
                      fmt::format("shape keeps dimension {} of a tensor of shape {}", i, data.shape.str()));
        dim = data.shape[i];
      } else if (dim < -1) {
        throw Error(ErrorKind::invalid_model, fmt::format("shape has the dimension {}", dim));
      }
    }
    Shape shape(dims.span());
    const std::int64_t elems = data.shape.elems(), known = shape.elems();
    if (free_axis >= 0 && known > 0 && elems % known == 0) shape = shape.with(free_axis, elems / known);
    if (shape.elems() != elems || (free_axis >= 0 && known == 0))
      throw Error(ErrorKind::invalid_model,
                  fmt::format("cannot reshape {} to [{}]", data.shape.str(), fmt::join(wanted.span(), ",")));
    return {{data.dtype, shape}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape&) const override {
    AxisMap map = axes_kept(inputs.size(), {});
    map.keeps_order = true;
    return map;
  }

 private:
  bool allow_zero_ = false;
};

}  // namespace

OpParts reshape() { return {make_from<Reshape>, view_kernels}; }

}  // namespace lenslet

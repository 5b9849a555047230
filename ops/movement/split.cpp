// Split: divides a tensor along one axis. Sizes are an attribute before opset 13, then an input; opset 18 adds
// num_outputs, with a last part that may be smaller.

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class Split final : public Op {
 public:
  explicit Split(const NodeSpec& spec) : parts_(static_cast<std::int64_t>(spec.outputs)) {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", 0);
    if ((spec.normalised || spec.before(13)) && reader.has("split")) sizes_ = reader.integers("split");
    if (spec.before(13) && spec.inputs > 1)
      throw Error(ErrorKind::invalid_model, "split is an attribute before opset 13, not an input");
    const bool counted = !spec.before(18) && reader.has("num_outputs");
    if (counted && reader.integer("num_outputs", 0) != parts_)
      throw Error(ErrorKind::unsupported, fmt::format("num_outputs={} for a node with {} outputs",
                                                      reader.integer("num_outputs", 0), spec.outputs));
    uneven_ = spec.normalised ? reader.flag("uneven", false) : counted;
    if (spec.normalised) placed_ = reader.integers("placed");
    reader.finish();
  }

  std::string_view type() const override { return "Split"; }
  AttributeList attributes() const override {
    AttributeList list{{"axis", axis_}, {"num_outputs", parts_}};
    if (sizes_) list.emplace_back("split", *sizes_);
    if (uneven_) list.emplace_back("uneven", std::int64_t{1});
    if (!placed_.empty()) list.emplace_back("placed", placed_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "input");
    const int along = axis(data.shape.rank());
    const std::int64_t dim = data.shape[along];
    const auto sizes = sizes_ ? sizes_ : constant_integers(inputs, 1, "split");
    std::vector<TensorType> types;
    if (!sizes) {
      const std::int64_t size = dim / parts_ + (dim % parts_ != 0 ? 1 : 0);
      // All parts except the last are full; the last may be smaller, but not empty.
      if (dim % parts_ != 0 && (!uneven_ || size > dim / (parts_ - 1)))
        throw Error(ErrorKind::invalid_model,
                    fmt::format("cannot split axis {} of {} into {} parts", along, data.shape.str(), parts_));
      for (std::int64_t i = 0; i < parts_; ++i)
        types.push_back({data.dtype, data.shape.with(along, std::min(size, dim - i * size))});
      return types;
    }
    if (static_cast<std::int64_t>(sizes->size()) != parts_)
      throw Error(ErrorKind::invalid_model, fmt::format("split has {} sizes for {} outputs", sizes->size(), parts_));
    std::int64_t sum = 0;
    for (const std::int64_t size : *sizes) {
      if (size < 0) throw Error(ErrorKind::invalid_model, fmt::format("split has the size {}", size));
      sum = add_dims(sum, size);
      types.push_back({data.dtype, data.shape.with(along, size)});
    }
    if (sum != dim)
      throw Error(ErrorKind::invalid_model, fmt::format("the sizes of split add up to {}, axis {} of {} has {}", sum,
                                                        along, data.shape.str(), dim));
    return types;
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return axes_kept_if(inputs.size(), y.rank(), [along = axis(y.rank())](int a) { return a != along; });
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return infer(inputs)[0] == inputs[0].type; }

  int axis(int rank) const { return resolve_axis(axis_, rank); }
  bool is_placed(std::size_t output) const {
    return std::ranges::find(placed_, static_cast<std::int64_t>(output)) != placed_.end();
  }

 private:
  std::int64_t axis_ = 0, parts_ = 1;
  std::vector<std::int64_t> placed_;  ///< outputs that lie within the input (Value::part): not copied
  std::optional<std::vector<std::int64_t>> sizes_;
  bool uneven_ = false;  ///< the last part may be smaller
};

std::vector<Move> moves(const Binding& binding) {
  const Shape& x = binding.shape(0);
  const int axis = binding.op<Split>().axis(x.rank());
  const AxisSteps from = element_strides(x, binding.format(0));
  std::vector<Move> moves;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < binding.problem.outputs().size(); ++i) {
    const Shape& y = binding.output_shape(i);
    const Format& format = binding.output_format(i);
    if (!binding.op<Split>().is_placed(i))
      moves.push_back({.loops{y, format, from, element_strides(y, format)},
                       .output = i,
                       .from = start * from[static_cast<std::size_t>(axis)]});
    start += y[axis];
  }
  return moves;
}

constexpr auto kernels =
    on_either({.formats = nchw_or_nhwc, .skips_padding = true, .reads = input_bit(0), .bind = bind_moves<moves>});

}  // namespace

OpParts split() { return {make_from<Split>, kernels}; }

}  // namespace lenslet

// Concat: inputs side by side along one axis.

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/checks.h"
#include "ops/core/shape_args.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

/// `placed` inputs (Value::part) are not copied: their producers have written them in place.
class Concat final : public Op {
 public:
  explicit Concat(std::int64_t axis, std::vector<std::int64_t> placed = {}) : axis_(axis), placed_(std::move(placed)) {}

  std::string_view type() const override { return "Concat"; }
  AttributeList attributes() const override {
    AttributeList list{{"axis", axis_}};
    if (!placed_.empty()) list.emplace_back("placed", placed_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    TensorType result = required_input(inputs, 0, "inputs");
    const int rank = result.shape.rank(), joined = axis(rank);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const Shape& shape = required_input(inputs, i, "inputs").shape;
      if (shape.rank() != rank || !(shape.with(joined, 0) == result.shape.with(joined, 0)))
        throw Error(ErrorKind::invalid_model,
                    fmt::format("cannot join {} to {} along axis {}", shape.str(), inputs[0].type.shape.str(), joined));
      result.shape = result.shape.with(joined, add_dims(result.shape[joined], shape[joined]));
    }
    require_equal_dtypes(inputs);
    return {result};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    AxisMap map = axes_kept_if(1, y.rank(), [joined = axis(y.rank())](int a) { return a != joined; });
    map.inputs.resize(inputs.size(), AxisMap::Followed(map.inputs[0]));
    return map;
  }
  std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const override {
    const int joined = axis(static_cast<int>(to.size()));
    PermutedOp result;
    result.op = std::make_shared<Concat>(to[static_cast<std::size_t>(joined)]);
    for (std::size_t i = 0; i < inputs.size(); ++i) result.inputs.push_back({.number = i});
    return result;
  }
  /// Also if the other inputs are empty.
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return infer(inputs)[0] == inputs[0].type; }

  int axis(int rank) const { return resolve_axis(axis_, rank); }
  bool is_placed(std::size_t input) const {
    return std::find(placed_.begin(), placed_.end(), static_cast<std::int64_t>(input)) != placed_.end();
  }

 private:
  std::int64_t axis_;
  std::vector<std::int64_t> placed_;
};

std::vector<Move> moves(const Binding& binding) {
  const Shape& y = binding.output_shape();
  const int axis = binding.op<Concat>().axis(y.rank());
  const AxisSteps to = element_strides(y, binding.output_format());
  std::vector<Move> moves;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < binding.problem.inputs().size(); ++i) {
    const Shape& x = binding.shape(i);
    if (!binding.op<Concat>().is_placed(i))
      moves.push_back({.loops{x, binding.output_format(), element_strides(x, binding.format(i)), to},
                       .input = i,
                       .to = start * to[static_cast<std::size_t>(axis)]});
    start += x[axis];
  }
  return moves;
}

constexpr auto kernels = on_either({.formats = nchw_or_nhwc,
                                    .pitched_inputs = all_inputs,
                                    .pitched_output = true,
                                    .skips_padding = true,
                                    .bind = bind_moves<moves>});

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const std::int64_t axis = reader.required_integer("axis");
  std::vector<std::int64_t> placed;
  if (spec.normalised) placed = reader.integers("placed");
  reader.finish();
  return std::make_shared<Concat>(axis, std::move(placed));
}

}  // namespace

OpParts concat() { return {make, kernels}; }

}  // namespace lenslet
